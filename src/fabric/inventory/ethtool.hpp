#pragma once
#include "fabric/inventory/facts.hpp"

namespace rvget::fabric::inventory {

/// Pause frames, rings, coalescing, offloads and the error counters of a netdev of this machine, as
/// far as its driver tells. Needs no privilege.
void add_ethtool(netdev& n);

}  // namespace rvget::fabric::inventory
