#pragma once
// Bandwidth and latency against size, as a picture.

#include <string>
#include <vector>

#include "diag/perf_point.hpp"

namespace rvget::diag {

/// An SVG document: above, the bandwidth of each operation against size; beneath, its typical
/// latency, with a band from the shortest to 99 of 100. All axes are logarithmic.
[[nodiscard]] std::string to_svg(const std::vector<perf_point>& points);

}  // namespace rvget::diag
