#include "diag/perf_pattern.hpp"

#include <cstring>

namespace rvget::diag {
namespace {

std::uint64_t word_at(const std::byte* at) noexcept {
    std::uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    return word;
}

}  // namespace

perf_pattern::perf_pattern(std::size_t bytes) : base_(bytes) {
    for (std::size_t i = 0; i < bytes; ++i) {
        base_[i] = static_cast<std::byte>((i * 31 + (i >> 8)) & 0xff);
    }
}

void perf_pattern::fill(std::span<std::byte> bytes, std::size_t slot) const noexcept {
    const auto key = slot_key(slot);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = base_[i] ^ key;
}

bool perf_pattern::matches(std::span<const std::byte> bytes, std::size_t slot) const noexcept {
    const auto key = slot_key(slot);
    const auto keys = static_cast<std::uint64_t>(key) * 0x0101'0101'0101'0101U;
    std::uint64_t differ = 0;  // no branch per word: this runs beside what is measured
    std::size_t i = 0;
    for (; i + sizeof differ <= bytes.size(); i += sizeof differ) {
        differ |= word_at(&bytes[i]) ^ word_at(&base_[i]) ^ keys;
    }
    for (; i < bytes.size(); ++i) {
        differ |= static_cast<std::uint64_t>(bytes[i] ^ base_[i] ^ key);
    }
    return differ == 0;
}

void perf_pattern::spoil(std::span<std::byte> bytes) noexcept {
    constexpr std::size_t smallest_packet = 256;
    for (std::size_t i = 0; i < bytes.size(); i += smallest_packet) bytes[i] ^= std::byte{0xff};
}

}  // namespace rvget::diag
