#include "diag/latency_histogram.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace rvget::diag {
namespace {

constexpr unsigned linear_bits = 10;
constexpr std::uint64_t per_octave = std::uint64_t{1} << linear_bits;

std::size_t bucket_of(std::uint64_t ns) noexcept {
    if (ns < 2 * per_octave) return ns;
    const auto shift = static_cast<unsigned>(std::bit_width(ns)) - (linear_bits + 1);
    return shift * per_octave + (ns >> shift);
}

/// The largest value that falls into it.
std::uint64_t upper_bound_of(std::size_t bucket) noexcept {
    if (bucket < 2 * per_octave) return bucket;
    const auto shift = bucket / per_octave - 1;
    return ((bucket - shift * per_octave + 1) << shift) - 1;
}

}  // namespace

void latency_histogram::record(std::chrono::nanoseconds took) {
    const auto given = static_cast<std::uint64_t>(std::max<std::int64_t>(took.count(), 0));
    const auto most = static_cast<std::uint64_t>(longest.count());
    if (given > most) ++overflowed_;
    const auto bucket = bucket_of(std::min(given, most));
    if (bucket >= counts_.size()) counts_.resize(bucket + 1);
    ++counts_[bucket];
    min_ = count_ == 0 ? given : std::min(min_, given);
    max_ = std::max(max_, given);
    ++count_;
    const double away = static_cast<double>(given) - mean_;
    mean_ += away / static_cast<double>(count_);
    squares_ += away * (static_cast<double>(given) - mean_);
}

void latency_histogram::merge(const latency_histogram& other) {
    if (other.count_ == 0) return;
    if (count_ == 0) {
        *this = other;
        return;
    }
    counts_.resize(std::max(counts_.size(), other.counts_.size()));
    for (std::size_t i = 0; i < other.counts_.size(); ++i) counts_[i] += other.counts_[i];
    min_ = std::min(min_, other.min_);
    max_ = std::max(max_, other.max_);
    overflowed_ += other.overflowed_;
    const auto here = static_cast<double>(count_);
    const auto there = static_cast<double>(other.count_);
    const double apart = other.mean_ - mean_;
    mean_ += apart * there / (here + there);
    squares_ += other.squares_ + apart * apart * here * there / (here + there);
    count_ += other.count_;
}

std::chrono::nanoseconds latency_histogram::min() const noexcept {
    return std::chrono::nanoseconds(min_);
}

std::chrono::nanoseconds latency_histogram::max() const noexcept {
    return std::chrono::nanoseconds(max_);
}

double latency_histogram::mean_ns() const noexcept { return mean_; }

double latency_histogram::deviation_ns() const noexcept {
    return count_ == 0 ? 0 : std::sqrt(squares_ / static_cast<double>(count_));
}

std::chrono::nanoseconds latency_histogram::percentile(double share) const noexcept {
    if (count_ == 0) return {};
    const auto wanted = std::clamp<std::uint64_t>(
        static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(count_))), 1, count_);
    std::uint64_t seen = 0;
    std::size_t bucket = 0;
    while ((seen += counts_[bucket]) < wanted) ++bucket;
    // The last bucket also holds what is longer than it.
    const auto bound = bucket + 1 == counts_.size() ? max_ : upper_bound_of(bucket);
    return std::chrono::nanoseconds(std::clamp(bound, min_, max_));
}

}  // namespace rvget::diag
