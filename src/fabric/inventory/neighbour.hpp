#pragma once
// Whom the kernel has on a link: its table of neighbours (ARP for IPv4, ND for IPv6).

#include <string>

namespace rvget::fabric::inventory {

struct neighbour {
    std::string mac;
    std::string state;  ///< "reachable", "stale", "failed" and so on (ip-neighbour(8)); empty: none
};

/// The entry of a numeric address without a scope; the most alive one where several netdevs have
/// one. Asks nobody: what was never sent to has no entry.
[[nodiscard]] neighbour neighbour_of(const std::string& address);

}  // namespace rvget::fabric::inventory
