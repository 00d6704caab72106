#include "listen_address.hpp"

#include <string>

#include <boost/asio/ip/address.hpp>

#include "console.hpp"

namespace rvget::tools {

result<endpoint_address> parse_listen(std::string_view text, std::string_view option,
                                      std::uint16_t port) {
    const auto after_host = text.starts_with('[') ? text.find(']') : 0;
    const auto colon = text.find(':', after_host == std::string_view::npos ? 0 : after_host);
    const bool free_port = colon != std::string_view::npos && text.substr(colon) == ":0";
    const bool no_port = colon == std::string_view::npos;
    const std::string host(text.substr(0, free_port ? colon : text.size()));
    auto address = endpoint_address::parse(free_port || no_port ? host + ":1" : host);
    if (!address) {
        return failure{address.error().code, "--" + std::string(option) + " '" + std::string(text) +
                                                 "': " + sentence_of(address.error()) +
                                                 "; give HOST, HOST:PORT or [IPV6]:PORT"};
    }
    if (free_port) address->port = 0;
    if (no_port) address->port = port;
    return address;
}

bool is_loopback(const endpoint_address& at) {
    error_code ec;
    const auto address = boost::asio::ip::make_address(at.host, ec);
    return !ec && address.is_loopback();
}

}  // namespace rvget::tools
