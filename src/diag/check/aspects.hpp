#pragma once
// What was seen of each aspect of a path, judged by itself: no cause is named here. Pure.

#include <vector>

#include "diag/check/observations.hpp"
#include "diag/finding.hpp"

namespace rvget::diag {

/// Precondition: a pair was tried.
[[nodiscard]] std::vector<finding> aspects_of(const observations& o);

}  // namespace rvget::diag
