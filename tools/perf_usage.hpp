#pragma once
// What this end of a measurement has spent so far.

#include <boost/json/object.hpp>

#include <rvget/error.hpp>

#include "diag/perf_point.hpp"

namespace rvget::tools {

/// CPU time of this process, and the counters of all RDMA ports of this machine as they are.
[[nodiscard]] diag::end_usage usage_now();
/// What came on top of `before`.
[[nodiscard]] diag::end_usage usage_since(const diag::end_usage& before);

[[nodiscard]] boost::json::object to_json(const diag::end_usage& usage);
/// Exact inverse; a failure where it is something else.
[[nodiscard]] result<diag::end_usage> usage_from(const boost::json::object& o);
[[nodiscard]] diag::end_usage difference(const diag::end_usage& before,
                                         const diag::end_usage& after);

}  // namespace rvget::tools
