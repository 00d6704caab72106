#include <rvget/handle.hpp>

#include <algorithm>
#include <array>
#include <charconv>

#include <arpa/inet.h>

namespace rvget {
namespace {

constexpr std::size_t handle_digits = 32;
constexpr std::string_view scheme = "rvget://";
constexpr std::size_t max_host_characters = 253;  // RFC 1035 2.3.4, without the length octets
constexpr std::size_t max_label_characters = 63;

/// What is wrong with a text, and the offset of the first character that is. A handle is a secret:
/// the sentence names positions and single characters, never the text.
struct complaint {
    std::size_t offset;
    std::string what;

    [[nodiscard]] failure as(request_errc code, std::string_view subject,
                             std::size_t origin) const {
        return {code, std::string(subject) + ": " + what + " at position " +
                          std::to_string(origin + offset + 1)};
    }
};
template <class T>
using parsed = boost::system::result<T, complaint>;

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
bool is_letter(char c) noexcept { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string shown(char c) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte > 0x20 && byte < 0x7f) {
        return std::string("'") + c + "'";
    }
    std::array<char, 2> digits{'0', '0'};
    std::to_chars(byte < 16 ? &digits[1] : &digits[0], digits.data() + 2, byte, 16);
    return "byte 0x" + std::string(digits.data(), digits.size());
}

void append_hexadecimal(std::string& to, std::uint64_t value) {
    constexpr char digits[] = "0123456789abcdef";
    for (int shift = 60; shift >= 0; shift -= 4) {
        to += digits[(value >> shift) & 0xf];
    }
}

parsed<handle> parse_handle(std::string_view text) {
    std::array<std::uint64_t, 2> halves{};
    for (std::size_t i = 0; i < std::min(text.size(), handle_digits); ++i) {
        const char c = text[i];
        if (!is_digit(c) && !(c >= 'a' && c <= 'f')) {
            return complaint{i, shown(c) + " is not a lower-case hexadecimal digit"};
        }
        const int nibble = is_digit(c) ? c - '0' : c - 'a' + 10;
        std::uint64_t& half = halves[i / 16];
        half = half << 4 | static_cast<std::uint64_t>(nibble);
    }
    if (text.size() != handle_digits) {
        return complaint{std::min(text.size(), handle_digits),
                         (text.size() < handle_digits ? "ends early, " : "goes on, ") +
                             std::to_string(text.size()) + " characters where 32 are wanted,"};
    }
    return handle{node_id{halves[0]}, halves[1]};
}

/// RFC 952 and 1123 names, IPv4 literals among them; `_` too, which resolvers and containers use.
parsed<std::string> parse_name(std::string_view text) {
    if (text.size() > max_host_characters) {
        return complaint{max_host_characters, "the host is longer than 253 characters"};
    }
    std::size_t label = 0;  // where the present one begins
    for (std::size_t i = 0; i <= text.size(); ++i) {
        if (i == text.size() || text[i] == '.') {
            if (i == label) {
                return complaint{i, i == 0 && text.empty() ? "the host is empty"
                                                           : "the host has an empty label"};
            }
            if (i - label > max_label_characters) {
                return complaint{label + max_label_characters,
                                 "the host has a label longer than 63 characters"};
            }
            label = i + 1;
        } else if (!is_letter(text[i]) && !is_digit(text[i]) && text[i] != '_' &&
                   (text[i] != '-' || i == label)) {
            return complaint{i, shown(text[i]) + " does not belong in a host there"};
        }
    }
    return std::string(text);
}

/// An IPv6 literal, with the zone that a link-local one needs ("fe80::1%eth0", RFC 4007 11).
parsed<std::string> parse_ipv6(std::string_view text) {
    const std::size_t percent = std::min(text.find('%'), text.size());
    in6_addr ignored{};
    // A view is not terminated, and an embedded zero byte must not end the literal early.
    const std::string literal(text.substr(0, percent));
    if (literal.find('\0') != std::string::npos ||
        ::inet_pton(AF_INET6, literal.c_str(), &ignored) != 1) {
        return complaint{0, "no IPv6 literal is in the brackets that begin"};
    }
    if (percent < text.size()) {
        const std::string_view zone = text.substr(percent + 1);
        const auto foreign = std::ranges::find_if(zone, [](char c) {
            return !is_letter(c) && !is_digit(c) && c != '.' && c != '_' && c != '-';
        });
        if (zone.empty() || foreign != zone.end()) {
            const auto at = static_cast<std::size_t>(foreign - zone.begin());
            return complaint{percent + 1 + at, "no interface name follows the '%'"};
        }
    }
    return std::string(text);
}

parsed<std::uint16_t> parse_port(std::string_view text) {
    const auto foreign = std::ranges::find_if_not(text, is_digit);
    if (foreign != text.end()) {
        return complaint{static_cast<std::size_t>(foreign - text.begin()),
                         shown(*foreign) + " is not a digit of a port"};
    }
    if (text.empty()) {
        return complaint{0, "the port is empty"};
    }
    if (text.front() == '0') {
        return complaint{0, "the port begins with 0"};
    }
    std::uint16_t port = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), port).ec != std::errc{}) {
        return complaint{0, "the port is larger than 65535"};
    }
    return parsed<std::uint16_t>(boost::system::in_place_value, port);
}

