#pragma once
// How long operations took: every sample is kept, to three digits.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rvget::diag {

/// Log-linear buckets from 1 ns to 100 s: exact below 2048 ns, then 1024 buckets for each power of
/// two, so that a bucket's bounds differ by less than 0.1 %. Longer ones count as the longest, and
/// in overflowed(). Minimum, maximum, mean and deviation are exact. A value; not thread safe.
class latency_histogram {
public:
    static constexpr std::chrono::nanoseconds longest = std::chrono::seconds(100);

    void record(std::chrono::nanoseconds took);
    /// As if all that `other` has recorded had been recorded here.
    void merge(const latency_histogram& other);

    [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
    [[nodiscard]] std::uint64_t overflowed() const noexcept { return overflowed_; }
    // The rest: 0 where nothing was recorded.
    [[nodiscard]] std::chrono::nanoseconds min() const noexcept;
    [[nodiscard]] std::chrono::nanoseconds max() const noexcept;
    [[nodiscard]] double mean_ns() const noexcept;
    /// Of the samples as a whole population.
    [[nodiscard]] double deviation_ns() const noexcept;
    /// The smallest value of which at least `share` (0 to 1) of all samples are not longer, by its
    /// bucket's upper bound, and no more than max().
    [[nodiscard]] std::chrono::nanoseconds percentile(double share) const noexcept;

private:
    std::vector<std::uint64_t> counts_;  ///< grows to the longest bucket seen
    std::uint64_t count_ = 0;
    std::uint64_t overflowed_ = 0;
    std::uint64_t min_ = 0;
    std::uint64_t max_ = 0;
    double mean_ = 0;     ///< with squares_ by Welford's method: no cancellation
    double squares_ = 0;  ///< sum of squared distances from the mean
};

}  // namespace rvget::diag
