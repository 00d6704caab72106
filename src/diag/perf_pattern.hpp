#pragma once
// What an owner of `rvget perf` stages, and whether it is what a consumer received.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rvget::diag {

/// Byte i is (i * 31 + (i >> 8)) & 0xff, which repeats at no chunk or packet size. Slot n holds it
/// with every byte combined with slot_key(n): two slots (of 256 in a row) have no byte in common,
/// so bytes that an earlier transfer left behind never pass for those of a later one.
class perf_pattern {
public:
    explicit perf_pattern(std::size_t bytes);

    static std::byte slot_key(std::size_t slot) noexcept {
        return static_cast<std::byte>(slot * 53);
    }
    /// Precondition of both: no more bytes than the pattern has.
    void fill(std::span<std::byte> bytes, std::size_t slot) const noexcept;
    /// Looks at every byte.
    [[nodiscard]] bool matches(std::span<const std::byte> bytes, std::size_t slot) const noexcept;
    /// Makes a byte of each 256 wrong, the smallest path MTU: a packet that does not arrive in a
    /// buffer that is used again is then noticed whatever was in it.
    static void spoil(std::span<std::byte> bytes) noexcept;

private:
    std::vector<std::byte> base_;
};

}  // namespace rvget::diag
