#pragma once
// The sizes that the Soft-RoCE suite transfers.

#include <array>
#include <cstdint>

namespace rvget::test {

inline constexpr std::array<std::uint64_t, 5> payload_sizes = {0, 1, 4095, 65536,
                                                               (1U << 20) + 4097};
inline constexpr std::uint64_t large_payload = std::uint64_t{64} << 20;

}  // namespace rvget::test
