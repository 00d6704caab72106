// One control connection against a raw socket that does what peers do.

#include <thread>

#include <boost/test/unit_test.hpp>

#include "engine/runtime_fixture.hpp"

namespace rvget::test {
namespace {

using engine::control_link;

/// The sizes at which buffers begin and end.
std::vector<frame_bytes> frames_of_all_sizes() {
    return frames_of_sizes({1, 20, 4088, 65535, 65536},
                           {0, 1, 7, 4095, 4096, 4097, 65536, 131080, 1 << 20});
}

struct link_fixture {
    explicit link_fixture(const engine::runtime_options& options = {}) : e(options) {
        peer = e.raw_peer(events, link);
    }
    bool until_closed() {
        return e.until([&] { return events->closed > 0; });
    }
    /// Everything on its way has been handled.
    void settle() {
        e.on_strand([] {});
    }

    embedded e;
    std::shared_ptr<recorder> events = std::make_shared<recorder>();
    std::shared_ptr<control_link> link;
    socket_owner peer;
};

void check_received(const link_fixture& f, const std::vector<frame_bytes>& sent) {
    BOOST_REQUIRE_EQUAL(f.events->frames.size(), sent.size());
    for (std::size_t i = 0; i < sent.size(); ++i) {
        BOOST_TEST((f.events->frames[i] == sent[i]), "frame " << i << " arrived as it was sent");
    }
    BOOST_TEST(!f.events->payload_beside_destination);
    BOOST_TEST(f.events->closed == 0);
}

BOOST_AUTO_TEST_CASE(frame_of_any_size_in_random_fragments_arrives_whole) {
    link_fixture f;
    const auto frames = frames_of_all_sizes();
    std::thread writer([&] {
        bytes stream;
        for (const auto& frame : frames) {
            const auto wire = on_the_wire(frame);
            stream.insert(stream.end(), wire.begin(), wire.end());
        }
        std::minstd_rand generator(3);
        for (std::span<const std::byte> left = stream; !left.empty();) {
            // Mostly large pieces, some runs of tiny ones.
            const std::size_t most = generator() % 8 == 0 ? 16 : 200'000;
            const auto piece =
                left.first(std::min<std::size_t>(left.size(), 1 + generator() % most));
            f.peer.write(piece);
            left = left.subspan(piece.size());
        }
    });
    const bool all = f.e.until([&] { return f.events->frames.size() == frames.size(); });
    writer.join();
    BOOST_REQUIRE(all);
    check_received(f, frames);
}

BOOST_AUTO_TEST_CASE(frame_dribbled_byte_by_byte_arrives_whole) {
    link_fixture f;
    const std::vector<frame_bytes> frames{{{std::byte{1}, std::byte{9}}, random_bytes(30, 1), true},
                                          {{std::byte{2}}, random_bytes(5, 2), false},
                                          {{std::byte{3}, std::byte{4}, std::byte{5}}, {}, false}};
    for (const auto& frame : frames) {
        const auto stream = on_the_wire(frame);
        for (const std::byte& b : stream) {
            f.peer.write({&b, 1});
            f.e.context.restart();
            f.e.context.run_one_for(5s);  // the byte has been noticed
        }
    }
    BOOST_REQUIRE(f.e.until([&] { return f.events->frames.size() == frames.size(); }));
    check_received(f, frames);
}

BOOST_AUTO_TEST_CASE(frame_of_any_size_sent_reaches_a_slow_reader_whole) {
    link_fixture f;
    const auto frames = frames_of_all_sizes();
    std::size_t total = 0;
    for (const auto& frame : frames) total += on_the_wire(frame).size();
    bytes received;
    std::thread reader([&] {
        std::minstd_rand generator(5);
        while (received.size() < total) {
            const auto part = f.peer.read(
                std::min<std::size_t>(total - received.size(), 1 + generator() % 100'000));
            if (part.empty()) break;
            received.insert(received.end(), part.begin(), part.end());
        }
    });
    f.e.on_strand([&] {
        for (const auto& frame : frames) f.link->send(frame.head, {frame.payload, nullptr});
        BOOST_TEST(f.link->queued_bytes() == total);
    });
    const bool written = f.e.until([&] { return f.link->queued_bytes() == 0; });
    if (!written) f.peer.reset();
    reader.join();
    BOOST_REQUIRE(written);
    bytes expected;
    for (const auto& frame : frames) {
        const auto wire = on_the_wire(frame);
        expected.insert(expected.end(), wire.begin(), wire.end());
    }
    BOOST_TEST((received == expected));
}

BOOST_AUTO_TEST_CASE(payload_sent_is_kept_until_written_and_no_longer) {
    link_fixture f;
    auto memory = std::make_shared<bytes>(random_bytes(std::size_t{24} << 20, 1));
    const std::weak_ptr<bytes> watch = memory;
    f.e.on_strand([&] {
        for (int i = 0; i < 4; ++i) {
            const std::span<const std::byte> quarter(memory->data() + i * (6 << 20), 6 << 20);
            f.link->send({std::byte{1}}, {quarter, memory});
        }
        memory.reset();
    });
    BOOST_TEST(f.link->queued_bytes() > 0u);  // beyond what the kernel takes from us
    BOOST_TEST(!watch.expired());
    std::size_t got = 0;
    std::thread reader([&] { got = f.peer.read(4 * (9 + (6 << 20))).size(); });
    const bool written = f.e.until([&] { return f.link->queued_bytes() == 0; });
    if (!written) f.peer.reset();
    reader.join();
    BOOST_TEST(written);
    BOOST_TEST(got == 4u * (9 + (6 << 20)));
    BOOST_TEST(watch.expired());
}

BOOST_AUTO_TEST_CASE(peer_that_asks_without_reading_is_not_read_from) {
    link_fixture f;
    constexpr std::size_t questions = 60'000;
    const bytes answer(1000, std::byte{7});
    std::size_t most = 0;
    f.events->on_each = [&] {
        f.link->send(answer);
        most = std::max(most, f.link->queued_bytes());
    };
    std::thread writer([&] {
        const auto question = on_the_wire({{std::byte{0}}, {}, false});
        bytes all;
        for (std::size_t i = 0; i < questions; ++i) {
            all.insert(all.end(), question.begin(), question.end());
        }
        f.peer.write(all);
    });
    const bool filled = f.e.until([&] { return most >= 4096 * (8 + answer.size()); });
    std::size_t got = 0;
    std::thread reader([&] { got = f.peer.read(questions * (8 + answer.size())).size(); });
    const bool all = filled && f.e.until([&] { return f.events->frames.size() == questions; });
    const bool written = all && f.e.until([&] { return f.link->queued_bytes() == 0; });
    if (!written) f.peer.reset();
    writer.join();
    reader.join();
    BOOST_TEST(written);
    BOOST_TEST(got == questions * (8 + answer.size()));
    // What one read brought may come on top.
    BOOST_TEST(most < questions / 2 * (8 + answer.size()));
}

BOOST_AUTO_TEST_CASE(destination_forgotten_half_way_is_not_written_again) {
    link_fixture f;
    const frame_bytes frame{{std::byte{1}}, random_bytes(100'000, 4), true};
    const auto stream = on_the_wire(frame);
    f.peer.write(std::span(stream).first(50'000));
    BOOST_REQUIRE(f.e.until([&] { return !f.events->destination.empty(); }));
    const bytes after = on_the_wire({{std::byte{2}}, {std::byte{8}}, false});
    bytes before;
    f.e.on_strand([&] {
        f.link->forget_destination(f.events->destination);
        before = f.events->destination;
    });
    f.peer.write(std::span(stream).subspan(50'000));
    f.peer.write(after);
    BOOST_REQUIRE(f.e.until([&] { return f.events->frames.size() == 2; }));
    BOOST_TEST((f.events->frames[0].payload == before));  // as it was; its own came empty
    BOOST_TEST(!f.events->payload_beside_destination);
    BOOST_TEST((f.events->frames[1] == frame_bytes{{std::byte{2}}, {std::byte{8}}, false}));
}

BOOST_AUTO_TEST_CASE(destination_of_a_wrong_size_ends_the_link) {
    link_fixture f;
    f.events->misfit = 1;
    f.peer.write(on_the_wire({{std::byte{1}}, random_bytes(10, 1), true}));
    BOOST_REQUIRE(f.until_closed());
    BOOST_TEST(f.events->closed_why.code == make_error_code(node_errc::internal));
    BOOST_TEST(f.events->frames.empty());
}

void check_refused(std::uint32_t head_bytes, std::uint32_t payload_bytes) {
    link_fixture f;
    bytes prefix(8);
    for (unsigned i = 0; i < 4; ++i) {
        prefix[i] = static_cast<std::byte>(head_bytes >> (8 * i));
        prefix[4 + i] = static_cast<std::byte>(payload_bytes >> (8 * i));
    }
    f.peer.write(prefix);
    BOOST_REQUIRE(f.until_closed());
    BOOST_TEST(f.events->closed_why.code == make_error_code(connection_errc::protocol));
    BOOST_TEST(f.events->closed_why.detail.starts_with(f.link->peer_name()));
    BOOST_TEST(f.events->closed_why.detail.size() > f.link->peer_name().size() + 30);
    BOOST_TEST(f.peer.read(1).empty());
    f.settle();
    BOOST_TEST(f.events->closed == 1);
    BOOST_TEST(f.events->frames.empty());
}

BOOST_AUTO_TEST_CASE(prefix_of_garbage_ends_the_link) { check_refused(0x20544547, 0x6e692f20); }
BOOST_AUTO_TEST_CASE(prefix_with_an_empty_head_ends_the_link) { check_refused(0, 0); }
BOOST_AUTO_TEST_CASE(prefix_with_an_oversized_head_ends_the_link) {
    check_refused(wire::max_head_bytes + 1, 0);
}
BOOST_AUTO_TEST_CASE(prefix_with_an_oversized_payload_ends_the_link) {
    check_refused(1, wire::max_payload_bytes + 1);
}

BOOST_AUTO_TEST_CASE(frame_before_garbage_is_still_delivered) {
    link_fixture f;
    bytes stream = on_the_wire({{std::byte{2}}, {std::byte{3}}, false});
    stream.resize(stream.size() + 8);
    f.peer.write(stream);
    BOOST_REQUIRE(f.until_closed());
    BOOST_TEST(f.events->frames.size() == 1u);
}

BOOST_AUTO_TEST_CASE(peer_reset_is_told_once_with_its_cause) {
    link_fixture f;
    f.e.on_strand([&] { f.link->send({std::byte{1}}, {}); });
    f.peer.reset();
    BOOST_REQUIRE(f.until_closed());
    f.e.on_strand([&] {
        f.link->send({std::byte{1}}, {});
        f.link->close();
        f.link->close(true);
    });
    f.settle();
    BOOST_TEST(f.events->closed == 1);
    BOOST_TEST(f.events->closed_why.code == make_error_code(connection_errc::lost));
    BOOST_TEST(f.events->closed_why.detail ==
               "the connection to " + f.link->peer_name() + " broke: Connection reset by peer");
}

BOOST_AUTO_TEST_CASE(peer_gone_in_the_middle_of_a_frame_is_said_so) {
    link_fixture f;
    const auto stream = on_the_wire({{std::byte{1}}, random_bytes(100, 1), true});
    f.peer.write(std::span(stream).first(50));
    f.peer.close();
    BOOST_REQUIRE(f.until_closed());
    BOOST_TEST(f.events->closed_why.code == make_error_code(connection_errc::lost));
    BOOST_TEST(f.events->closed_why.detail ==
               f.link->peer_name() + " closed the connection in the middle of a frame");
}

BOOST_AUTO_TEST_CASE(peer_that_never_reads_ends_the_link_within_the_peer_timeout) {
    engine::runtime_options options;
    options.peer_timeout = 1s;
    link_fixture f(options);
    const bytes much(std::size_t{16} << 20);
    const auto begun = std::chrono::steady_clock::now();
    f.e.on_strand([&] {
        for (int i = 0; i < 4; ++i) f.link->send({std::byte{1}}, {much, nullptr});
    });
    BOOST_REQUIRE(f.until_closed());
    BOOST_TEST((std::chrono::steady_clock::now() - begun < 10s));
    BOOST_TEST(f.events->closed_why.code == make_error_code(connection_errc::lost));
    BOOST_TEST(f.link->queued_bytes() == 0u);
}

BOOST_AUTO_TEST_CASE(close_without_flush_ends_at_once_and_tells_later) {
    link_fixture f;
    f.e.on_strand([&] {
        f.link->send({std::byte{1}}, {});
        f.link->close();
        BOOST_TEST(f.events->closed == 0);
        BOOST_TEST(f.link->queued_bytes() == 0u);
    });
    BOOST_REQUIRE(f.until_closed());
    BOOST_TEST(f.peer.read(1).empty());
    f.settle();
    BOOST_TEST(f.events->closed == 1);
    BOOST_TEST(f.events.use_count() == 1);
}

BOOST_AUTO_TEST_CASE(close_with_flush_writes_what_is_queued_although_bytes_are_unread) {
    link_fixture f;
    const bytes much = random_bytes(std::size_t{16} << 20, 1);
    f.peer.write(on_the_wire({{std::byte{2}}, {}, false}));  // would make a plain close a reset
    f.e.on_strand([&] {
        f.link->send({std::byte{1}}, {much, nullptr});
        f.link->close(true);
        f.link->send({std::byte{7}}, {});  // too late
    });
    bytes got;
    std::thread reader([&] {
        got = f.peer.read(much.size() + 1000);
        f.peer.close();
    });
    const bool closed = f.until_closed();
    reader.join();
    BOOST_REQUIRE(closed);
    BOOST_TEST((got == on_the_wire({{std::byte{1}}, much, false})));
    BOOST_TEST(f.events->frames.empty());
    BOOST_TEST(f.events->closed == 1);
}

BOOST_AUTO_TEST_CASE(close_with_flush_does_not_wait_for_ever) {
    engine::runtime_options options;
    options.peer_timeout = 1s;
    link_fixture f(options);
    f.e.on_strand([&] { f.link->close(true); });
    BOOST_TEST(f.until_closed());  // the peer never closes its side
}

BOOST_AUTO_TEST_CASE(link_closed_in_its_own_callback_delivers_nothing_more) {
    link_fixture f;
    f.events->on_each = [&] { f.link->close(); };
    const auto one = on_the_wire({{std::byte{2}}, {std::byte{3}}, false});
    bytes two = one;
    two.insert(two.end(), one.begin(), one.end());
    f.peer.write(two);
    BOOST_REQUIRE(f.until_closed());
    f.settle();
    BOOST_TEST(f.events->frames.size() == 1u);
    BOOST_TEST(f.events->closed == 1);
}

BOOST_AUTO_TEST_CASE(link_dropped_by_its_user_lives_until_closed) {
    link_fixture f;
    f.link.reset();
    f.peer.write(on_the_wire({{std::byte{2}}, {}, false}));
    BOOST_TEST(f.e.until([&] { return f.events->frames.size() == 1; }));
    f.peer.close();
    BOOST_TEST(f.until_closed());
    BOOST_TEST(f.events.use_count() == 1);
}

BOOST_AUTO_TEST_CASE(stop_tells_open_links_once_and_link_may_outlive_all) {
    std::shared_ptr<control_link> link;
    auto events = std::make_shared<recorder>();
    {
        embedded e;
        const auto peer = e.raw_peer(events, link);
        e.on_strand([&] { link->send({std::byte{1}}, {}); });
        e.rt.stop();
        BOOST_TEST(events->closed == 1);
        BOOST_TEST(events->closed_why.code == make_error_code(node_errc::stopped));
        e.context.restart();
        e.context.run();
        BOOST_TEST(e.context.stopped());
    }
    link->send({std::byte{1}}, {});
    link->close();
    BOOST_TEST(events->closed == 1);
    BOOST_TEST(events.use_count() == 1);
    BOOST_TEST(link->peer_address() == "127.0.0.1");
}

}  // namespace
}  // namespace rvget::test
