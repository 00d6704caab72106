// Peers that do not keep to the protocol: raw sockets against an owner, raw servers against a
// consumer. Nobody crashes or hangs, errors are typed, and an owner goes on serving the others.

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "api/nodes.hpp"
#include "api/raw_peer.hpp"
#include "api/scripted_owner.hpp"
#include "base/log.hpp"
#include "support/seeded_random.hpp"

namespace rvget::test {
namespace {

constexpr std::size_t medium = 100'000;
/// Leases that a bad consumer leaves behind end soon, though not inside a test on a busy machine.
node_options short_lived() {
    node_options o;
    o.retry_window = 100ms;
    o.lease_timeout = 500ms;
    o.handshake_timeout = 500ms;
    return o;
}

/// An owner among bad consumers, and a good one.
struct besieged_owner {
    [[nodiscard]] raw_socket connect() const { return connect_raw(*owner.address()); }
    /// A connection whose greetings were exchanged.
    [[nodiscard]] raw_socket greeted() const {
        auto s = connect();
        BOOST_REQUIRE(s.write(wire::frame{0, wire::hello{.node = raw_id}}));
        const auto hello = s.read_frame();
        BOOST_REQUIRE(hello);
        BOOST_REQUIRE((std::get<wire::hello>(hello->frame.body).node == owner.id()));
        return s;
    }
    template <class Reply>
    [[nodiscard]] Reply ask(const raw_socket& s, wire::body body) {
        const auto id = ++last_id;
        BOOST_REQUIRE(s.write(wire::frame{id, std::move(body)}));
        auto reply = s.read_frame();
        BOOST_REQUIRE(reply);
        BOOST_TEST(reply->frame.id == id);
        return std::get<Reply>(reply->frame.body);
    }
    [[nodiscard]] wire::acquire acquire_whole() const {
        wire::acquire a;
        a.slot = staged.slot;
        a.deadline_ms = 60'000;
        return a;
    }
    void check_serves() {
        const auto got = consumer.get(owner.url_of(staged));
        BOOST_REQUIRE_MESSAGE(got, got.error().message());
        BOOST_TEST(got->data.size() == medium);
        check_pattern(got->data.bytes());
    }
    /// The owner's statistics once `holds` is true of them.
    template <class P>
    node_statistics await(P holds) const {
        const auto end = std::chrono::steady_clock::now() + patience;
        for (;;) {
            const auto s = owner.statistics();
            if (holds(s)) return s;
            BOOST_REQUIRE(std::chrono::steady_clock::now() < end);
            std::this_thread::yield();
        }
    }
    /// Also what every test ends with: nothing is left behind.
    ~besieged_owner() {
        check_serves();
        const auto s = await([](const node_statistics& now) { return now.leases_active == 0; });
        BOOST_TEST(s.leases_granted == s.leases_released + s.leases_expired);
        BOOST_TEST(s.slots == 1u);
        BOOST_TEST(owner.metadata(staged)->references == 1u);
        BOOST_TEST(owner.shutdown(10s));
    }

