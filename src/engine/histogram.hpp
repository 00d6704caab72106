#pragma once
// How long things took, by upper bound: what the metrics show as a histogram.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/time.hpp"

namespace rvget::engine {

/// Plain numbers, written on the strand.
class duration_histogram {
public:
    /// In seconds: from a READ over a fast NIC to a get that took all of its default deadline.
    static constexpr std::array<double, 14> bounds{10e-6,  25e-6, 100e-6, 250e-6, 1e-3,
                                                   2.5e-3, 10e-3, 25e-3,  100e-3, 250e-3,
                                                   1.0,    2.5,   10.0,   30.0};

    void record(duration d) noexcept {
        const double seconds = std::chrono::duration<double>(d).count();
        const auto at = std::ranges::lower_bound(bounds, seconds) - bounds.begin();
        ++counts_[static_cast<std::size_t>(at)];
        sum_ += seconds;
    }

    /// One for each bound, not cumulative, and one for what was longer.
    [[nodiscard]] const auto& counts() const noexcept { return counts_; }
    [[nodiscard]] double sum_seconds() const noexcept { return sum_; }

private:
    std::array<std::uint64_t, bounds.size() + 1> counts_{};
    double sum_ = 0;
};

}  // namespace rvget::engine
