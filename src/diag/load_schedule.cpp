#include "diag/load_schedule.hpp"

namespace rvget::diag {

load_schedule::time_point load_schedule::due() const noexcept {
    // From the start, not from the one before: rounding does not add up.
    const std::chrono::duration<double> after(static_cast<double>(begun_) / options_.rate);
    return begin_ + std::chrono::duration_cast<std::chrono::nanoseconds>(after);
}

bool load_schedule::more(time_point now) const noexcept {
    if (stopped_ || (options_.iterations && begun_ >= *options_.iterations)) return false;
    if (!options_.duration) return true;
    // What was due before the end is still begun after it, else a stall at the end would not count.
    return (options_.rate > 0 ? due() : now) < begin_ + *options_.duration;
}

std::optional<load_schedule::time_point> load_schedule::begin(time_point now) noexcept {
    if (in_flight_ >= options_.depth || !more(now)) return std::nullopt;
    const auto from = options_.rate > 0 ? due() : now;
    if (from > now) return std::nullopt;
    ++begun_;
    ++in_flight_;
    return from;
}

std::optional<load_schedule::time_point> load_schedule::next_due(time_point now) const noexcept {
    if (options_.rate <= 0 || in_flight_ >= options_.depth || !more(now)) return std::nullopt;
    return due();
}

}  // namespace rvget::diag
