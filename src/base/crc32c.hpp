#pragma once
// CRC-32C (Castagnoli; RFC 3720, appendix B.4): by the CPU's own instruction where it has one.

#include <cstddef>
#include <cstdint>
#include <span>

namespace rvget {

/// Of `bytes`, or of what `before` is the value of followed by `bytes`. Any thread.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes,
                                   std::uint32_t before = 0) noexcept;

// The two ways, for tests to compare.

/// Whether the CPU has the instruction.
[[nodiscard]] bool has_crc32c_instruction() noexcept;
/// Precondition: has_crc32c_instruction().
[[nodiscard]] std::uint32_t crc32c_by_instruction(std::span<const std::byte> bytes,
                                                  std::uint32_t before = 0) noexcept;
[[nodiscard]] std::uint32_t crc32c_by_table(std::span<const std::byte> bytes,
                                            std::uint32_t before = 0) noexcept;

}  // namespace rvget