    node owner = start_tcp_node(listening(short_lived()));
    node consumer = start_tcp_node();
    handle staged = owner.stage(payload(medium)).value();
    std::uint64_t last_id = 0;
};

/// What a good consumer sends, with a little of everything. Leases count from 1.
bytes conversation(const besieged_owner& o) {
    bytes all;
    const auto say = [&](std::uint64_t id, wire::body b) {
        const auto f = on_the_wire(wire::frame{id, std::move(b)});
        all.insert(all.end(), f.begin(), f.end());
    };
    say(0, wire::hello{.node = raw_id});
    say(1, wire::metadata_request{o.staged.slot});
    say(2, wire::reference{o.staged.slot, wire::reference_change::add});
    auto with_offer = o.acquire_whole();
    with_offer.offer = wire::lane_offer{.generation = 1, .facts = wire::queue_pair_facts{}};
    with_offer.offer->facts->path_mtu = 1024;
    with_offer.detaches = {5, 6};
    say(3, with_offer);
    say(4, wire::pull{1, 0, 5000});
    say(5, wire::renew{1});
    say(6, wire::ping{});
    say(0, wire::lane_down{1, reason::get_failed});
    say(0, wire::detach{{1, 2}});
    say(7, wire::reference{o.staged.slot, wire::reference_change::release});
    return all;
}

BOOST_FIXTURE_TEST_SUITE(owner_and_bad_consumers, besieged_owner)

BOOST_AUTO_TEST_CASE(valid_conversation_is_answered) {
    // Without it the mutations below might all fail for one wrong byte.
    const auto s = connect();
    BOOST_REQUIRE(s.write(conversation(*this)));
    std::size_t replies = 0;
    while (const auto f = s.read_frame()) ++replies;
    BOOST_TEST(replies ==
               8u);  // hello, metadata, reference, acquire, chunk, renew, pong, reference
    BOOST_TEST(owner.statistics().leases_released == 1u);
}

BOOST_AUTO_TEST_CASE(random_bytes_end_the_connection) {
    seeded_random random("random_bytes_end_the_connection");
    for (int i = 0; i < 100; ++i) {
        const auto s = random.coin() ? connect() : greeted();
        bytes noise(1 + random.below(3000));
        for (auto& b : noise) b = static_cast<std::byte>(random.u64());
        if (noise.size() > wire::prefix_bytes && random.coin()) {
            // Frames of a plausible length, with noise inside.
            const auto prefix =
                wire::encode_prefix({static_cast<std::uint32_t>(1 + random.below(noise.size() - 8)),
                                     static_cast<std::uint32_t>(random.below(100))});
            std::ranges::copy(prefix, noise.begin());
        }
        s.write(noise);
        s.shutdown(SHUT_WR);
        BOOST_TEST(s.read_to_end());
    }
}

BOOST_AUTO_TEST_CASE(conversation_cut_anywhere_ends_the_connection) {
    const auto whole = conversation(*this);
    for (std::size_t n = 0; n < whole.size(); ++n) {
        const auto s = connect();
        BOOST_REQUIRE(s.write(std::span(whole).first(n)));
        s.shutdown(SHUT_WR);
        BOOST_TEST(s.read_to_end());
    }
    check_serves();
}

BOOST_AUTO_TEST_CASE(conversation_with_any_byte_changed_harms_nobody) {
    const auto whole = conversation(*this);
    for (std::size_t at = 0; at < whole.size(); ++at)
        for (const auto flip : {std::byte{0x01}, std::byte{0x80}, std::byte{0xff}}) {
            auto changed = whole;
            changed[at] ^= flip;
            const auto s = connect();
            s.write(changed);  // may be refused before its end
            s.shutdown(SHUT_WR);
            BOOST_TEST(s.read_to_end());
        }
}

BOOST_AUTO_TEST_CASE(lengths_beyond_the_limits_end_the_connection_at_once) {
    const auto too_long = [](std::uint32_t head, std::uint32_t payload_bytes) {
        bytes b(8);
        for (unsigned i = 0; i < 4; ++i) {
            b[i] = static_cast<std::byte>(head >> (8 * i));
            b[4 + i] = static_cast<std::byte>(payload_bytes >> (8 * i));
        }
        return b;
    };
    for (const auto& prefix : {too_long(0, 0), too_long(wire::max_head_bytes + 1, 0),
                               too_long(10, wire::max_payload_bytes + 1), too_long(~0U, ~0U)})
        for (const bool after_greeting : {false, true}) {
            const auto s = after_greeting ? greeted() : connect();
            s.write(prefix);
            BOOST_TEST(s.read_to_end());  // although this end goes on
        }
}

BOOST_AUTO_TEST_CASE(payload_where_none_belongs_ends_the_connection) {
    const auto s = greeted();
    s.write(wire::frame{1, wire::ping{}}, payload(5000));
    BOOST_TEST(s.read_to_end());
}

BOOST_AUTO_TEST_CASE(frames_out_of_order_end_the_connection) {
    for (const wire::body& first :
         {wire::body(acquire_whole()), wire::body(wire::ping{}), wire::body(wire::goodbye{"x"}),
          wire::body(wire::acquire_reply{})}) {
        const auto s = connect();
        s.write(wire::frame{1, first});
        BOOST_TEST(s.read_to_end());
    }
    for (const wire::body& later :
         {wire::body(wire::hello{.node = raw_id}), wire::body(wire::acquire_reply{}),
          wire::body(wire::renew_reply{}), wire::body(wire::chunk{}),
          wire::body(wire::metadata_reply{}), wire::body(wire::reference_reply{}),
          wire::body(wire::pong{})}) {
        const auto s = greeted();
        s.write(wire::frame{1, later});
        const auto bye = s.read_frame();
        BOOST_REQUIRE(bye);
        BOOST_TEST(std::holds_alternative<wire::goodbye>(bye->frame.body));
        BOOST_TEST(s.read_to_end());
    }
}

BOOST_AUTO_TEST_CASE(contract_6_2_unknown_version_is_told_and_closed) {
    const auto s = connect();
    s.write(
        wire::frame{0, wire::hello{.version_oldest = 40, .version_newest = 41, .node = raw_id}});
    const auto hello = s.read_frame();
    BOOST_REQUIRE(hello);
    BOOST_TEST(std::holds_alternative<wire::hello>(hello->frame.body));
    BOOST_TEST(s.read_to_end());
}

BOOST_AUTO_TEST_CASE(peer_that_does_not_greet_is_closed_after_the_handshake_timeout) {
    const auto begin = std::chrono::steady_clock::now();
    const auto silent = connect();
    const auto slow = connect();
    const auto hello = on_the_wire(wire::frame{0, wire::hello{.node = raw_id}});
    slow.write(std::span(hello).first(hello.size() - 1));
    BOOST_TEST(silent.read_to_end());
    BOOST_TEST(slow.read_to_end());
    BOOST_TEST((std::chrono::steady_clock::now() - begin >= short_lived().handshake_timeout));
    const auto in_time = greeted();
    static_cast<void>(await([begin](const node_statistics&) {
        return std::chrono::steady_clock::now() - begin > 3 * short_lived().handshake_timeout;
    }));
    BOOST_TEST(in_time.write(wire::frame{1, wire::ping{}}));
    BOOST_TEST(in_time.read_frame().has_value());
}

BOOST_AUTO_TEST_CASE(leases_of_others_are_unknown) {
    const auto a = greeted();
    const auto b = greeted();
    const auto lease = ask<wire::acquire_reply>(a, acquire_whole()).lease;
    BOOST_REQUIRE(lease != 0);
    for (const auto not_mine : {lease, lease + 1, std::uint64_t{0}, ~std::uint64_t{0}}) {
        BOOST_TEST((ask<wire::chunk>(b, wire::pull{not_mine, 0, 1}).status ==
                    wire::chunk_status::lease_unknown));
        BOOST_TEST(!ask<wire::renew_reply>(b, wire::renew{not_mine}).granted);
        b.write(wire::frame{0, wire::detach{{not_mine}}});
    }
    BOOST_TEST((ask<wire::chunk>(a, wire::pull{lease, 0, 1}).status == wire::chunk_status::ok));
    a.write(wire::frame{0, wire::detach{{lease, lease, lease}}});
    BOOST_TEST(
        (ask<wire::chunk>(a, wire::pull{lease, 0, 1}).status == wire::chunk_status::lease_unknown));
    BOOST_TEST(owner.statistics().leases_released == 1u);
}

BOOST_AUTO_TEST_CASE(pulls_past_the_leased_range_are_out_of_range) {
    const auto s = greeted();
    auto part = acquire_whole();
    part.offset = 50'000;
    part.length = 10'000;
    const auto lease = ask<wire::acquire_reply>(s, part).lease;
    const auto status = [&](std::uint64_t offset, std::uint32_t count) {
        return ask<wire::chunk>(s, wire::pull{lease, offset, count}).status;
    };
    BOOST_TEST((status(0, 10'000) == wire::chunk_status::ok));
    BOOST_TEST((status(9'999, 1) == wire::chunk_status::ok));
    BOOST_TEST((status(10'000, 0) == wire::chunk_status::ok));
    BOOST_TEST((status(0, 10'001) == wire::chunk_status::out_of_range));
    BOOST_TEST((status(10'000, 1) == wire::chunk_status::out_of_range));
    BOOST_TEST((status(10'001, 0) == wire::chunk_status::out_of_range));
    BOOST_TEST((status(~std::uint64_t{0}, 2) == wire::chunk_status::out_of_range));
}

BOOST_AUTO_TEST_CASE(contract_4_2_lease_never_ended_expires_and_its_slot_is_freed) {
    const auto doomed = owner.stage(payload(5000)).value();
    const auto s = greeted();
    auto a = acquire_whole();
    a.slot = doomed.slot;
    const auto lease = ask<wire::acquire_reply>(s, a).lease;
    BOOST_TEST(owner.release(doomed).value() == 0u);
    BOOST_TEST(owner.statistics().slots == 2u);
    await([](const node_statistics& now) { return now.leases_expired == 1 && now.slots == 1; });
    BOOST_TEST(
        (ask<wire::chunk>(s, wire::pull{lease, 0, 1}).status == wire::chunk_status::lease_unknown));
}

BOOST_AUTO_TEST_CASE(what_a_peer_says_cannot_pose_as_another_key_of_a_log_line) {
    std::string said;  // written on the node's thread before it closes, read after that
    set_log_sink([&](log_level, std::string_view line) {
        if (line.find("goodbye=") != std::string_view::npos) said = line;
    });
    set_log_level(log_level::debug);
    const auto s = greeted();
    s.write(wire::frame{0, wire::goodbye{"x\" effect=\"forged"}});
    BOOST_TEST(!s.read_frame());
    set_log_level(log_level::info);
    set_log_sink({});
    BOOST_TEST(said.ends_with(R"( goodbye="x\" effect=\"forged")"), said);
}

BOOST_AUTO_TEST_CASE(contract_1_4_consumer_cannot_release_what_it_does_not_hold) {
    const auto s = greeted();
    const auto change = [&](wire::reference_change c) {
        return ask<wire::reference_reply>(s, wire::reference{staged.slot, c});
    };
    BOOST_TEST(!change(wire::reference_change::release).found);
    BOOST_TEST(change(wire::reference_change::add).references == 2u);
    BOOST_TEST(change(wire::reference_change::add).references == 3u);
    BOOST_TEST(change(wire::reference_change::release).references == 2u);
    BOOST_TEST(change(wire::reference_change::release).references == 1u);
    BOOST_TEST(!change(wire::reference_change::release).found);
    BOOST_TEST(change(wire::reference_change::add).references == 2u);
    // What it holds goes with it: the fixture looks.
}

BOOST_AUTO_TEST_CASE(consumer_that_does_not_read_holds_up_nobody) {
    const auto s = greeted();
    const auto lease = ask<wire::acquire_reply>(s, acquire_whole()).lease;
    for (std::uint64_t i = 0; i < 500; ++i)
        BOOST_REQUIRE(s.write(wire::frame{100 + i, wire::pull{lease, 0, medium}}));
    check_serves();
}

BOOST_AUTO_TEST_CASE(contract_3_1_chunks_beyond_the_budget_are_answered_busy) {
    auto tight = short_lived();
    tight.chunk_budget_bytes = 1;
    auto small = start_tcp_node(listening(tight));
    const auto there = small.url_of(small.stage(payload(medium)).value());
    auto s = connect_raw(*small.address());
    s.write(wire::frame{0, wire::hello{.node = raw_id}});
    BOOST_REQUIRE(s.read_frame());
    auto a = acquire_whole();
    a.slot = there.handle.slot;
    const auto lease = ask<wire::acquire_reply>(s, a).lease;
    // More than sockets hold, and none of it is read.
    for (std::uint64_t i = 0; i < 500; ++i)
        BOOST_REQUIRE(s.write(wire::frame{100 + i, wire::pull{lease, 0, medium}}));
    BOOST_REQUIRE(s.write(wire::frame{1000, a}));
    // Who reads what it asks for is served all the same.
    const auto got = consumer.get(there);
    BOOST_REQUIRE_MESSAGE(got, got.error().message());
    check_pattern(got->data.bytes());
    for (auto reply = s.read_frame();; reply = s.read_frame()) {
        BOOST_REQUIRE(reply);
        if (reply->frame.id != 1000) continue;
        const auto& busy = std::get<wire::acquire_reply>(reply->frame.body);
        BOOST_TEST((busy.answer == wire::answer::busy));
        BOOST_TEST(busy.retry_after_ms > 0u);
        break;
    }
}

BOOST_AUTO_TEST_CASE(consumers_beyond_the_limit_are_closed) {
    node_options few;
    few.max_consumers = 2;
    auto small = start_tcp_node(listening(few));
    const auto a = connect_raw(*small.address());
    const auto b = connect_raw(*small.address());
    for (const auto* s : {&a, &b}) {
        s->write(wire::frame{0, wire::hello{.node = raw_id}});
        BOOST_TEST(s->read_frame().has_value());
    }
    const auto c = connect_raw(*small.address());
    BOOST_TEST(c.read_to_end());
    a.write(wire::frame{1, wire::ping{}});
    BOOST_TEST(a.read_frame().has_value());
}

BOOST_AUTO_TEST_CASE(contract_3_1_leases_beyond_the_limit_are_answered_busy) {
    auto few = short_lived();
    few.max_leases = 2;
    auto small = start_tcp_node(listening(few));
    const auto there = small.url_of(small.stage(payload(medium)).value());
    const auto s = connect_raw(*small.address());
    s.write(wire::frame{0, wire::hello{.node = raw_id}});
    BOOST_REQUIRE(s.read_frame());
    auto a = acquire_whole();
    a.slot = there.handle.slot;
    BOOST_TEST(ask<wire::acquire_reply>(s, a).lease != 0u);
    BOOST_TEST(ask<wire::acquire_reply>(s, a).lease != 0u);
    const auto third = ask<wire::acquire_reply>(s, a);
    BOOST_TEST((third.answer == wire::answer::busy));
    BOOST_TEST(third.retry_after_ms > 0u);
    // A good consumer waits, until the leases of the bad one have expired.
    const auto got = consumer.get(there);
    BOOST_REQUIRE_MESSAGE(got, got.error().message());
    check_pattern(got->data.bytes());
}

BOOST_AUTO_TEST_SUITE_END()

/// Answers the first request with `reply`, then reads until the consumer goes.
scripted_owner::script answer_with(wire::acquire_reply reply,
                                   std::span<const std::byte> with = {}) {
    return [=](const raw_socket& s) {
        if (const auto asked = s.read_frame()) s.write(wire::frame{asked->frame.id, reply}, with);
        while (s.read_frame()) {
        }
    };
}

wire::acquire_reply chunked(std::uint64_t size) {
    wire::acquire_reply r;
    r.answer = wire::answer::chunked;
    r.why = reason::no_offer;
    r.slot_bytes = r.range_bytes = size;
    r.lease = 5;
    r.duration_ms = 30'000;
    return r;
}

/// Grants a chunked lease and answers each pull by `reply`.
scripted_owner::script answer_pulls(
    std::uint64_t size,
    std::function<void(const raw_socket&, std::uint64_t, const wire::pull&)> reply) {
    return [=](const raw_socket& s) {
        while (const auto asked = s.read_frame()) {
            if (std::holds_alternative<wire::acquire>(asked->frame.body))
                s.write(wire::frame{asked->frame.id, chunked(size)});
            if (const auto* p = std::get_if<wire::pull>(&asked->frame.body))
                reply(s, asked->frame.id, *p);
        }
    };
}

/// The failure of a get from such an owner, which must come by itself.
failure failure_of_get(scripted_owner::script s, bool greet = true, get_options o = {}) {
    auto consumer = start_tcp_node();
    std::vector<std::byte> memory(10'000, std::byte{0xee});
    result<get_into_result> got = failure{};
    {
        std::optional<scripted_owner> owner(std::in_place, std::move(s), greet);
        got = consumer.get_into(owner->target(), memory, o);
        BOOST_TEST(consumer.shutdown(5s));  // ends the script
    }
    BOOST_REQUIRE(!got);
    BOOST_TEST(got.error().code != make_error_code(request_errc::deadline_exceeded));
    BOOST_TEST(!got.error().detail.empty());
    const auto st = consumer.statistics();
    BOOST_TEST(st.gets_answered == 1u);
    return got.error();
}

BOOST_AUTO_TEST_SUITE(consumer_and_bad_owners)

BOOST_AUTO_TEST_CASE(good_script_is_got_from) {
    // Without it the failures below might have another cause.
    auto consumer = start_tcp_node();
    std::vector<std::byte> memory(9'000);
    const scripted_owner owner(
        answer_pulls(9'000, [](const raw_socket& s, std::uint64_t id, const wire::pull& p) {
            s.write(wire::frame{id, wire::chunk{}}, payload(9'000).subspan(p.offset, p.bytes));
        }));
    BOOST_TEST(consumer.get_into(owner.target(), memory)->bytes == 9'000u);
    check_pattern(memory);
    consumer.shutdown(5s);
}

BOOST_AUTO_TEST_CASE(garbage_instead_of_a_greeting_is_a_protocol_error) {
    const auto f = failure_of_get([](const raw_socket& s) { s.write(payload(500)); }, false);
    BOOST_TEST(f.code == make_error_code(connection_errc::protocol));
}

BOOST_AUTO_TEST_CASE(answer_before_the_greeting_is_a_protocol_error) {
    const auto f = failure_of_get(
        [](const raw_socket& s) {
            s.write(wire::frame{1, chunked(10)});
            static_cast<void>(s.read_to_end());
        },
        false);
    BOOST_TEST(f.code == make_error_code(connection_errc::protocol));
}

BOOST_AUTO_TEST_CASE(second_greeting_is_a_protocol_error) {
    const auto f = failure_of_get([](const raw_socket& s) {
        s.write(wire::frame{0, wire::hello{.node = raw_id}});
        static_cast<void>(s.read_to_end());
    });
    BOOST_TEST(f.code == make_error_code(connection_errc::protocol));
}

BOOST_AUTO_TEST_CASE(contract_6_2_no_version_in_common_is_a_version_mismatch) {
    const auto f = failure_of_get(
        [](const raw_socket& s) {
            s.write(wire::frame{
                0, wire::hello{.version_oldest = 40, .version_newest = 41, .node = raw_id}});
            static_cast<void>(s.read_to_end());
        },
        false);
    BOOST_TEST(f.code == make_error_code(connection_errc::version_mismatch));
    BOOST_TEST(f.detail.find("40 to 41") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(reply_to_nothing_is_a_protocol_error) {
    const auto f = failure_of_get([](const raw_socket& s) {
        static_cast<void>(s.read_frame());
        s.write(wire::frame{12345, chunked(10)});
        static_cast<void>(s.read_to_end());
    });
    BOOST_TEST(f.code == make_error_code(connection_errc::protocol));
}

BOOST_AUTO_TEST_CASE(reply_of_another_kind_is_a_protocol_error) {
    const wire::body kinds[] = {wire::metadata_reply{}, wire::chunk{}, wire::renew_reply{},
                                wire::reference_reply{}};
    for (const auto& kind : kinds) {
        const auto f = failure_of_get([kind](const raw_socket& s) {
            if (const auto asked = s.read_frame()) s.write(wire::frame{asked->frame.id, kind});
            while (s.read_frame()) {
            }
        });
        BOOST_TEST(f.code == make_error_code(connection_errc::protocol));
    }
}

BOOST_AUTO_TEST_CASE(contract_3_4_rdma_answer_to_no_offer_is_a_protocol_error) {
    auto r = chunked(5000);
    r.answer = wire::answer::rdma;
    r.descriptor =
        wire::encode(wire::descriptor{.length = 5000, .lease = 5, .keys = {{0, 1}}, .crc32c = {}});
    const auto f = failure_of_get(answer_with(r));
    BOOST_TEST(f.code == make_error_code(connection_errc::protocol));
}

BOOST_AUTO_TEST_CASE(inline_answer_of_another_length_is_a_protocol_error) {
    wire::acquire_reply r;
    r.answer = wire::answer::inline_answer;
    r.slot_bytes = r.range_bytes = 100;
    for (const std::size_t length : {0, 99, 101})
        BOOST_TEST(failure_of_get(answer_with(r, payload(length))).code ==
                   make_error_code(connection_errc::protocol));
}

BOOST_AUTO_TEST_CASE(longer_range_than_asked_for_is_a_protocol_error) {
    BOOST_TEST(failure_of_get(answer_with(chunked(101)), true, {.length = 100}).code ==
               make_error_code(connection_errc::protocol));
}

BOOST_AUTO_TEST_CASE(range_that_no_memory_holds_is_an_error) {
    auto consumer = start_tcp_node();
    const scripted_owner owner(answer_with(chunked(std::uint64_t{1} << 62)));
    const auto got = consumer.get(owner.target());
    consumer.shutdown(5s);
    BOOST_REQUIRE(!got);
    BOOST_TEST(got.error().code == make_error_code(node_errc::out_of_memory));
}

BOOST_AUTO_TEST_CASE(chunk_of_another_length_is_a_protocol_error) {
    for (const std::size_t length : {0, 1, 8'999, 9'001, 20'000}) {
        const auto f = failure_of_get(
            answer_pulls(9'000, [length](const raw_socket& s, std::uint64_t id, const wire::pull&) {
                s.write(wire::frame{id, wire::chunk{}}, payload(length));
            }));
        BOOST_TEST(f.code == make_error_code(connection_errc::protocol));
    }
}

BOOST_AUTO_TEST_CASE(refused_pull_ends_the_get) {
    for (const auto status : {wire::chunk_status::lease_unknown, wire::chunk_status::out_of_range})
        for (const std::size_t length : {0, 9'000}) {
            const auto f = failure_of_get(
                answer_pulls(9'000, [=](const raw_socket& s, std::uint64_t id, const wire::pull&) {
                    s.write(wire::frame{id, wire::chunk{status}}, payload(length));
                }));
            BOOST_TEST(f.code == make_error_code(lease_errc::lost));
        }
}

BOOST_AUTO_TEST_CASE(connection_that_ends_inside_a_chunk_is_lost) {
    for (const std::size_t part : {1, 8, 9, 100, 5'000}) {
        const auto f = failure_of_get([part](const raw_socket& s) {
            const auto asked = s.read_frame();
            if (asked) s.write(wire::frame{asked->frame.id, chunked(9'000)});
            const auto pull = s.read_frame();
            const auto whole =
                on_the_wire(wire::frame{pull ? pull->frame.id : 0, wire::chunk{}}, payload(9'000));
            s.write(std::span(whole).first(part));
        });
        BOOST_TEST(f.code == make_error_code(connection_errc::lost));
    }
}

BOOST_AUTO_TEST_CASE(goodbye_in_the_middle_is_lost_with_its_reason) {
    const auto f = failure_of_get([](const raw_socket& s) {
        static_cast<void>(s.read_frame());
        s.write(wire::frame{0, wire::goodbye{"maintenance"}});
        static_cast<void>(s.read_to_end());
    });
    BOOST_TEST(f.code == make_error_code(connection_errc::lost));
    BOOST_TEST(f.detail.find("maintenance") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(contract_6_4_stranger_hears_nothing_of_a_shutdown) {
    auto owner = start_tcp_node(listening());
    const auto stranger = connect_raw(*owner.address());
    {
        // Accepted in order: once this one is greeted, the owner knows the stranger too.
        const auto known = connect_raw(*owner.address());
        known.write(wire::frame{0, wire::hello{.node = raw_id}});
        BOOST_REQUIRE(known.read_frame());
    }
    BOOST_TEST(owner.shutdown(10s));
    std::byte said{};
    BOOST_TEST(::recv(stranger.get(), &said, 1, 0) <= 0);
}

/// Lines with `part`, which come from another thread.
class counted_lines {
public:
    explicit counted_lines(std::string part) {
        set_log_sink([this, part = std::move(part)](log_level, std::string_view line) {
            const std::lock_guard lock(mutex_);
            if (line.find(part) != std::string_view::npos) lines_.emplace_back(line);
            more_.notify_all();
        });
    }
    ~counted_lines() { set_log_sink({}); }
    bool comes() {
        std::unique_lock lock(mutex_);
        return more_.wait_for(lock, patience, [this] { return !lines_.empty(); });
    }
    std::vector<std::string> all() {
        const std::lock_guard lock(mutex_);
        return lines_;
    }

private:
    std::mutex mutex_;
    std::condition_variable more_;
    std::vector<std::string> lines_;
};

BOOST_AUTO_TEST_CASE(contract_7_4_owner_that_answers_nothing_is_logged_once_with_cause_and_step) {
    counted_lines silent("event=owner_silent");
    node_options o;
    o.peer_timeout = 100ms;
    auto consumer = start_tcp_node(o);
    const scripted_owner owner([&](const raw_socket& s) {
        const auto asked = s.read_frame();
        if (!asked || !silent.comes()) return;
        wire::acquire_reply reply;
        reply.answer = wire::answer::not_found;
        s.write(wire::frame{asked->frame.id, reply});
        static_cast<void>(s.read_to_end());
    });
    const auto got = consumer.get(owner.target(), {.deadline = patience});
    BOOST_REQUIRE(!got);
    BOOST_TEST(got.error().code == make_error_code(request_errc::not_found));
    BOOST_TEST(consumer.shutdown(5s));
    const auto lines = silent.all();
    BOOST_REQUIRE(lines.size() == 1u);
    BOOST_TEST(lines[0].find("requests=1 cause=\"no answer for 200 ms") != std::string::npos,
               lines[0]);
    BOOST_TEST(lines[0].find("next=\"look at that process") != std::string::npos, lines[0]);
}

BOOST_AUTO_TEST_CASE(contract_7_4_connection_that_breaks_is_logged_once_with_cause_and_step) {
    counted_lines lost("event=connection_lost");
    const auto f = failure_of_get([](const raw_socket& s) {
        static_cast<void>(s.read_frame());  // and then it is gone
    });
    BOOST_TEST(f.code == make_error_code(connection_errc::lost));
    const auto lines = lost.all();
    BOOST_REQUIRE(lines.size() == 1u);
    BOOST_TEST(lines[0].find(" requests=1 cause=") != std::string::npos, lines[0]);
    BOOST_TEST(lines[0].find("next=\"the next get connects again") != std::string::npos, lines[0]);
}

BOOST_AUTO_TEST_CASE(busy_for_longer_than_the_deadline_is_busy) {
    wire::acquire_reply r;
    r.answer = wire::answer::busy;
    r.retry_after_ms = ~0U;
    BOOST_TEST(failure_of_get(answer_with(r)).code == make_error_code(request_errc::busy));
}

BOOST_AUTO_TEST_CASE(answers_with_any_byte_changed_never_pass_for_other_bytes) {
    constexpr std::size_t size = 5'000;
    const bytes answers[] = {
        on_the_wire(wire::frame{0, wire::hello{.node = raw_id}}),
        on_the_wire(wire::frame{1, chunked(size)}),
        on_the_wire(wire::frame{2, wire::chunk{}}, {}, size),  // the payload follows unchanged
    };
    int good = 0;
    for (std::size_t which = 0; which < 3; ++which)
        for (std::size_t at = 0; at < answers[which].size(); ++at)
            for (const auto flip : {std::byte{0x01}, std::byte{0x80}}) {
                auto said = std::vector<bytes>(std::begin(answers), std::end(answers));
                said[which][at] ^= flip;
                auto consumer = start_tcp_node();
                const scripted_owner owner(
                    [&said](const raw_socket& s) {
                        s.write(said[0]);
                        if (!s.read_frame() || !s.write(said[1])) return;
                        if (!s.read_frame() || !s.write(said[2])) return;
                        s.write(payload(size));
                        while (s.read_frame()) {
                        }
                    },
                    false);
                const auto got = consumer.get(owner.target(), {.deadline = 100ms});
                consumer.shutdown(5s);
                if (!got) continue;
                ++good;
                BOOST_TEST(pattern_mismatch(got->data.bytes()) == got->data.size());
            }
    BOOST_TEST(good > 0);  // lease and duration may be anything
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace rvget::test
