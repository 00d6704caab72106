#pragma once
// Repeated measurements of one thing.

#include <algorithm>
#include <cstddef>
#include <vector>

namespace rvget::diag {

/// The median, and between which values all of them lie. All 0 where there is none.
struct spread {
    double median = 0;
    double low = 0;
    double high = 0;

    static spread of(std::vector<double> values) {
        if (values.empty()) return {};
        std::sort(values.begin(), values.end());
        const std::size_t half = values.size() / 2;
        const bool odd = values.size() % 2 == 1;
        return {odd ? values[half] : (values[half - 1] + values[half]) / 2, values.front(),
                values.back()};
    }
    /// How far apart they are, as a part of the median.
    [[nodiscard]] double relative() const { return median == 0 ? 0 : (high - low) / median; }
};

}  // namespace rvget::diag
