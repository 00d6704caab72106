#include <algorithm>
#include <string>

#include <arpa/inet.h>

#include "route/facts.hpp"

namespace rvget::route {

namespace {
// ::ffff:0:0/96 (RFC 4291, 2.5.5.2): how RoCE v2 carries IPv4 addresses as GIDs.
constexpr std::array<std::uint8_t, 12> mapped_prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
}  // namespace

bool gid::is_zero() const noexcept {
    return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t b) { return b == 0; });
}

bool gid::is_ipv4_mapped() const noexcept {
    return std::equal(mapped_prefix.begin(), mapped_prefix.end(), bytes.begin());
}

bool gid::is_link_local() const noexcept {
    if (is_ipv4_mapped()) return bytes[12] == 169 && bytes[13] == 254;  // RFC 3927
    return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;               // fe80::/10
}

std::string gid::to_string() const {
    char text[INET6_ADDRSTRLEN] = {};
    if (is_ipv4_mapped()) {
        ::inet_ntop(AF_INET, bytes.data() + mapped_prefix.size(), text, sizeof text);
    } else {
        ::inet_ntop(AF_INET6, bytes.data(), text, sizeof text);
    }
    return text;
}

std::optional<gid> parse_gid(std::string_view text) {
    const std::string plain(text.substr(0, text.find('%')));
    gid g;
    if (::inet_pton(AF_INET6, plain.c_str(), g.bytes.data()) == 1) return g;
    g.bytes[10] = g.bytes[11] = 0xff;
    if (::inet_pton(AF_INET, plain.c_str(), g.bytes.data() + 12) == 1) return g;
    return std::nullopt;
}

}  // namespace rvget::route
