#pragma once
// A path against what a site expects of it (--expect FILE). Pure.

#include "diag/check/observations.hpp"
#include "diag/finding.hpp"
#include "diag/rule.hpp"

namespace rvget::diag {

/// `path.expected`: mtu_bytes, rate_mbps, gid_family and bandwidth_mbps of the pair in use; what
/// else `expected` has is about a machine, and doctor's. A skip where nothing could be compared.
[[nodiscard]] finding judge_expected(const observations& o, const expectations& expected);

}  // namespace rvget::diag
