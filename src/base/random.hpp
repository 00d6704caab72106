#pragma once
// Randomness from the operating system, for ids that must not be guessed.

#include <cstddef>
#include <cstdint>
#include <span>

namespace rvget {

/// Fills `out` from getrandom(2). Any thread. May block once, early at boot, until the kernel's
/// pool is ready. Throws boost::system::system_error where the kernel has no such call: without it
/// no handle, nonce or PSN is safe to make.
void fill_random(std::span<std::byte> out);

/// 64 random bits, never 0. As fill_random().
[[nodiscard]] std::uint64_t random_u64();

}  // namespace rvget
