#pragma once
// SHA-256, its keyed form, and comparison that tells nothing by its duration. Any thread.

#include <array>
#include <cstddef>
#include <span>

namespace rvget {

using sha256_digest = std::array<std::byte, 32>;

/// FIPS 180-4. Throws std::runtime_error where the cryptographic library refuses.
[[nodiscard]] sha256_digest sha256(std::span<const std::byte> message);

/// RFC 2104 over SHA-256. As sha256().
[[nodiscard]] sha256_digest hmac_sha256(std::span<const std::byte> key,
                                        std::span<const std::byte> message);

/// Takes the same time wherever the two differ.
[[nodiscard]] bool equal_in_constant_time(const sha256_digest& a, const sha256_digest& b) noexcept;

}  // namespace rvget
