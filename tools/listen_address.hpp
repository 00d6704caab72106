#pragma once
// Where a subcommand listens, as people write it.

#include <cstdint>
#include <string_view>

#include <rvget/error.hpp>
#include <rvget/handle.hpp>

namespace rvget::tools {

/// "HOST", "HOST:PORT" with port 0 for a free one, brackets around an IPv6 literal. `option` is for
/// the failure's sentence; `port` is taken where the text has none.
result<endpoint_address> parse_listen(std::string_view text, std::string_view option = "listen",
                                      std::uint16_t port = 0);

/// Whether only this machine can reach it.
bool is_loopback(const endpoint_address& at);

}  // namespace rvget::tools
