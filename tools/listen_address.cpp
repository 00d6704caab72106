#include "listen_address.hpp"

#include <algorithm>
#include <charconv>
#include <string>

#include <boost/asio/ip/address.hpp>

#include "console.hpp"

namespace rvget::tools {

result<std::uint16_t> parse_port(std::string_view text, std::string_view where, port_range range) {
    std::uint16_t port = 0;
    const auto* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, port);
    if (error == std::errc{} && rest == end && !text.empty() &&
        (port != 0 || range == port_range::any)) {
        return port;
    }
    return failure{request_errc::invalid_argument,
                   std::string(where) + " '" + std::string(text) + "' is no port: give " +
                       (range == port_range::any ? "0 (a free one) to 65535" : "1 to 65535")};
}

result<named_place> parse_place(std::string_view text, port_range range) {
    const auto close = text.starts_with('[') ? text.find(']') : std::string_view::npos;
    const bool bracketed = close != std::string_view::npos;
    const bool bare = !bracketed && text.find(':') != text.rfind(':');
    const auto colon = bare ? std::string_view::npos : text.find(':', bracketed ? close : 0);
    const auto end = std::min(colon, text.size());
    named_place at{std::string(bracketed ? text.substr(1, close - 1) : text.substr(0, end)), {}};
    if (at.host.empty() || at.host.starts_with('[') || (bracketed && close + 1 != end)) {
        return failure{
            request_errc::invalid_argument,
            "'" + std::string(text) + "' is no address: give HOST, HOST:PORT or [IPV6]:PORT"};
    }
    if (colon == std::string_view::npos) return at;
    const auto port = parse_port(text.substr(colon + 1), "in '" + std::string(text) + "'", range);
    if (!port) return port.error();
    at.port = *port;
    return at;
}

result<endpoint_address> parse_listen(std::string_view text, std::string_view option,
                                      std::uint16_t port) {
    const auto where = "--" + std::string(option) + ": ";
    const auto place = parse_place(text, port_range::any);
    if (!place) return failure{place.error().code, where + sentence_of(place.error())};
    // What a URL could not hold is no place for an owner.
    const endpoint_address at{place->host, place->port.value_or(port)};
    const auto again = endpoint_address::parse(endpoint_address{at.host, 1}.to_string());
    if (again) return at;
    return failure{again.error().code, where + "'" + std::string(text) +
                                           "': " + sentence_of(again.error()) +
                                           "; give HOST, HOST:PORT or [IPV6]:PORT"};
}

bool is_loopback(const endpoint_address& at) {
    error_code ec;
    const auto address = boost::asio::ip::make_address(at.host, ec);
    return !ec && address.is_loopback();
}

}  // namespace rvget::tools
