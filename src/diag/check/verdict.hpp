#pragma once
// From what was seen between two ends to what is wrong. Pure.

#include <vector>

#include "diag/check/observations.hpp"
#include "diag/finding.hpp"

namespace rvget::diag {

/// The path MTU that both ends can use, over the GIDs' own netdevs: never more than a VLAN takes.
[[nodiscard]] std::uint32_t usable_mtu(const end_point& e);
[[nodiscard]] std::uint32_t common_mtu(const end_point& a, const end_point& b);

/// One finding per aspect of the path, then at most one verdict that fails and names the cause.
/// What fits no verdict is `path.unknown` with outcome error: it never guesses.
[[nodiscard]] std::vector<finding> judge_path(const observations& o);

/// The ids that judge_path() can give, each with what it means; for documentation.
struct path_finding {
    std::string_view id;
    std::string_view meaning;
};
[[nodiscard]] const std::vector<path_finding>& path_findings();

}  // namespace rvget::diag
