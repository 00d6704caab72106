#pragma once
// Points of a measurement as text, JSON and CSV.

#include <string>
#include <vector>

#include <boost/json/object.hpp>

#include "diag/perf_point.hpp"

namespace rvget::diag {

inline constexpr std::string_view perf_schema = "rvget.perf/1";

/// An object of the schema with this `type`: "start", "point", "interval" or "end".
[[nodiscard]] boost::json::object perf_record(std::string_view type);
[[nodiscard]] boost::json::object to_json(const perf_point& p);

/// The columns' names, as perftest has them and more, and a point's line beneath them.
[[nodiscard]] std::string perf_heading();
[[nodiscard]] std::string to_line(const perf_point& p);

[[nodiscard]] std::string to_csv(const std::vector<perf_point>& points);

}  // namespace rvget::diag
