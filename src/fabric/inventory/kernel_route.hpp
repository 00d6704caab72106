#pragma once
// Where the kernel would send a packet: its own route lookup, not a guess from addresses and masks.

#include <cstdint>
#include <string>
#include <vector>

#include <rvget/error.hpp>

namespace rvget::fabric::inventory {

struct kernel_route {
    std::string source;   ///< the address that the packet would bear
    std::string netdev;   ///< that it would leave by
    std::string gateway;  ///< empty: the destination is on the link
    bool local = false;   ///< the destination is this machine
};

/// The numeric addresses of `host` (a name or an address, with "%scope" where it needs one), in
/// the resolver's order. Blocks for the resolver.
[[nodiscard]] result<std::vector<std::string>> resolve(const std::string& host);

/// One lookup of the routing tables for a numeric address, with all rules (netlink, RTM_GETROUTE):
/// for a packet that bears `source`, an address of this machine and that family's, or where that is
/// empty the one that the kernel chooses. `connect_failed` with the next step where the kernel has
/// no route, `invalid_argument` for what is no address, the unspecified one, or a link-local one
/// that does not say on which link. An IPv4-mapped address goes by IPv4.
[[nodiscard]] result<kernel_route> route_to(const std::string& address,
                                            const std::string& source = {});

}  // namespace rvget::fabric::inventory
