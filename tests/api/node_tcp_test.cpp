// Two nodes in one process over real TCP on loopback, without a device.

#include <algorithm>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/test/unit_test.hpp>

#include "api/nodes.hpp"
#include "api/raw_peer.hpp"

namespace rvget::test {
namespace {

constexpr std::size_t medium = (std::size_t{1} << 20) + 4097;
constexpr std::size_t large = std::size_t{16} << 20;

handle any_handle() { return {node_id{1}, 2}; }

void check_report(const transfer_report& r, std::size_t bytes) {
    BOOST_TEST(r.path == (bytes <= 4096 ? path::inline_answer : path::chunked));
    BOOST_TEST(r.reason == reason::not_configured);
    BOOST_TEST(r.bytes == bytes);
    BOOST_TEST(r.slot_bytes == bytes);
    BOOST_TEST(r.copied_bytes == (bytes <= 4096 ? bytes : 0));
    BOOST_TEST(r.device.empty());
    BOOST_TEST(r.acquire.count() > 0);
}

BOOST_AUTO_TEST_SUITE(transfers)

BOOST_AUTO_TEST_CASE(contract_2_1_get_of_every_size_returns_the_bytes) {
    tcp_nodes n;
    for (const auto size : transfer_sizes) {
        const auto got = n.consumer.get(n.stage(size)).value();
        BOOST_TEST(got.data.size() == size);
        check_pattern(got.data.bytes());
        check_report(got.report, size);
    }
    check_lease_invariant(n.owner);
}

BOOST_AUTO_TEST_CASE(get_pinned_without_a_device_returns_plain_memory) {
    tcp_nodes n;
    for (const auto size : transfer_sizes) {
        const auto got = n.consumer.get_pinned(n.stage(size)).value();
        BOOST_TEST(got.data.size() == size);
        BOOST_TEST(!got.data.registered());
        check_pattern(got.data.bytes());
        check_report(got.report, size);
    }
}

BOOST_AUTO_TEST_CASE(contract_2_1_get_into_fills_the_destination_and_nothing_behind_it) {
    tcp_nodes n;
    for (const auto size : transfer_sizes) {
        std::vector<std::byte> destination(size + 64, std::byte{0xee});
        const auto got = n.consumer.get_into(n.stage(size), destination).value();
        BOOST_TEST(got.bytes == size);
        BOOST_TEST(got.quiet.resolved());
        check_pattern(std::span(destination).first(size));
        BOOST_TEST(std::ranges::all_of(std::span(destination).last(64),
                                       [](std::byte b) { return b == std::byte{0xee}; }));
        check_report(got.report, size);
    }
}

BOOST_AUTO_TEST_CASE(contract_2_1_range_at_either_end_returns_its_bytes) {
    tcp_nodes n;
    const auto from = n.stage(medium);
    struct range {
        std::uint64_t offset;
        std::optional<std::uint64_t> length;
        std::size_t expected;
    };
    const range ranges[] = {
        {0, 0, 0},
        {0, 1, 1},
        {0, 5000, 5000},
        {medium - 1, 1, 1},
        {medium - 1, std::nullopt, 1},
        {medium - 5000, std::nullopt, 5000},
        {medium - 5000, 5001, 5000},  // clipped
        {medium, std::nullopt, 0},
        {medium, 10, 0},
        {12345, 700'000, 700'000},
        {1, ~std::uint64_t{0}, medium - 1},
    };
    for (const auto& r : ranges) {
        BOOST_TEST_CONTEXT("offset " << r.offset << " expecting " << r.expected) {
            const auto got = n.consumer.get(from, {.offset = r.offset, .length = r.length}).value();
            BOOST_TEST(got.data.size() == r.expected);
            BOOST_TEST(got.report.bytes == r.expected);
            BOOST_TEST(got.report.slot_bytes == medium);
            check_pattern(got.data.bytes(), r.offset);
        }
    }
}

BOOST_AUTO_TEST_CASE(range_past_the_end_is_out_of_range) {
    tcp_nodes n;
    const auto from = n.stage(medium);
    for (const std::uint64_t offset : {std::uint64_t{medium} + 1, ~std::uint64_t{0}})
        check_failure(n.consumer.get(from, {.offset = offset}), request_errc::out_of_range,
                      std::to_string(medium));
}

BOOST_AUTO_TEST_CASE(destination_too_small_is_refused_untouched) {
    tcp_nodes n;
    std::vector<std::byte> destination(medium - 1, std::byte{0xee});
    check_failure(n.consumer.get_into(n.stage(medium), destination), request_errc::invalid_argument,
                  std::to_string(medium));
    std::vector<std::byte> tiny(9, std::byte{0xee});
    check_failure(n.consumer.get_into(n.stage(10), tiny), request_errc::invalid_argument);
    check_failure(n.consumer.get_into(n.stage(10), {}), request_errc::invalid_argument);
    const auto untouched = [](std::byte b) { return b == std::byte{0xee}; };
    BOOST_TEST(std::ranges::all_of(destination, untouched));
    BOOST_TEST(std::ranges::all_of(tiny, untouched));
    // The refused destination is free again, and a range makes it large enough.
    BOOST_TEST(n.consumer.get_into(n.stage(medium), destination, {.length = medium - 1})->bytes ==
               medium - 1);
    check_pattern(destination);
}

BOOST_AUTO_TEST_CASE(concurrent_gets_are_each_answered_once_with_their_bytes) {
    tcp_nodes n;
    const std::size_t sizes[] = {4097, 100, 65536, 300'000};
    std::vector<url> urls;
    for (const auto size : sizes) urls.push_back(n.stage(size));
    constexpr std::size_t gets = 200;
    answers done;
    std::vector<get_result> results(gets);
    for (std::size_t i = 0; i < gets; ++i)
        n.consumer.async_get(urls[i % 4], {}, [&, i](error_code ec, get_result r) {
            results[i] = std::move(r);
            done.add(i, ec);
        });
    BOOST_REQUIRE(done.wait_for(gets));
    for (std::size_t i = 0; i < gets; ++i) {
        BOOST_TEST(!done.code(i));
        BOOST_TEST(results[i].data.size() == sizes[i % 4]);
        check_pattern(results[i].data.bytes());
    }
    BOOST_TEST(done.each_once());
    BOOST_TEST(n.owner.shutdown(10s));
    const auto s = n.owner.statistics();
    BOOST_TEST(s.leases_granted == gets / 4 * 3);  // inline answers take none
    BOOST_TEST(s.leases_released == s.leases_granted);
    BOOST_TEST(s.leases_active == 0u);
    BOOST_TEST(n.consumer.statistics().gets_answered == gets);
    BOOST_TEST(n.consumer.statistics().gets_failed == 0u);
}

BOOST_AUTO_TEST_CASE(node_gets_from_itself) {
    auto n = start_tcp_node(listening());
    const auto got = n.get(n.url_of(n.stage(payload(medium)).value())).value();
    check_pattern(got.data.bytes());
    BOOST_TEST(got.data.size() == medium);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(policies)

BOOST_AUTO_TEST_CASE(policy_never_is_the_reason) {
    tcp_nodes n;
    const auto from = n.stage(medium);
    const auto by_call = n.consumer.get(from, {.policy = path_policy::never}).value();
    BOOST_TEST(by_call.report.path == path::chunked);
    BOOST_TEST(by_call.report.reason == reason::policy);

    node_options o;
    o.policy = path_policy::never;
    auto by_node = start_tcp_node(o);
    BOOST_TEST(by_node.get(from)->report.reason == reason::policy);
}

BOOST_AUTO_TEST_CASE(
    contract_2_4_policy_require_without_a_device_is_an_error_that_names_the_reason) {
    tcp_nodes n;
    for (const std::size_t size : {std::size_t{0}, std::size_t{10}, medium})
        check_failure(n.consumer.get(n.stage(size), {.policy = path_policy::require}),
                      request_errc::path_not_available, "not_configured");
}

BOOST_AUTO_TEST_CASE(contract_3_3_kill_switch_is_the_reason_on_the_consumer_and_in_staging) {
    node_options off;
    off.rdma_disabled = true;
    tcp_nodes n(off, off);
    BOOST_TEST(n.consumer.get(n.stage(medium))->report.reason == reason::kill_switch);
    BOOST_TEST(!n.owner.rdma().usable);
    BOOST_TEST(n.owner.rdma().reason == reason::kill_switch);
    BOOST_TEST(n.owner.make_staging(10)->why_plain() == reason::kill_switch);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(refusals)

BOOST_AUTO_TEST_CASE(handle_of_another_owner_is_wrong_owner) {
    tcp_nodes n;
    auto other = start_tcp_node(listening());
    const auto there = other.stage(payload(10)).value();
    check_failure(n.consumer.get(n.owner.url_of(there)), connection_errc::wrong_owner,
                  n.owner.address()->to_string());
    check_failure(n.consumer.metadata(n.owner.url_of(there)), connection_errc::wrong_owner);
    BOOST_TEST(n.consumer.get(other.url_of(there)).has_value());
}

BOOST_AUTO_TEST_CASE(unknown_and_released_slots_are_not_found) {
    tcp_nodes n;
    check_failure(n.consumer.get(n.owner.url_of({n.owner.id(), 12345})), request_errc::not_found);
    const auto from = n.stage(medium);
    BOOST_TEST(n.consumer.get(from).has_value());
    BOOST_TEST(n.owner.release(from.handle).value() == 0u);
    check_failure(n.consumer.get(from), request_errc::not_found);
    check_failure(n.consumer.metadata(from), request_errc::not_found);
}

BOOST_AUTO_TEST_CASE(restarted_owner_on_the_same_port_is_another_owner) {
    auto consumer = start_tcp_node();
    auto first = std::make_optional(start_tcp_node(listening()));
    const auto from = first->url_of(first->stage(payload(medium)).value());
    BOOST_TEST(consumer.get(from).has_value());
    const auto id = first->id();
    first.reset();
    node_options o = small_arena();
    o.listen = from.address;
    auto second = start_node_on(nullptr, o).value();
    BOOST_TEST((second.id() != id));
    auto got = consumer.get(from);
    // The end of the old connection may have met this get on its way.
    if (!got && got.error().code == connection_errc::lost) got = consumer.get(from);
    check_failure(got, connection_errc::wrong_owner, from.address.to_string());
}

BOOST_AUTO_TEST_CASE(contract_9_2_refused_connection_names_the_address) {
    const raw_port nobody;
    auto consumer = start_tcp_node();
    check_failure(consumer.get({nobody.address(), any_handle()}), connection_errc::connect_failed,
                  nobody.address().to_string());
    check_failure(consumer.metadata({nobody.address(), any_handle()}),
                  connection_errc::connect_failed, nobody.address().to_string());
}

BOOST_AUTO_TEST_CASE(options_out_of_bounds_and_taken_ports_do_not_start) {
    node_options o;
    o.chunk_bytes = 0;
    check_failure(node::start(o), request_errc::invalid_argument, "chunk_bytes");
    o = {};
    o.peer_timeout = std::chrono::milliseconds::max();
    check_failure(node::start(o), request_errc::invalid_argument, "peer_timeout");
    const raw_port taken;
    taken.listen();
    o = small_arena();
    o.listen = taken.address();
    check_failure(node::start(o), request_errc::io, taken.address().to_string());
}

BOOST_AUTO_TEST_CASE(contract_4_1_lease_timeout_below_100_ms_or_four_retry_windows_is_refused) {
    BOOST_TEST(node_options{}.lease_timeout.count() == 30'000);
    const auto check = [](std::chrono::milliseconds lease, std::chrono::milliseconds retry,
                          bool valid) {
        node_options o;
        o.lease_timeout = lease;
        o.retry_window = retry;
        if (valid)
            BOOST_TEST(o.validate().has_value());
        else
            check_failure(o.validate(), request_errc::invalid_argument, "lease_timeout");
    };
    check(100ms, 10ms, true);
    check(99ms, 10ms, false);
    check(2000ms, 500ms, true);
    check(1999ms, 500ms, false);
}

BOOST_AUTO_TEST_SUITE_END()

/// An address where connects succeed and nothing is ever said.
struct silent_peer {
    silent_peer() { port.listen(); }
    [[nodiscard]] url target() const { return {port.address(), any_handle()}; }
    raw_port port;
};

/// One that greets the first connection and then says nothing more.
struct greeting_peer {
    greeting_peer() {
        port.listen();
        thread = std::thread([this] {
            const auto s = port.accept();
            if (!s.read_frame()) return;
            s.write(wire::frame{0, wire::hello{.node = any_handle().owner}});
            while (s.read_frame()) {
            }
        });
    }
    ~greeting_peer() { thread.join(); }  // when its consumer has gone
    [[nodiscard]] url target() const { return {port.address(), any_handle()}; }
    raw_port port;
    std::thread thread;
};

BOOST_AUTO_TEST_SUITE(deadlines)

template <class Peer>
void check_deadline() {
    const Peer peer;
    auto consumer = start_tcp_node();
    std::vector<std::byte> destination(100);
    const auto begin = std::chrono::steady_clock::now();
    const auto got = consumer.get_into(peer.target(), destination, {.deadline = 50ms});
    BOOST_TEST((std::chrono::steady_clock::now() - begin >= 50ms));
    check_failure(got, request_errc::deadline_exceeded);
    check_failure(consumer.get(peer.target(), {.deadline = 0ms}), request_errc::deadline_exceeded);
    check_failure(consumer.get(peer.target(), {.deadline = std::chrono::milliseconds::min()}),
                  request_errc::deadline_exceeded);
    const auto s = consumer.statistics();
    BOOST_TEST(s.gets_answered == 3u);
    BOOST_TEST(s.gets_failed == 3u);
    BOOST_TEST(consumer.shutdown(5s));
}

BOOST_AUTO_TEST_CASE(deadline_passes_while_the_peer_does_not_greet) {
    check_deadline<silent_peer>();
}

BOOST_AUTO_TEST_CASE(contract_2_2_deadline_passes_while_the_peer_does_not_answer) {
    check_deadline<greeting_peer>();
}

BOOST_AUTO_TEST_CASE(metadata_has_the_default_deadline) {
    const greeting_peer peer;
    node_options o;
    o.default_deadline = 50ms;
    auto consumer = start_tcp_node(o);
    check_failure(consumer.metadata(peer.target()), request_errc::deadline_exceeded);
}

BOOST_AUTO_TEST_CASE(handshake_timeout_ends_gets_of_a_peer_that_does_not_greet) {
    const silent_peer peer;
    node_options o;
    o.handshake_timeout = 50ms;
    auto consumer = start_tcp_node(o);
    check_failure(consumer.get(peer.target()), connection_errc::connect_failed, "does not answer");
}

BOOST_AUTO_TEST_CASE(furthest_deadline_is_no_overflow) {
    tcp_nodes n;
    constexpr auto furthest = std::chrono::milliseconds::max();
    BOOST_TEST(n.consumer.get(n.stage(medium), {.deadline = furthest})->data.size() == medium);
    BOOST_TEST(n.consumer.shutdown(furthest));
}

BOOST_AUTO_TEST_CASE(destination_in_use_is_refused_to_an_overlapping_get) {
    tcp_nodes n;
    const silent_peer peer;
    std::vector<std::byte> memory(3 * 4096);
    const auto middle = std::span(memory).subspan(4096, 4096);
    answers done;
    n.consumer.async_get_into(peer.target(), middle, {},
                              [&](error_code ec, const get_into_result&) { done.add(0, ec); });
    const auto from = n.stage(4096);
    const auto at = [&](std::size_t offset, std::size_t bytes) {
        return n.consumer.get_into(from, std::span(memory).subspan(offset, bytes));
    };
    check_failure(at(4096, 4096), request_errc::buffer_busy);
    check_failure(at(0, 3 * 4096), request_errc::buffer_busy);
    check_failure(at(1, 4096), request_errc::buffer_busy);
    check_failure(at(8191, 4096), request_errc::buffer_busy);
    BOOST_TEST(at(0, 4096)->bytes == 4096u);
    BOOST_TEST(at(8192, 4096)->bytes == 4096u);
    check_pattern(std::span(memory).first(4096));
    BOOST_TEST(done.count() == 0u);
    BOOST_TEST(n.consumer.shutdown(5s));
    BOOST_REQUIRE(done.wait_for(1));
    BOOST_TEST(done.code(0) == make_error_code(node_errc::stopped));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(staging_and_slots)

BOOST_AUTO_TEST_CASE(contract_1_3_staging_says_why_it_is_plain) {
    auto n = start_tcp_node(listening());
    BOOST_TEST(n.make_staging(10)->why_plain() == reason::not_configured);
    BOOST_TEST(!n.make_staging(10)->why_plain_detail().empty());
    BOOST_TEST(n.make_staging(10, false)->why_plain() == reason::plain);
    const auto empty = n.make_staging(0).value();
    BOOST_TEST(empty.why_plain() == reason::zero_length);
    BOOST_TEST(empty.bytes().empty());
    BOOST_TEST(!empty.pinned());
}

BOOST_AUTO_TEST_CASE(staging_that_was_moved_from_stages_nothing) {
    tcp_nodes n;
    auto first = n.owner.make_staging(5000).value();
    auto second = std::move(first);
    fill_pattern(second.bytes());
    BOOST_TEST(first.bytes().empty());  // NOLINT(bugprone-use-after-move)
    check_failure(n.owner.stage(std::move(first)), request_errc::invalid_argument);
    const auto h = n.owner.stage(std::move(second)).value();
    check_pattern(n.consumer.get(n.owner.url_of(h))->data.bytes());
    check_failure(n.owner.stage(staging{}), request_errc::invalid_argument);
}

BOOST_AUTO_TEST_CASE(staging_that_cannot_be_had_is_out_of_memory) {
    auto n = start_tcp_node();
    check_failure(n.make_staging(std::size_t{1} << 62), node_errc::out_of_memory);
}

BOOST_AUTO_TEST_CASE(contract_1_3_stage_pinned_without_a_device_serves_all_the_same) {
    tcp_nodes n;
    const auto h = n.owner.stage_pinned(payload(medium)).value();
    BOOST_TEST(!n.owner.metadata(h)->pinned);
    check_pattern(n.consumer.get(n.owner.url_of(h))->data.bytes());
}

BOOST_AUTO_TEST_CASE(contract_1_4_slot_lives_as_long_as_a_reference) {
    tcp_nodes n;
    const auto from = n.stage(medium);
    BOOST_TEST(n.owner.add_reference(from.handle).value() == 2u);
    BOOST_TEST(n.owner.statistics().slots == 1u);
    BOOST_TEST(n.owner.release(from.handle).value() == 1u);
    BOOST_TEST(n.consumer.get(from).has_value());
    BOOST_TEST(n.owner.release(from.handle).value() == 0u);
    BOOST_TEST(n.consumer.get(from).has_error());
    check_failure(n.owner.release(from.handle), request_errc::not_found);
    check_failure(n.owner.add_reference(from.handle), request_errc::not_found);
    check_failure(n.owner.metadata(from.handle), request_errc::not_found);
}

BOOST_AUTO_TEST_CASE(slot_of_another_owner_is_not_found_here) {
    tcp_nodes n;
    auto foreign = n.stage(10).handle;
    foreign.owner = n.consumer.id();
    check_failure(n.owner.metadata(foreign), request_errc::not_found);
    check_failure(n.owner.add_reference(foreign), request_errc::not_found);
    check_failure(n.owner.release(foreign), request_errc::not_found);
}

BOOST_AUTO_TEST_CASE(contract_1_4_metadata_is_the_same_here_and_there) {
    tcp_nodes n;
    const auto from = n.stage(medium);
    BOOST_REQUIRE(n.owner.add_reference(from.handle));
    for (const auto& m :
         {n.owner.metadata(from.handle).value(), n.consumer.metadata(from).value()}) {
        BOOST_TEST(m.bytes == medium);
        BOOST_TEST(m.references == 2u);
        BOOST_TEST(m.leases == 0u);
        BOOST_TEST(!m.pinned);
    }
}

BOOST_AUTO_TEST_CASE(contract_1_4_release_drops_no_reference_that_somebody_else_holds) {
    tcp_nodes n;
    const auto from = n.stage(medium);
    BOOST_TEST(n.consumer.add_reference(from).value() == 2u);
    BOOST_TEST(n.owner.add_reference(from.handle).value() == 3u);
    BOOST_TEST(n.owner.release(from.handle).value() == 2u);
    BOOST_TEST(n.owner.release(from.handle).value() == 1u);
    check_failure(n.owner.release(from.handle), request_errc::not_found);
    BOOST_TEST(n.consumer.get(from).has_value());
    BOOST_TEST(n.consumer.release(from).value() == 0u);
    check_failure(n.consumer.get(from), request_errc::not_found);
}

/// Another thread stages, and asks by hand for what it was told, while a turn of the owner's is
/// about to read: what was staged comes first.
BOOST_AUTO_TEST_CASE(contract_1_1_handle_that_was_told_is_found_by_what_a_turn_reads_later) {
    boost::asio::io_context context;
    const auto running = [&](auto&& what) {
        std::thread runner([&] { context.run(); });
        what();
        context.stop();
        runner.join();
        context.restart();
    };
    std::optional<node> owner(node::start(listening(), context).value());
    const auto peer = connect_raw(*owner->address());
    running([&] {
        peer.write(wire::frame{0, wire::hello{.node = node_id{7}}});
        BOOST_TEST(peer.read_frame().has_value());
    });
    peer.write(wire::frame{1, wire::ping{}});  // what the turn is for
    boost::asio::post(context, [&] {
        handle h;
        std::thread([&] { h = owner->stage(payload(100)).value(); }).join();
        wire::acquire a;
        a.slot = h.slot;
        a.deadline_ms = 60'000;
        peer.write(wire::frame{2, a});
    });
    running([&] {
        BOOST_TEST(peer.read_frame().has_value());  // the pong
        const auto answer = peer.read_frame();
        BOOST_REQUIRE(answer);
        BOOST_TEST((std::get<wire::acquire_reply>(answer->frame.body).answer ==
                    wire::answer::inline_answer));
        BOOST_TEST(owner->shutdown(5s));
    });
}

BOOST_AUTO_TEST_CASE(staging_of_another_node_is_refused) {
    auto one = start_tcp_node();
    auto other = start_tcp_node();
    check_failure(other.stage(one.make_staging(10).value()), request_errc::invalid_argument,
                  "another node");
    BOOST_TEST(one.shutdown(5s));
    check_failure(one.make_staging(10), node_errc::stopped);
}

BOOST_AUTO_TEST_CASE(url_of_a_node_that_does_not_listen_is_a_broken_precondition) {
    const auto n = start_tcp_node();
    BOOST_CHECK_THROW(static_cast<void>(n.url_of(any_handle())), std::logic_error);
}

BOOST_AUTO_TEST_CASE(contract_1_4_slot_released_under_a_lease_serves_it_to_the_end) {
    // A consumer by hand, so that the lease is known to be active.
    auto owner = start_tcp_node(listening());
    const auto h = owner.stage(payload(5000)).value();
    const auto peer = connect_raw(*owner.address());
    peer.write(wire::frame{0, wire::hello{.node = node_id{7}}});
    BOOST_REQUIRE(peer.read_frame());
    wire::acquire a;
    a.slot = h.slot;
    a.deadline_ms = 60'000;
    peer.write(wire::frame{1, a});
    const auto granted = peer.read_frame();
    BOOST_REQUIRE(granted);
    const auto lease = std::get<wire::acquire_reply>(granted->frame.body).lease;
    BOOST_TEST(owner.release(h).value() == 0u);
    BOOST_TEST(owner.statistics().slots == 1u);
    BOOST_TEST(owner.statistics().leases_active == 1u);
    check_failure(owner.metadata(h), request_errc::not_found);
    peer.write(wire::frame{2, wire::pull{lease, 0, 5000}});
    const auto chunk = peer.read_frame();
    BOOST_REQUIRE(chunk);
    BOOST_TEST(chunk->payload.size() == 5000u);
    check_pattern(chunk->payload);
    peer.write(wire::frame{0, wire::detach{{lease}}});
    peer.write(wire::frame{3, wire::ping{}});
    BOOST_REQUIRE(peer.read_frame());  // the pong comes after the detach took effect
    BOOST_TEST(owner.statistics().slots == 0u);
    BOOST_TEST(owner.statistics().leases_released == 1u);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(endings)

BOOST_AUTO_TEST_CASE(calls_after_shutdown_answer_stopped) {
    tcp_nodes n;
    const auto from = n.stage(medium);
    BOOST_TEST(n.consumer.get(from).has_value());
    BOOST_TEST(n.consumer.shutdown(5s));
    BOOST_TEST(n.consumer.shutdown(5s));
    const error_code stopped = node_errc::stopped;
    std::vector<std::byte> memory(medium);
    check_failure(n.consumer.get(from), stopped);
    check_failure(n.consumer.get_pinned(from), stopped);
    check_failure(n.consumer.get_into(from, memory), stopped);
    check_failure(n.consumer.metadata(from), stopped);
    check_failure(n.consumer.register_region(memory), stopped);
    BOOST_TEST(n.consumer.statistics().gets_answered == 1u);  // as of its end

    answers done;
    n.consumer.async_get(from, {}, [&](error_code ec, const get_result&) { done.add(0, ec); });
    n.consumer.async_metadata(from, [&](error_code ec, slot_metadata) { done.add(1, ec); });
    n.consumer.async_connect(from.address, [&](error_code ec, node_id) { done.add(2, ec); });
    BOOST_REQUIRE(done.wait_for(3));
    for (std::size_t i = 0; i < 3; ++i) BOOST_TEST(done.code(i) == stopped);

    BOOST_TEST(n.owner.shutdown(5s));
    check_failure(n.owner.stage(payload(10)), stopped);
    check_failure(n.owner.metadata(from.handle), stopped);
    check_failure(n.owner.add_reference(from.handle), stopped);
    check_failure(n.owner.release(from.handle), stopped);
    BOOST_TEST((n.owner.address() == from.address));
}

BOOST_AUTO_TEST_CASE(shutdown_of_the_owner_answers_every_get_once) {
    node_options o;
    o.chunk_bytes = 65536;  // many round trips, so that it comes in between
    tcp_nodes n({}, o);
    const auto from = n.stage(large);
    constexpr std::size_t gets = 40;
    answers done;
    std::atomic<int> wrong{0};
    for (std::size_t i = 0; i < gets; ++i)
        n.consumer.async_get(from, {}, [&, i](error_code ec, const get_result& r) {
            if (!ec && pattern_mismatch(r.data.bytes()) != large) ++wrong;
            done.add(i, ec);
        });
    BOOST_REQUIRE(done.wait_for(1));
    BOOST_TEST(n.owner.shutdown(2s));
    BOOST_REQUIRE(done.wait_for(gets));
    BOOST_TEST(done.each_once());
    BOOST_TEST(wrong == 0);
    for (std::size_t i = 0; i < gets; ++i) {
        const auto ec = done.code(i);
        BOOST_TEST((!ec || ec == connection_errc::lost || ec == lease_errc::lost ||
                    ec == request_errc::refused),
                   ec.message());
    }
    check_lease_invariant(n.owner);
    const auto s = n.owner.statistics();
    BOOST_TEST(s.leases_active == 0u);
    BOOST_TEST(s.slots == 0u);
}

BOOST_AUTO_TEST_CASE(contract_8_1_shutdown_lets_admitted_pulls_finish) {
    tcp_nodes n;
    const auto from = n.stage(large);
    answers done;
    bool good = false;
    n.consumer.async_get(from, {}, [&](error_code ec, const get_result& r) {
        good = !ec && is_pattern(r.data.bytes());
        done.add(0, ec);
    });
    // Its lease is granted once the slot has one.
    while (n.owner.metadata(from.handle)->leases == 0 && done.count() == 0)
        std::this_thread::yield();
    BOOST_TEST(n.owner.shutdown(60s));
    BOOST_REQUIRE(done.wait_for(1));
    BOOST_TEST(good);
}

BOOST_AUTO_TEST_CASE(shutdown_of_the_consumer_answers_every_get_once) {
    tcp_nodes n;
    const silent_peer peer;
    const auto from = n.stage(large);
    constexpr std::size_t gets = 40;
    answers done;
    for (std::size_t i = 0; i < gets; ++i)
        n.consumer.async_get(i % 2 == 0 ? from : peer.target(), {},
                             [&, i](error_code ec, const get_result&) { done.add(i, ec); });
    BOOST_TEST(n.consumer.shutdown(5s));
    // Handlers ran before it returned.
    BOOST_TEST(done.count() == gets);
    BOOST_TEST(done.each_once());
    for (std::size_t i = 1; i < gets; i += 2)
        BOOST_TEST(done.code(i) == make_error_code(node_errc::stopped));
    const auto s = n.consumer.statistics();
    BOOST_TEST(s.gets_answered == gets);
}

BOOST_AUTO_TEST_CASE(contract_4_5_shutdown_tells_the_owner_of_leases_that_are_over) {
    tcp_nodes n;
    BOOST_TEST(n.consumer.get(n.stage(medium)).has_value());
    BOOST_TEST(n.consumer.shutdown(5s));  // within the millisecond for which lease ends are kept
    BOOST_TEST(n.owner.shutdown(60s));
    const auto s = n.owner.statistics();
    BOOST_TEST(s.leases_released == 1u);
    BOOST_TEST(s.leases_expired == 0u);
}

BOOST_AUTO_TEST_CASE(node_destroyed_with_gets_running_answers_them) {
    tcp_nodes n;
    const silent_peer peer;
    answers done;
    {
        auto doomed = start_tcp_node();
        for (std::size_t i = 0; i < 10; ++i)
            doomed.async_get(peer.target(), {},
                             [&, i](error_code ec, const get_result&) { done.add(i, ec); });
    }
    BOOST_TEST(done.count() == 10u);
    BOOST_TEST(done.each_once());
}

BOOST_AUTO_TEST_CASE(node_moves_and_goes_on) {
    tcp_nodes n;
    const auto from = n.stage(medium);
    auto moved = std::move(n.consumer);
    BOOST_TEST(moved.get(from)->data.size() == medium);
    moved = start_tcp_node();
    BOOST_TEST(moved.get(from)->data.size() == medium);
}

BOOST_AUTO_TEST_CASE(results_outlive_their_node) {
    std::optional<get_result> got;
    {
        tcp_nodes n;
        got = n.consumer.get(n.stage(medium)).value();
    }
    check_pattern(got->data.bytes());
    BOOST_TEST(got->data.size() == medium);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_CASE(start_without_a_device_serves_over_tcp) {
    // On whatever this machine has: with the switch off it is TCP either way.
    auto o = listening();
    o.rdma_disabled = true;
    auto n = node::start(o).value();
    BOOST_TEST(n.rdma().reason == reason::kill_switch);
    check_pattern(n.get(n.url_of(n.stage(payload(medium)).value()))->data.bytes());
}

}  // namespace
}  // namespace rvget::test
