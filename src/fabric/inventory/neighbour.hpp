#pragma once
// Whom the kernel has on a link: its table of neighbours (ARP for IPv4, ND for IPv6).

#include <string>

namespace rvget::fabric::inventory {

struct neighbour {
    std::string mac;
    std::string state;  ///< "reachable", "stale", "failed" and so on (ip-neighbour(8)); empty: none
};

/// The entry of a numeric address without a scope on a netdev; where that is empty, the most alive
/// one of all netdevs. Asks nobody: what was never sent to has no entry.
[[nodiscard]] neighbour neighbour_of(const std::string& address, const std::string& netdev);

/// Whether it is known to answer as things are, by its state: not only that it did once.
[[nodiscard]] bool known_to_answer(const std::string& state);

}  // namespace rvget::fabric::inventory
