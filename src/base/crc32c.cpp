#include "base/crc32c.hpp"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace rvget {
namespace {

constexpr std::uint32_t polynomial = 0x82f63b78;  // 0x1edc6f41, bit-reversed
constexpr std::size_t width = 8;                  // bytes that one step takes

/// tables[k][b]: what byte b adds when k more bytes of the step follow it.
constexpr std::array<std::array<std::uint32_t, 256>, width> tables = [] {
    std::array<std::array<std::uint32_t, 256>, width> t{};
    for (std::uint32_t b = 0; b < 256; ++b) {
        std::uint32_t c = b;
        for (int bit = 0; bit < 8; ++bit) c = (c & 1) != 0 ? (c >> 1) ^ polynomial : c >> 1;
        t[0][b] = c;
    }
    for (std::size_t k = 1; k < width; ++k)
        for (std::size_t b = 0; b < 256; ++b)
            t[k][b] = (t[k - 1][b] >> 8) ^ t[0][t[k - 1][b] & 0xff];
    return t;
}();

std::uint32_t byte_step(std::uint32_t c, std::byte b) noexcept {
    return (c >> 8) ^ tables[0][(c ^ std::to_integer<std::uint32_t>(b)) & 0xff];
}

/// Little-endian, whatever the machine.
std::uint32_t load32(const std::byte* p) noexcept {
    return std::to_integer<std::uint32_t>(p[0]) | std::to_integer<std::uint32_t>(p[1]) << 8 |
           std::to_integer<std::uint32_t>(p[2]) << 16 | std::to_integer<std::uint32_t>(p[3]) << 24;
}

}  // namespace

std::uint32_t crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
    std::uint32_t c = ~before;
    for (; bytes.size() >= width; bytes = bytes.subspan(width)) {
        const std::uint32_t low = load32(bytes.data()) ^ c;
        const std::uint32_t high = load32(bytes.data() + 4);
        c = tables[7][low & 0xff] ^ tables[6][low >> 8 & 0xff] ^ tables[5][low >> 16 & 0xff] ^
            tables[4][low >> 24] ^ tables[3][high & 0xff] ^ tables[2][high >> 8 & 0xff] ^
            tables[1][high >> 16 & 0xff] ^ tables[0][high >> 24];
    }
    for (const std::byte b : bytes) c = byte_step(c, b);
    return ~c;
}

#if defined(__x86_64__)

bool has_crc32c_instruction() noexcept { return __builtin_cpu_supports("sse4.2") != 0; }

__attribute__((target("sse4.2"))) std::uint32_t crc32c_by_instruction(
    std::span<const std::byte> bytes, std::uint32_t before) noexcept {
    std::uint64_t c = static_cast<std::uint32_t>(~before);
    for (; bytes.size() >= width; bytes = bytes.subspan(width)) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data(), width);
        c = _mm_crc32_u64(c, word);
    }
    auto rest = static_cast<std::uint32_t>(c);
    for (const std::byte b : bytes) rest = _mm_crc32_u8(rest, std::to_integer<unsigned char>(b));
    return ~rest;
}

#else

bool has_crc32c_instruction() noexcept { return false; }

std::uint32_t crc32c_by_instruction(std::span<const std::byte> bytes,
                                    std::uint32_t before) noexcept {
    return crc32c_by_table(bytes, before);
}

#endif

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
    static const bool by_instruction = has_crc32c_instruction();
    return by_instruction ? crc32c_by_instruction(bytes, before) : crc32c_by_table(bytes, before);
}

}  // namespace rvget
