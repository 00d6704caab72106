#pragma once
// Whether a measurement is good enough: against requirements, and against an earlier one.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rvget/error.hpp>

#include "diag/perf_point.hpp"

namespace rvget::diag {

/// "p99_us<=20@8", "bw_gbps>=380": a figure of perf_point::figures(), a bound, at one size or all.
struct perf_requirement {
    std::string text;
    std::string figure;
    bool at_least = false;  ///< else at most
    double bound = 0;
    std::optional<std::uint64_t> size_bytes;

    /// `size` reads what follows the '@'; nothing where it is no size.
    static result<perf_requirement> parse(std::string_view text,
                                          std::optional<std::uint64_t> (*size)(std::string_view));
};

struct perf_verdict {
    std::string subject;  ///< the requirement, or what was compared
    bool held = true;
    std::string message;
};

/// One for each requirement: held if all points that it is about hold it, and there is one.
[[nodiscard]] std::vector<perf_verdict> judge(const std::vector<perf_requirement>& required,
                                              const std::vector<perf_point>& points);

/// What an earlier run measured, by perf_point::key().
struct perf_baseline {
    struct entry {
        spread gigabits_per_s;
        spread typical_us;
    };
    std::map<std::string, entry> points;

    /// From the output of `rvget perf --json`; fails where it has no point or is something else.
    static result<perf_baseline> parse(std::string_view json_lines);
};

/// For each point that both have: the ratios to before, and not held where it got worse and the
/// runs of now and of then do not overlap. A point that the baseline does not have is not held: a
/// comparison that did not take place must not pass.
[[nodiscard]] std::vector<perf_verdict> compare(const perf_baseline& before,
                                                const std::vector<perf_point>& now);

}  // namespace rvget::diag
