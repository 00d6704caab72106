// The soft ConnectX alone, driven by hand: it does what a device would, and says so where a driver
// breaks a rule.

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <string>

#include "softmlx5/bench.hpp"

namespace softmlx5 {

using testing::address_of;
using testing::bench;
using testing::hand;
using testing::high;
using testing::join;
using testing::low;
using testing::words;

namespace {

std::string all_rules(device& soft) {
    std::string text;
    for (const auto& v : soft.violations().all()) text += v.rule + ": " + v.text + "\n";
    return text;
}

void check_clean(bench& b) { BOOST_TEST(all_rules(b.soft) == ""); }

bool same(const std::byte* a, const std::byte* b, std::size_t bytes) {
    return std::equal(a, a + bytes, b);
}

}  // namespace

BOOST_AUTO_TEST_CASE(read_of_one_piece_moves_the_bytes_and_completes) {
    bench b;
    b.left.post(b.read(100));
    const auto done = b.left.take();
    BOOST_TEST(done.code == 0);
    BOOST_TEST(done.operation == 0x10);
    BOOST_TEST(done.bytes == 100U);
    BOOST_TEST(done.counter == 0);
    BOOST_TEST(done.queue_pair == b.left.number);
    BOOST_TEST(done.user_index == 0x77U);
    BOOST_TEST(same(b.here.at.get(), b.there.at.get(), 100));
    BOOST_TEST(std::to_integer<int>(b.here.at.get()[100]) == 0);
    check_clean(b);
}

BOOST_AUTO_TEST_CASE(read_of_several_pieces_wraps_the_ring_at_every_offset) {
    bench b;
    for (int i = 0; i < 40; ++i) {
        std::fill_n(b.here.at.get(), 512, std::byte{0});
        // Six pieces: 8 units, 2 blocks; then a NOP, so that the start moves through the ring.
        words request = join({b.left.control(0x10, 8), b.remote(0)});
        for (std::uint32_t piece = 0; piece < 6; ++piece) {
            request = join({request, b.data(piece * 50, 50)});
        }
        b.left.post(request);
        BOOST_TEST(b.left.take().code == 0);
        BOOST_TEST(same(b.here.at.get(), b.there.at.get(), 300));
        b.left.post(b.left.control(0, 1));
        BOOST_TEST(b.left.take().operation == 0);
    }
    check_clean(b);
}

BOOST_AUTO_TEST_CASE(unsignalled_request_completes_silently) {
    bench b;
    b.left.post(b.read(64, 0));
    BOOST_TEST(b.left.take().code == 0xff);
    b.left.post(b.read(64));
    BOOST_TEST(b.left.take().counter == 1);
    BOOST_TEST(b.left.take().code == 0xff);
    check_clean(b);
}

BOOST_AUTO_TEST_CASE(write_with_immediate_moves_bytes_and_takes_a_receive) {
    bench b;
    std::fill_n(b.here.at.get(), 64, std::byte{0x5a});
    b.right.receive(address_of(b.there.at.get()) + 4096, 64, b.there_key);
    b.left.post(join({b.left.control(0x09, 3, 8, 0xabcd), b.remote(128), b.data(0, 64)}));
    BOOST_TEST(b.left.take().operation == 0x09);
    const auto got = b.right.take();
    BOOST_TEST(got.code == 1);
    BOOST_TEST(got.immediate == 0xabcdU);
    BOOST_TEST(got.bytes == 64U);
    BOOST_TEST(same(b.there.at.get() + 128, b.here.at.get(), 64));
    check_clean(b);
}

BOOST_AUTO_TEST_CASE(send_inline_that_wraps_arrives_whole) {
    bench b;
    for (int i = 0; i < 40; ++i) {
        std::fill_n(b.there.at.get() + 4096, 128, std::byte{0});
        b.right.receive(address_of(b.there.at.get()) + 4096, 128, b.there_key);
        // 100 bytes and their count: 7 units after the control segment.
        words data{0x80000000 | 100};
        for (std::uint32_t w = 0; w < 27; ++w) data.push_back(w * 0x01010101);
        b.left.post(join({b.left.control(0x0b, 8, 8 | 2, 0x1234), data}));
        BOOST_TEST(b.left.take().code == 0);
        const auto got = b.right.take();
        BOOST_TEST(got.code == 3);
        BOOST_TEST(got.solicited);
        BOOST_TEST(got.bytes == 100U);
        BOOST_TEST(got.immediate == 0x1234U);
        BOOST_TEST(load32(b.there.at.get() + 4096 + 96) == 24U * 0x01010101);
        BOOST_TEST(load32(b.there.at.get() + 4096 + 100) == 0U);
        b.left.post(b.left.control(0, 1));
        b.left.take();
    }
    check_clean(b);
}

BOOST_AUTO_TEST_CASE(atomics_change_the_word_and_return_what_it_was) {
    bench b;
    auto* word = reinterpret_cast<std::uint64_t*>(b.there.at.get());
    auto* answer = reinterpret_cast<std::uint64_t*>(b.here.at.get());
    *word = 40;
    b.left.post(
        join({b.left.control(0x12, 4), b.remote(0), words{0, 2, 0xee, 0xee}, b.data(0, 8)}));
    BOOST_TEST(b.left.take().bytes == 8U);
    BOOST_TEST(*word == 42U);
    BOOST_TEST(*answer == 40U);
    b.left.post(join({b.left.control(0x11, 4), b.remote(0), words{0, 7, 0, 42}, b.data(0, 8)}));
    BOOST_TEST(b.left.take().code == 0);
    BOOST_TEST(*word == 7U);
    BOOST_TEST(*answer == 42U);
    b.left.post(join({b.left.control(0x11, 4), b.remote(0), words{0, 9, 0, 42}, b.data(0, 8)}));
    BOOST_TEST(b.left.take().code == 0);
    BOOST_TEST(*word == 7U);
    BOOST_TEST(*answer == 7U);
    check_clean(b);
}

namespace {

struct malformed {
    std::string rule;
    words request;
};

std::vector<malformed> malformed_requests(const bench& b) {
    const auto good = b.read(64);
    const auto with = [&](std::size_t word, std::uint32_t value) {
        auto changed = good;
        changed[word] = value;
        return changed;
    };
    const auto number = b.left.number;
    return {
        {"wqe.opmod", with(0, 0x01000010)},
        {"wqe.index", with(0, 5 << 8 | 0x10)},
        {"wqe.opcode", with(0, 0x0f)},
        {"wqe.reserved", with(1, number << 8 | 0x43)},
        {"wqe.signature", with(2, 0x01000008)},
        {"wqe.reserved", with(2, 0x00010008)},
        {"wqe.reserved", with(2, 0x09)},
        {"wqe.reserved", with(2, 0x18)},
        {"wqe.fence", with(2, 0x48)},
        {"wqe.fence", with(2, 0xe8)},
        {"wqe.completion_mode", with(2, 0x0c)},
        {"wqe.completion_mode", with(2, 0x04)},
        {"wqe.reserved", with(7, 1)},
        {"wqe.zero_length", with(8, 0)},
        {"wqe.inline", with(8, 0x80000004)},
        {"wqe.length", with(1, number << 8 | 1)},
        {"wqe.length", with(1, number << 8 | 0)},
        {"wqe.length", join({b.left.control(0, 2), words{0, 0, 0, 0}})},
        {"wqe.length", join({b.left.control(0x12, 3), b.remote(0), words{0, 2, 0, 0}})},
        {"wqe.length",
         join({b.left.control(0x12, 4), b.remote(0), words{0, 2, 0, 0}, b.data(0, 16)})},
        {"wqe.length",
         join({b.left.control(0x0a, 3), words{0x80000000 | 4, 1, 0, 0}, words(4, 0)})},
        {"wqe.length", join({b.left.control(0x0a, 2), words{0x80000000, 0, 0, 0}})},
        {"wqe.inline", join({b.left.control(0x0a, 3), b.data(0, 8), words{0x80000004, 1, 0, 0}})},
    };
}

}  // namespace

BOOST_AUTO_TEST_CASE(malformed_requests_are_each_reported_and_complete_in_error) {
    const auto count = malformed_requests(bench()).size();
    for (std::size_t i = 0; i < count; ++i) {
        bench b;
        const auto one = malformed_requests(b)[i];
        BOOST_TEST_CONTEXT("case " << i << ", " << one.rule) {
            b.left.post(one.request);
            BOOST_TEST(b.soft.violations().has(one.rule));
            const auto done = b.left.take();
            BOOST_TEST(done.code == 13);
            BOOST_TEST(done.syndrome == 0x02);
            BOOST_TEST((b.left.pair->state() == queue_pair_state::error));
        }
    }
}

BOOST_AUTO_TEST_CASE(request_that_names_another_queue_pair_is_reported) {
    bench b;
    auto request = b.read(64);
    request[1] = (b.left.number + 7) << 8 | 3;
    b.left.write(request);
    b.left.publish();
    b.left.store(0x800, std::uint64_t{request[0]} << 32 | b.left.number << 8 | 3);
    BOOST_TEST(b.soft.violations().has("doorbell.control"));
    BOOST_TEST(b.soft.violations().has("wqe.qpn"));
    BOOST_TEST(b.left.take().syndrome == 0x02);
}

BOOST_AUTO_TEST_CASE(request_longer_than_announced_is_reported) {
    bench b;
    b.left.write(
        join({b.left.control(0x10, 5), b.remote(0), b.data(0, 8), b.data(8, 8), b.data(16, 8)}));
    b.left.produced = 1;  // counts requests, not blocks
    b.left.ring();
    BOOST_TEST(b.soft.violations().has("doorbell.last"));
    BOOST_TEST(b.soft.violations().has("wqe.beyond"));
}

BOOST_AUTO_TEST_CASE(doorbell_before_its_record_is_reported) {
    bench b;
    b.left.write(b.read(64));
    b.left.store(0x800, b.left.latest_control());
    BOOST_TEST(b.soft.violations().has("doorbell.record"));
    BOOST_TEST(b.left.take().code == 0xff);
}

BOOST_AUTO_TEST_CASE(doorbell_through_another_uar_is_reported_and_ignored) {
    bench b;
    b.left.write(b.read(64));
    b.left.publish();
    b.right.store(0x800, b.left.latest_control());
    b.settle();
    BOOST_TEST(b.soft.violations().has("uar.wrong"));
    BOOST_TEST(b.left.take().code == 0xff);
}

BOOST_AUTO_TEST_CASE(doorbell_that_is_not_the_request_is_reported) {
    bench b;
    b.left.write(b.read(64));
    b.left.publish();
    b.left.store(0x800, b.left.latest_control() ^ std::uint64_t{1} << 33);
    BOOST_TEST(b.soft.violations().has("doorbell.control"));
}

BOOST_AUTO_TEST_CASE(doorbell_for_no_queue_pair_is_reported) {
    bench b;
    b.left.store(0x800, 0x123456'00);
    BOOST_TEST(b.soft.violations().has("doorbell.qpn"));
}

BOOST_AUTO_TEST_CASE(doorbell_before_ready_to_send_is_reported) {
    bench b;
    b.left.pair->change(queue_pair_state::reset);
    b.left.pair->change(queue_pair_state::init);
    b.left.post(b.read(64));
    BOOST_TEST(b.soft.violations().has("doorbell.state"));
}

BOOST_AUTO_TEST_CASE(same_half_twice_is_reported) {
    bench b;
    b.left.post(b.read(64));
    b.left.write(b.read(64));
    b.left.publish();
    b.left.store(0x800, b.left.latest_control());
    BOOST_TEST(b.soft.violations().has("uar.half"));
}

BOOST_AUTO_TEST_CASE(store_to_no_register_is_reported) {
    bench b;
    b.left.store(0x40, 1);
    BOOST_TEST(b.soft.violations().has("uar.offset"));
}

BOOST_AUTO_TEST_CASE(blueflame_copy_of_the_request_is_accepted_also_where_it_wraps) {
    bench b;
    for (int turn = 0; turn < 20; ++turn) {
        words request = join({b.left.control(0x10, 8), b.remote(0)});
        for (std::uint32_t piece = 0; piece < 6; ++piece) {
            request = join({request, b.data(piece * 8, 8)});
        }
        const auto first = b.left.produced;
        b.left.write(request);
        b.left.publish();
        const std::uint32_t half = turn % 2 == 0 ? 0x800 : 0x900;
        for (std::uint32_t at = 0; at < 128; at += 8) {
            b.left.store(half + at, load64(b.left.sends() + (first * 64U + at) % 1024));
        }
        b.soft.fence();
        b.settle();
        BOOST_TEST(b.left.take().code == 0);
        // One block more, so that the starts are odd as well as even.
        b.left.write(b.left.control(0, 1));
        b.left.publish();
        b.left.store(half ^ 0x100, b.left.latest_control());
        b.left.take();
        b.left.write(b.left.control(0, 1));
        b.left.publish();
        b.left.store(half, b.left.latest_control());
        b.left.take();
    }
    check_clean(b);
}

BOOST_AUTO_TEST_CASE(blueflame_copy_that_differs_or_stops_early_is_reported) {
    {
        bench b;
        b.left.write(b.read(64));
        b.left.publish();
        b.left.store(0x800, b.left.latest_control());
        b.left.store(0x808, 0xdead);
        BOOST_TEST(b.soft.violations().has("uar.blueflame"));
    }
    {
        bench b;
        b.left.write(b.read(64));
        b.left.publish();
        b.left.store(0x800, b.left.latest_control());
        b.left.store(0x808, load64(b.left.sends() + 8));
        check_clean(b);
        b.soft.fence();
        BOOST_TEST(b.soft.violations().has("uar.blueflame"));
    }
    {
        bench b;
        b.left.store(0x810, 1);
        BOOST_TEST(b.soft.violations().has("uar.blueflame"));
    }
}

BOOST_AUTO_TEST_CASE(send_queue_with_more_blocks_than_it_has_is_reported) {
    // The peer is elsewhere and never answers, so nothing completes.
    bench b;
    b.left.pair->path.remote_queue_pair = 0x990001;
    for (int i = 0; i < 17; ++i) b.left.post(b.read(8));
    BOOST_TEST(b.soft.violations().has("sq.overflow"));
}

BOOST_AUTO_TEST_CASE(completion_queue_whose_consumer_index_is_not_published_overruns) {
    bench b;
    for (int i = 0; i < 16; ++i) {
        b.left.post(b.read(8));
        b.left.take(false);
    }
    check_clean(b);
    b.left.post(b.read(8));
    BOOST_TEST(b.soft.violations().has("cq.overrun"));
    BOOST_TEST(b.lost_queues == 1);
}

BOOST_AUTO_TEST_CASE(completion_queue_whose_consumer_index_is_published_goes_round) {
    for (const std::uint16_t bytes : {64, 128}) {
        bench b({.entry_bytes = bytes});
        for (std::uint16_t i = 0; i < 100; ++i) {
            b.left.post(b.read(8));
            BOOST_TEST(b.left.take().counter == i);
            BOOST_TEST(b.left.take().code == 0xff);
        }
        check_clean(b);
    }
}

BOOST_AUTO_TEST_CASE(armed_queue_raises_one_event_at_the_next_completion) {
    bench b;
    b.left.post(b.read(8));
    BOOST_TEST(b.events == 0);
    b.left.take();
    b.left.arm(0);
    BOOST_TEST(b.events == 0);
    b.left.post(b.read(8));
    b.left.post(b.read(8));
    BOOST_TEST(b.events == 1);
    b.left.take();
    b.left.take();
    b.left.arm(0);  // of the event that was raised already
    b.left.post(b.read(8));
    BOOST_TEST(b.events == 1);
    b.left.take();
    b.left.arm(1);
    b.left.post(b.read(8));
    BOOST_TEST(b.events == 2);
    check_clean(b);
}

BOOST_AUTO_TEST_CASE(queue_armed_over_completions_not_polled_raises_its_event_at_once) {
    bench b;
    b.left.post(b.read(8));
    b.left.arm(0);
    BOOST_TEST(b.events == 1);
    check_clean(b);
}

BOOST_AUTO_TEST_CASE(queue_armed_again_before_it_is_polled_raises_an_event_for_new_entries_only) {
    bench b;
    b.left.arm(0);
    b.left.post(b.read(8));
    BOOST_TEST(b.events == 1);
    b.left.arm(1);
    BOOST_TEST(b.events == 1);
    b.left.post(b.read(8));
    BOOST_TEST(b.events == 2);
    b.left.post(b.read(8));
    b.left.take();
    b.left.arm(2);  // the third came after the second event
    BOOST_TEST(b.events == 3);
    check_clean(b);
}

BOOST_AUTO_TEST_CASE(queue_armed_for_solicited_waits_for_one_or_for_an_error) {
    bench b;
    b.right.arm(0, true);
    b.right.receive(address_of(b.there.at.get()), 64, b.there_key);
    b.right.receive(address_of(b.there.at.get()), 64, b.there_key);
    b.left.post(join({b.left.control(0x0a, 2, 8), b.data(0, 8)}));
    BOOST_TEST(b.events == 0);
    b.left.post(join({b.left.control(0x0a, 2, 8 | 2), b.data(0, 8)}));
    BOOST_TEST(b.events == 1);
    b.right.take();
    b.right.take();
    b.right.arm(1, true);
    b.right.receive(address_of(b.there.at.get()), 64, b.there_key);
    b.right.pair->change(queue_pair_state::error);
    BOOST_TEST(b.events == 2);
    check_clean(b);
}

BOOST_AUTO_TEST_CASE(arming_with_a_record_that_says_otherwise_is_reported) {
    bench b;
    b.left.store(0x20, std::uint64_t{1} << 60 | b.left.queue);
    BOOST_TEST(b.soft.violations().has("cq.arm_record"));
    b.left.store(0x20, 0xffff);
    BOOST_TEST(b.soft.violations().has("cq.arm_number"));
    b.right.store(0x20, b.left.queue);
    BOOST_TEST(b.soft.violations().has("uar.wrong"));
}

namespace {

/// Posts `request` on the left, and a READ without a signal behind it; the first completes with
/// `expected`, the second flushed.
void check_fails_with(bench& b, const words& request, std::uint8_t expected) {
    b.left.post(request);
    const auto failed = b.left.take();
    BOOST_TEST(failed.code == 13);
    BOOST_TEST(static_cast<int>(failed.syndrome) == static_cast<int>(expected));
    b.left.post(b.read(8, 0));
    const auto flushed = b.left.take();
    BOOST_TEST(flushed.code == 13);
    BOOST_TEST(flushed.syndrome == 0x05);
    BOOST_TEST((b.left.pair->state() == queue_pair_state::error));
    check_clean(b);
}

}  // namespace

BOOST_AUTO_TEST_CASE(local_key_that_does_not_allow_it_fails_with_local_protection) {
    {
        bench b;
        auto request = b.read(64);
        request[9] ^= 1;
        check_fails_with(b, request, 0x04);
    }
    {
        bench b;
        auto request = b.read(64);
        request[8] = 8193;
        check_fails_with(b, request, 0x04);
    }
    {
        bench b;  // a READ needs local write, a WRITE does not
        b.soft.keys().at(b.here_key)->rights = 0;
        b.left.post(join({b.left.control(0x08, 3), b.remote(0), b.data(0, 8)}));
        BOOST_TEST(b.left.take().code == 0);
        check_fails_with(b, b.read(64), 0x04);
    }
}

BOOST_AUTO_TEST_CASE(message_over_the_largest_fails_with_local_length) {
    bench b;
    auto request = b.read(64);
    request[8] = 0x40000001;
    check_fails_with(b, request, 0x01);
}

BOOST_AUTO_TEST_CASE(remote_key_that_does_not_allow_it_fails_with_remote_access) {
    for (int fault = 0; fault < 4; ++fault) {
        bench b;
        auto request = b.read(64);
        if (fault == 0) request[6] ^= 1;
        if (fault == 1) request[5] += 8192 - 63;
        if (fault == 2) b.soft.keys().at(b.there_key)->rights = local_write | remote_write;
        if (fault == 3) b.right.pair->path.remote_rights = remote_write;
        check_fails_with(b, request, 0x13);
        BOOST_TEST((b.right.pair->state() == queue_pair_state::error));
        BOOST_REQUIRE(b.pair_events.size() == 1U);
        BOOST_TEST((b.pair_events.front() == queue_pair_event::access_error));
    }
}

BOOST_AUTO_TEST_CASE(zero_bytes_need_no_key) {
    bench b;
    b.left.post(join({b.left.control(0x10, 2), words{0, 0, 0, 0}}));
    BOOST_TEST(b.left.take().code == 0);
    check_clean(b);
}

BOOST_AUTO_TEST_CASE(atomic_at_an_odd_address_fails_with_remote_invalid_request) {
    bench b;
    check_fails_with(
        b, join({b.left.control(0x12, 4), b.remote(4), words{0, 2, 0, 0}, b.data(0, 8)}), 0x12);
}

BOOST_AUTO_TEST_CASE(send_longer_than_the_receive_fails_at_both_ends) {
    bench b;
    b.right.receive(address_of(b.there.at.get()), 16, b.there_key);
    check_fails_with(b, join({b.left.control(0x0a, 2), b.data(0, 17)}), 0x12);
    const auto got = b.right.take();
    BOOST_TEST(got.code == 14);
    BOOST_TEST(got.syndrome == 0x01);
}

BOOST_AUTO_TEST_CASE(receive_into_a_bad_key_fails_with_remote_operation) {
    bench b;
    b.right.receive(address_of(b.there.at.get()), 16, b.there_key ^ 1);
    check_fails_with(b, join({b.left.control(0x0a, 2), b.data(0, 16)}), 0x14);
    BOOST_TEST(b.right.take().syndrome == 0x04);
}

BOOST_AUTO_TEST_CASE(send_without_a_receive_is_repeated_and_then_fails) {
    bench b;
    b.left.post(join({b.left.control(0x0a, 2), b.data(0, 16)}));
    for (int i = 0; i < 2; ++i) {
        BOOST_TEST(b.left.take().code == 0xff);
        b.now += std::chrono::microseconds(11);
        b.soft.step();
        b.settle();
    }
    BOOST_TEST(b.left.take().syndrome == 0x16);

    bench late;
    late.left.post(join({late.left.control(0x0a, 2), late.data(0, 16)}));
    late.right.receive(address_of(late.there.at.get()), 16, late.there_key);
    BOOST_TEST(late.left.take().code == 0xff);
    late.now += std::chrono::microseconds(11);
    late.soft.step();
    late.settle();
    BOOST_TEST(late.left.take().code == 0);
}

BOOST_AUTO_TEST_CASE(request_that_nobody_answers_fails_with_retry_exceeded) {
    bench b;
    b.right.pair->change(queue_pair_state::reset);
    b.left.post(b.read(8));
    for (int i = 0; i < 3; ++i) {
        BOOST_TEST(b.left.take().code == 0xff);
        b.now += std::chrono::nanoseconds(4096 << 8);
        b.soft.step();
        b.settle();
    }
    BOOST_TEST(b.left.take().syndrome == 0x15);
}

BOOST_AUTO_TEST_CASE(ends_that_disagree_about_the_first_number_never_talk) {
    bench b;
    b.right.pair->change(queue_pair_state::reset);
    auto path = hand::usual();
    path.receive_sequence = 0xff;
    b.right.connect(b.left.number, path);
    b.left.post(b.read(8));
    BOOST_TEST(b.left.take().code == 0xff);
}

BOOST_AUTO_TEST_CASE(reads_beyond_the_depth_and_behind_a_fence_wait) {
    auto path = hand::usual();
    path.initiator_depth = 2;
    bench b({}, path);
    std::vector<packet> left;
    b.left.pair->path.remote_queue_pair = 0x990001;
    b.soft.on_departure = [&](packet&& p) { left.push_back(std::move(p)); };
    for (int i = 0; i < 3; ++i) b.left.post(b.read(2048));
    BOOST_REQUIRE(left.size() == 2U);
    BOOST_TEST(left[1].sequence == left[0].sequence + 2);  // packets of the MTU
    BOOST_TEST(left[1].outstanding == 2U);
    const auto answer = [&](const packet& to) {
        packet a;
        a.kind = packet_kind::read_response;
        a.source = 0x990001;
        a.destination = b.left.number;
        a.sequence = to.sequence;
        a.payload.resize(to.length);
        b.soft.arrive(std::move(a));
        b.settle();
    };
    // The second answer alone completes nothing, since requests complete in order.
    answer(left[1]);
    BOOST_TEST(left.size() == 3U);
    BOOST_TEST(b.left.take().code == 0xff);
    answer(left[0]);
    answer(left[2]);
    for (std::uint16_t i = 0; i < 3; ++i) BOOST_TEST(b.left.take().counter == i);

    left.clear();
    b.left.post(b.read(8));
    b.left.post(join({b.left.control(0x08, 3, 8 | 0x80), b.remote(0), b.data(0, 8)}));
    BOOST_TEST(left.size() == 1U);
    answer(left[0]);
    BOOST_TEST(left.size() == 2U);
    check_clean(b);
}

BOOST_AUTO_TEST_CASE(more_reads_than_the_responder_answers_at_once_are_refused) {
    auto path = hand::usual();
    path.responder_depth = 1;
    bench b({}, path);
    b.left.write(b.read(8));
    b.left.write(b.read(8));
    b.left.ring();
    BOOST_TEST(b.soft.violations().has("qp.responder_depth"));
    BOOST_TEST(b.left.take().code == 0);
    BOOST_TEST(b.left.take().syndrome == 0x12);
}

BOOST_AUTO_TEST_CASE(repeated_atomic_is_answered_again_but_not_run_again) {
    bench b;
    auto* word = reinterpret_cast<std::uint64_t*>(b.there.at.get());
    *word = 1;
    packet p;
    p.kind = packet_kind::fetch_add;
    p.source = b.left.number;
    p.destination = b.right.number;
    p.sequence = 0x100;
    p.outstanding = 1;
    p.key = b.there_key;
    p.address = address_of(b.there.at.get());
    p.length = 8;
    p.swap_or_add = 1;
    b.soft.arrive(packet(p));
    b.soft.arrive(packet(p));
    b.settle();
    BOOST_TEST(*word == 2U);
}

namespace {

words bind(bench& b, std::uint32_t window, std::uint8_t variant, std::uint32_t offset,
           std::uint32_t bytes, std::uint8_t modes = 8) {
    const auto address = address_of(b.there.at.get()) + offset;
    return join({b.right.control(0x25, 12, modes, window),
                 words{0xb0000000, 0x00040000, 0, 0x203c6041, 0, 0, 0, 0, 0, 0, 0, 0},
                 words{0x00001000, b.right.number << 8 | variant, 0, 0, high(address), low(address),
                       0, bytes, 0, 0, 0, 0, 0, 0, 0, 0},
                 words{bytes, b.there_key, high(address), low(address), 0, 0, 0, 0, 0, 0, 0, 0, 0,
                       0, 0, 0}});
}

words invalidate(bench& b, std::uint32_t key, std::uint8_t modes = 8) {
    return join({b.right.control(0x25, 8, modes, key),
                 words{0x98000000, 0, 0, 0x20006000, 0, 0, 0, 0, 0, 0, 0, 0},
                 words{0x40000000, 0xffffff00, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}});
}

}  // namespace

BOOST_AUTO_TEST_CASE(window_opens_its_range_to_one_queue_pair_until_invalidated) {
    bench b;
    const auto window = b.soft.keys().add({.domain = b.domain, .window = true, .free = true});
    b.right.post(bind(b, window, 0x42, 256, 128));
    BOOST_TEST(b.right.take().operation == 0x25);
    const auto key = (window & ~0xffU) | 0x42;
    BOOST_TEST(b.soft.keys().windows_over(b.there_key) == 1U);
    const auto read = [&](std::uint32_t offset, std::uint32_t bytes) {
        auto remote = b.remote(offset);
        remote[2] = key;
        b.left.post(join({b.left.control(0x10, 3), remote, b.data(0, bytes)}));
        return b.left.take();
    };
    BOOST_TEST(read(256, 128).code == 0);
    BOOST_TEST(same(b.here.at.get(), b.there.at.get() + 256, 128));
    b.right.post(invalidate(b, key, 8 | 0x20));
    BOOST_TEST(b.right.take().code == 0);
    check_clean(b);
    BOOST_TEST(read(256, 128).syndrome == 0x13);
}

BOOST_AUTO_TEST_CASE(window_of_another_queue_pair_or_beyond_its_range_is_refused) {
    for (const bool beyond : {false, true}) {
        bench b;
        const auto window = b.soft.keys().add({.domain = b.domain, .window = true, .free = true});
        b.right.post(bind(b, window, 0x42, 256, 128));
        b.right.take();
        auto remote = b.remote(beyond ? 257 : 256);
        remote[2] = (window & ~0xffU) | 0x42;
        if (!beyond) b.soft.keys().at(window)->bound_queue_pair = b.left.number;
        b.left.post(join({b.left.control(0x10, 3), remote, b.data(0, 128)}));
        BOOST_TEST(b.left.take().syndrome == 0x13);
    }
}

BOOST_AUTO_TEST_CASE(bind_that_is_not_allowed_fails_with_window_bind) {
    for (int fault = 0; fault < 4; ++fault) {
        bench b;
        auto window = b.soft.keys().add({.domain = b.domain, .window = true, .free = fault != 0});
        if (fault == 1) b.soft.keys().at(b.there_key)->bindable = false;
        if (fault == 2) window = b.there_key;
        b.right.post(bind(b, window, 0x42, 256, fault == 3 ? 8192 : 128));
        BOOST_TEST_CONTEXT("fault " << fault) { BOOST_TEST(b.right.take().syndrome == 0x06); }
        check_clean(b);
    }
}

BOOST_AUTO_TEST_CASE(malformed_bind_is_reported) {
    for (const std::size_t word : {4U, 5U, 7U, 8U, 16U, 36U}) {
        bench b;
        const auto window = b.soft.keys().add({.domain = b.domain, .window = true, .free = true});
        auto request = bind(b, window, 0x42, 256, 128);
        request[word] ^= word == 16 ? 0x40000000 : 2;
        b.right.post(request);
        BOOST_TEST_CONTEXT("word " << word) { BOOST_TEST(!b.soft.violations().all().empty()); }
        BOOST_TEST(b.right.take().syndrome == 0x02);
    }
}

BOOST_AUTO_TEST_CASE(request_after_a_bind_without_a_fence_is_reported) {
    bench b;
    const auto window = b.soft.keys().add({.domain = b.domain, .window = true, .free = true});
    b.right.post(bind(b, window, 0x42, 256, 128));
    b.right.post(b.right.control(0, 1));
    BOOST_TEST(b.soft.violations().has("wqe.small_fence"));
}

BOOST_AUTO_TEST_CASE(send_that_invalidates_ends_the_window) {
    bench b;
    const auto window = b.soft.keys().add({.domain = b.domain, .window = true, .free = true});
    b.right.post(bind(b, window, 0x42, 256, 128));
    b.right.take();
    b.right.receive(address_of(b.there.at.get()), 64, b.there_key);
    b.left.post(join({b.left.control(0x01, 2, 8, (window & ~0xffU) | 0x42), b.data(0, 8)}));
    BOOST_TEST(b.left.take().code == 0);
    const auto got = b.right.take();
    BOOST_TEST(got.code == 4);
    BOOST_TEST(got.immediate == ((window & ~0xffU) | 0x42));
    BOOST_TEST(b.soft.keys().at(window)->free);
}

BOOST_AUTO_TEST_CASE(small_answers_go_in_the_completion_where_the_queue_pair_asks_for_it) {
    for (const std::uint16_t bytes : {64, 128}) {
        const std::uint32_t fits = bytes == 64 ? 32 : 64;
        bench b({.entry_bytes = bytes, .scatter = true});
        b.left.post(b.read(fits));
        const auto small = b.left.take();
        BOOST_TEST(small.format == (bytes == 64 ? 1 : 2));
        BOOST_TEST(same(small.slot, b.there.at.get(), fits));
        BOOST_TEST(std::to_integer<int>(b.here.at.get()[0]) == 0);
        b.left.post(b.read(fits + 1));
        BOOST_TEST(b.left.take().format == 0);
        BOOST_TEST(same(b.here.at.get(), b.there.at.get(), fits + 1));
        check_clean(b);
    }
}

BOOST_AUTO_TEST_CASE(error_state_flushes_what_is_posted_and_what_comes_later) {
    bench b;
    b.right.receive(address_of(b.there.at.get()), 64, b.there_key);
    b.right.pair->change(queue_pair_state::error);
    BOOST_TEST(b.right.take().syndrome == 0x05);
    b.right.receive(address_of(b.there.at.get()), 64, b.there_key);
    b.soft.step();
    BOOST_TEST(b.right.take().syndrome == 0x05);
    b.right.post(b.right.control(0, 1, 0));
    BOOST_TEST(b.right.take().syndrome == 0x05);
    check_clean(b);
}

BOOST_AUTO_TEST_CASE(reset_queue_pair_works_again_with_its_records_zeroed) {
    bench b;
    b.left.post(b.read(8));
    b.left.take();
    for (auto* one : {&b.left, &b.right}) {
        one->pair->change(queue_pair_state::error);
        one->pair->change(queue_pair_state::reset);
        one->produced = 0;
        std::fill_n(one->record(), 8, std::byte{0});
        one->connect(one == &b.left ? b.right.number : b.left.number);
    }
    b.left.post(b.read(8));
    BOOST_TEST(b.left.take().code == 0);
    check_clean(b);
}

BOOST_AUTO_TEST_CASE(reset_queue_pair_with_a_stale_record_is_reported) {
    bench b;
    b.left.post(b.read(8));
    b.left.pair->change(queue_pair_state::reset);
    b.left.connect(b.right.number);
    BOOST_TEST(b.soft.violations().has("record.stale"));
}

BOOST_AUTO_TEST_CASE(states_follow_only_their_order) {
    bench b;
    auto& p = *b.left.pair;
    BOOST_TEST(!p.change(queue_pair_state::init));
    p.change(queue_pair_state::reset);
    BOOST_TEST(!p.change(queue_pair_state::ready_to_receive));
    BOOST_TEST(!p.change(queue_pair_state::ready_to_send));
    BOOST_TEST(!p.change(queue_pair_state::error));
    BOOST_TEST(p.change(queue_pair_state::init));
    BOOST_TEST(!p.change(queue_pair_state::ready_to_send));
}

BOOST_AUTO_TEST_CASE(polled_doorbells_are_taken_from_the_page) {
    bench b;
    b.left.write(b.read(64));
    b.left.publish();
    BOOST_TEST(!b.soft.poll());
    store_be(b.left.page() + 0x800, b.left.latest_control());
    BOOST_TEST(b.soft.poll());
    b.settle();
    BOOST_TEST(b.left.take().code == 0);
    BOOST_TEST(!b.soft.poll());
    BOOST_TEST(load64(b.left.page() + 0x800) == 0U);
    check_clean(b);
}

BOOST_AUTO_TEST_CASE(destroyed_queue_pair_answers_nothing) {
    bench b;
    BOOST_TEST(!b.soft.remove_completion_queue(b.left.queue));
    b.soft.remove_uar(b.left.uar);
    BOOST_TEST(b.soft.violations().has("uar.in_use"));
    BOOST_TEST(b.soft.remove_queue_pair(b.right.number));
    BOOST_TEST(!b.soft.remove_queue_pair(b.right.number));
    BOOST_TEST(b.soft.find_queue_pair(b.right.number) == nullptr);
}

}  // namespace softmlx5