template <class T>
complaint moved(const parsed<T>& refused, std::size_t by) {
    return {refused.error().offset + by, refused.error().what};
}

parsed<endpoint_address> parse_endpoint(std::string_view text) {
    const bool bracketed = text.starts_with('[');
    std::size_t colon = 0;
    if (bracketed) {
        const std::size_t close = text.find(']');
        if (close == std::string_view::npos) {
            return complaint{text.size(), "a ']' is missing"};
        }
        colon = close + 1;
        if (colon == text.size() || text[colon] != ':') {
            return complaint{colon, "a ':' and the port are missing"};
        }
    } else {
        colon = text.find(':');
        if (colon == std::string_view::npos) {
            return complaint{text.size(), "a ':' and the port are missing"};
        }
        if (const std::size_t second = text.find(':', colon + 1);
            second != std::string_view::npos) {
            return complaint{second, "a second ':' (an IPv6 literal goes in brackets)"};
        }
    }
    auto host =
        bracketed ? parse_ipv6(text.substr(1, colon - 2)) : parse_name(text.substr(0, colon));
    if (!host) {
        return moved(host, bracketed ? 1 : 0);
    }
    const auto port = parse_port(text.substr(colon + 1));
    if (!port) {
        return moved(port, colon + 1);
    }
    return endpoint_address{*std::move(host), *port};
}

}  // namespace

std::string handle::to_string() const {
    std::string out;
    out.reserve(handle_digits);
    append_hexadecimal(out, owner.value);
    append_hexadecimal(out, slot);
    return out;
}

result<handle> handle::parse(std::string_view text) {
    const auto read = parse_handle(text);
    if (!read) {
        return read.error().as(request_errc::malformed_handle, "handle", 0);
    }
    return *read;
}

std::string endpoint_address::to_string() const {
    const bool bracketed = host.find(':') != std::string::npos;
    return (bracketed ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

result<endpoint_address> endpoint_address::parse(std::string_view text) {
    const auto read = parse_endpoint(text);
    if (!read) {
        return read.error().as(request_errc::invalid_argument, "address", 0);
    }
    return *read;
}

std::string url::to_string() const {
    return std::string(scheme) + address.to_string() + "/" + handle.to_string();
}

result<url> url::parse(std::string_view text) {
    const auto refuse = [](const complaint& c, std::size_t origin) {
        return c.as(request_errc::malformed_handle, "url", origin);
    };
    if (!text.starts_with(scheme)) {
        const auto differs = std::ranges::mismatch(text, scheme).in1 - text.begin();
        return refuse({static_cast<std::size_t>(differs), "it does not begin with rvget://,"}, 0);
    }
    const std::string_view rest = text.substr(scheme.size());
    const std::size_t slash = rest.find('/');
    if (slash == std::string_view::npos) {
        return refuse({text.size(), "a '/' and the handle are missing"}, 0);
    }
    const auto address = parse_endpoint(rest.substr(0, slash));
    if (!address) {
        return refuse(address.error(), scheme.size());
    }
    const auto name = parse_handle(rest.substr(slash + 1));
    if (!name) {
        return refuse(name.error(), scheme.size() + slash + 1);
    }
    return url{*address, *name};
}

}  // namespace rvget
