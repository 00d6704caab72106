// The direct mlx5 path without a device: the order of its stores and barriers, and its decoder.

#include <boost/test/unit_test.hpp>

#include <array>
#include <string>
#include <vector>

#include "fabric/mlx5/completion_ring.hpp"
#include "fabric/mlx5/send_queue.hpp"
#include "support/seed.hpp"

namespace rvget::fabric::mlx5 {

namespace {

/// Writes down what would reach a device, and the barriers between.
struct recorder {
    static inline std::string order;
    static inline std::vector<std::uint64_t> stores;

    static void before_record() { order += "A"; }
    static void before_register() { order += "B"; }
    static void after_register() { order += "C"; }
    static void after_owner() { order += "D"; }
    static void before_consumer() { order += "E"; }
    static void store_record(std::uint32_t* word, std::uint32_t value) {
        order += "r";
        *word = value;
    }
    static void store_register(std::byte*, std::uint64_t value) {
        order += "m";
        stores.push_back(value);
    }
    static std::uint8_t load_owner(const std::byte* at) {
        order += "o";
        return std::to_integer<std::uint8_t>(*at);
    }
    static std::string take() {
        stores.clear();
        return std::exchange(order, {});
    }
};

struct memory {
    alignas(64) std::array<std::byte, 1024> ring{};
    std::array<std::uint32_t, 2> record{};
    alignas(4096) std::array<std::byte, 4096> page{};

