#pragma once
// What a check saw of the network between its ends: routes, neighbours, routers, parallel links,
// ports. Pure.

#include <vector>

#include "diag/check/observations.hpp"
#include "diag/finding.hpp"

namespace rvget::diag {

/// One finding each. Precondition: there is a pair.
[[nodiscard]] std::vector<finding> network_aspects(const observations& o);

/// Of the counters with which a port says that frames were too large for it.
[[nodiscard]] std::uint64_t oversize(const std::map<std::string, std::uint64_t>& port);

}  // namespace rvget::diag
