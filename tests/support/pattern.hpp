#pragma once
// The payload of every transfer test: byte i is (i*31 + (i>>8)) & 0xff, which repeats at no chunk
// or packet size, so that bytes at a wrong offset are seen.

#include <cstddef>
#include <cstdint>
#include <span>

namespace rvget::test {

constexpr std::byte pattern_byte(std::uint64_t i) noexcept {
    return static_cast<std::byte>((i * 31 + (i >> 8)) & 0xff);
}

inline void fill_pattern(std::span<std::byte> bytes, std::uint64_t first = 0) noexcept {
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern_byte(first + i);
}

/// Index of the first byte that differs from the pattern starting at `first`, or bytes.size().
inline std::size_t pattern_mismatch(std::span<const std::byte> bytes,
                                    std::uint64_t first = 0) noexcept {
    for (std::size_t i = 0; i < bytes.size(); ++i)
        if (bytes[i] != pattern_byte(first + i)) return i;
    return bytes.size();
}

}  // namespace rvget::test