    [[nodiscard]] send_queue_memory sends(std::uint32_t half_bytes = 256) {
        return {ring.data(), 16, record.data(), page.data() + 0x800, half_bytes, 0x123456};
    }
};

constexpr std::array piece{local_piece{.address = 0x1000, .bytes = 64, .key = 7}};

}  // namespace

BOOST_AUTO_TEST_CASE(post_writes_the_record_and_the_register_between_its_barriers) {
    memory m;
    send_queue<recorder> queue(m.sends());
    BOOST_REQUIRE(queue.add_read(1, piece, {}, {}));
    queue.ring();
    // A lone request is copied: eight stores.
    BOOST_TEST(recorder::take() == "ArBmmmmmmmmC");
    BOOST_REQUIRE(queue.add_read(2, piece, {}, {}));
    BOOST_REQUIRE(queue.add_read(3, piece, {}, {}));
    queue.ring();
    BOOST_TEST(recorder::take() == "ArBmC");
    BOOST_TEST(m.record[1] == big_endian(3U));
    queue.ring();
    BOOST_TEST(recorder::take().empty());
}

BOOST_AUTO_TEST_CASE(post_without_blueflame_stores_once) {
    memory m;
    send_queue<recorder> queue(m.sends(0));
    BOOST_REQUIRE(queue.add_read(1, piece, {}, {}));
    queue.ring();
    BOOST_TEST(recorder::take() == "ArBmC");
}

BOOST_AUTO_TEST_CASE(doorbell_is_the_start_of_the_last_request) {
    memory m;
    send_queue<recorder> queue(m.sends());
    BOOST_REQUIRE(queue.add_read(1, piece, {}, {}));
    BOOST_REQUIRE(queue.add_nop(2, {}));
    queue.ring();
    BOOST_REQUIRE(recorder::stores.size() == 1U);
    BOOST_TEST(big_endian(recorder::stores.back()) == 0x0000010012345601U);
    recorder::take();
}

BOOST_AUTO_TEST_CASE(poll_reads_the_owner_before_its_barrier_and_publishes_behind_one) {
    alignas(64) std::array<std::byte, 128> entries{};
    std::array<std::uint32_t, 2> record{};
    alignas(64) std::array<std::byte, 64> page{};
    entries[63] = std::byte{0xf1};
    entries[127] = std::byte{0xf1};
    completion_ring<recorder> ring({entries.data(), 2, 64, record.data(), page.data(), 9});
    ring_completion out;
    BOOST_TEST((ring.poll(out) == ring_poll::empty));
    BOOST_TEST(recorder::take() == "o");
    entries[63] = std::byte{0x00};
    BOOST_TEST((ring.poll(out) == ring_poll::taken));
    BOOST_TEST(recorder::take() == "oD");
    ring.publish();
    BOOST_TEST(recorder::take() == "Er");
    BOOST_TEST(record[0] == big_endian(1U));
    ring.arm();
    BOOST_REQUIRE(recorder::stores.size() == 1U);
    BOOST_TEST(big_endian(recorder::stores.back()) == 0x0000000100000009U);
    BOOST_TEST(recorder::take() == "rBmC");
    ring.event_taken();
    ring.arm();
    BOOST_TEST(big_endian(recorder::stores.back()) == 0x1000000100000009U);
    recorder::take();
    // The second lap begins with the other owner bit: what is there now is of the first.
    entries[127] = std::byte{0x00};
    BOOST_TEST((ring.poll(out) == ring_poll::taken));
    BOOST_TEST((ring.poll(out) == ring_poll::empty));
    entries[63] = std::byte{0x01};
    BOOST_TEST((ring.poll(out) == ring_poll::taken));
    recorder::take();
}

BOOST_AUTO_TEST_CASE(entry_that_was_never_written_is_none_whatever_its_owner_bit) {
    alignas(64) std::array<std::byte, 64> entry{};
    std::array<std::uint32_t, 2> record{};
    alignas(64) std::array<std::byte, 64> page{};
    completion_ring<recorder> ring({entry.data(), 1, 64, record.data(), page.data(), 9});
    ring_completion out;
    for (const auto last : {0xf0, 0xf1}) {
        entry[63] = static_cast<std::byte>(last);
        BOOST_TEST((ring.poll(out) == ring_poll::empty));
    }
    recorder::take();
}

BOOST_AUTO_TEST_CASE(request_that_does_not_fit_changes_nothing) {
    memory m;
    send_queue<recorder> queue(m.sends());
    const std::vector<local_piece> many(62, piece[0]);
    BOOST_TEST(!queue.add_read(1, many, {}, {}));  // 64 units where a length has six bits
    BOOST_TEST(queue.add_read(1, std::span(many).first(61), {}, {}));
    BOOST_TEST(!queue.add_nop(2, {}));
    BOOST_TEST(queue.free_blocks() == 0U);
    queue.ring();
    BOOST_TEST((queue.complete(0) == 1U));
    BOOST_TEST(queue.free_blocks() == 16U);
    recorder::take();
}

BOOST_AUTO_TEST_CASE(counter_that_names_no_request_completes_nothing) {
    memory m;
    send_queue<recorder> queue(m.sends());
    BOOST_REQUIRE(queue.add_read(1, std::vector(6, piece[0]), {}, {}));  // blocks 0 and 1
    BOOST_TEST(!queue.complete(0));                                      // not rung yet
    queue.ring();
    BOOST_TEST(!queue.complete(1));
    BOOST_TEST(!queue.complete(2));
    BOOST_TEST(!queue.complete(16));
    BOOST_TEST((queue.complete(0) == 1U));
    BOOST_TEST(!queue.complete(0));
    recorder::take();
}

BOOST_AUTO_TEST_CASE(decoder_takes_successes_of_plain_requests_only) {
    auto random = test::seeded_generator();
    for (int i = 0; i < 100000; ++i) {
        std::array<std::byte, layout::entry> bytes;
        for (auto& b : bytes) b = static_cast<std::byte>(random());
        ring_completion out;
        const bool good = decode_entry(bytes, out);
        const auto last = std::to_integer<std::uint8_t>(bytes[63]);
        const bool plain = (last & 0x0c) == 0;
        BOOST_REQUIRE(good == (plain && (last >> 4 == 0 || last >> 4 == 13)));
        if (good) {
            BOOST_REQUIRE((out.status == completion_status::success) == (last >> 4 == 0));
        }
    }
}

}  // namespace rvget::fabric::mlx5
