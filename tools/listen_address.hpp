#pragma once
// Places in the network, as people write them: HOST, HOST:PORT, an IPv6 address (which has no port
// then), [IPV6] or [IPV6]:PORT.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <rvget/error.hpp>
#include <rvget/handle.hpp>

namespace rvget::tools {

/// Which ports make sense: 0 is a free one, for who listens.
enum class port_range : std::uint8_t { any, not_0 };

/// A port alone. `where` begins the failure's sentence.
result<std::uint16_t> parse_port(std::string_view text, std::string_view where, port_range range);

struct named_place {
    std::string host;  ///< without brackets; a name, or an address with "%scope" where it needs one
    std::optional<std::uint16_t> port;
};
result<named_place> parse_place(std::string_view text, port_range range);

/// A place to listen at, or one that does. `option` begins the failure's sentence; `port` is taken
/// where the text has none.
result<endpoint_address> parse_listen(std::string_view text, std::string_view option = "listen",
                                      std::uint16_t port = 0);

/// Whether only this machine can reach it.
bool is_loopback(const endpoint_address& at);

}  // namespace rvget::tools
