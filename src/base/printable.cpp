#include "base/printable.hpp"

#include <cstddef>
#include <cstdint>

namespace rvget {
namespace {

/// Bytes of the character that `text` begins with; 0 where that is a control character or no UTF-8
/// (RFC 3629: no overlong forms, no surrogates, nothing beyond U+10FFFF).
std::size_t utf8_length(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const auto first = byte(0);
    if (first < 0x80) {
        return first < 0x20 || first == 0x7f ? 0 : 1;
    }
    const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
    if (length == 0 || first > 0xf4 || text.size() < length) {
        return 0;
    }
    std::uint32_t point = first & (0xffU >> (length + 1));
    for (std::size_t i = 1; i < length; ++i) {
        if ((byte(i) & 0xc0) != 0x80) {
            return 0;
        }
        point = point << 6 | (byte(i) & 0x3fU);
    }
    constexpr std::uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const bool surrogate = point >= 0xd800 && point < 0xe000;
    const bool control = point < 0xa0;  // C1, which terminals take for commands
    return point < least[length] || surrogate || control || point > 0x10ffff ? 0 : length;
}

}  // namespace

std::string printable(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
        const auto length = utf8_length(text.substr(i));
        if (length != 0) {
            out += text.substr(i, length);
            i += length;
            continue;
        }
        constexpr char digits[] = "0123456789abcdef";
        const auto byte = static_cast<unsigned char>(text[i++]);
        out += {'\\', 'x', digits[byte >> 4], digits[byte & 0xf]};
    }
    return out;
}

}  // namespace rvget
