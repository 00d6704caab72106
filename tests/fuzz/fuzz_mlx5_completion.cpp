// A completion ring of an mlx5 device, with arbitrary bytes where the device would write: nothing
// is read as a success that does not say so, and no request completes twice or without being out.

#include <algorithm>
#include <array>
#include <cstring>

#include "fabric/mlx5/completion_ring.hpp"
#include "fuzz/require.hpp"

namespace {

namespace mlx5 = rvget::fabric::mlx5;
using rvget::fabric::completion_status;

constexpr std::uint32_t entries = 4;

void check(std::span<const std::byte, 64> entry, const mlx5::ring_completion& c, bool taken) {
    const auto last = std::to_integer<unsigned>(entry[63]);
    const auto code = last >> 4;
    const bool plain = (last & 0x0c) == 0;
    FUZZ_REQUIRE(taken == (plain && (code == 0 || code == 13)));
    if (!taken) return;
    FUZZ_REQUIRE((c.status == completion_status::success) == (code == 0));
    FUZZ_REQUIRE(c.queue_pair <= 0xffffff);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    alignas(64) std::array<std::byte, entries * 64> ring{};
    alignas(64) std::array<std::byte, 8 * 64> requests{};
    alignas(64) std::array<std::byte, 64> registers{};
    std::array<std::uint32_t, 2> records{};
    if (size > 0) std::memcpy(ring.data(), data, std::min(size, ring.size()));

    mlx5::send_queue<> sends({.ring = requests.data(),
                              .blocks = 8,
                              .record = records.data(),
                              .registers = registers.data(),
                              .number = 1});
    for (std::uint64_t id = 0; id < 6; ++id) FUZZ_REQUIRE(sends.add_nop(id, {}));
    sends.ring();

    mlx5::completion_ring<> completions({.ring = ring.data(),
                                         .entries = entries,
                                         .entry_bytes = 64,
                                         .record = records.data(),
                                         .registers = registers.data()});
    std::uint64_t next = 0;
    // One lap and one more: what was taken has the owner bit of the lap before.
    for (std::size_t i = 0; i <= entries; ++i) {
        mlx5::ring_completion c;
        const auto got = completions.poll(c);
        if (got == mlx5::ring_poll::empty) break;
        FUZZ_REQUIRE(i < entries);
        check(completions.latest(), c, got == mlx5::ring_poll::taken);
        if (got == mlx5::ring_poll::broken) break;
        const auto id = sends.complete(c.counter);
        if (!id) continue;
        FUZZ_REQUIRE(*id >= next && *id < 6);
        next = *id + 1;
        FUZZ_REQUIRE(sends.requests_out() == 6 - next);
    }
    return 0;
}
