#include "diag/load_schedule.hpp"

#include <cmath>

namespace rvget::diag {

load_schedule::time_point load_schedule::due() const noexcept {
    // From the start, not from the one before: rounding does not add up.
    const std::chrono::duration<double> after(static_cast<double>(begun_) / options_.rate);
    return begin_ + std::chrono::duration_cast<std::chrono::nanoseconds>(after);
}

bool load_schedule::more(time_point now) const noexcept {
    if (stopped_ || (options_.iterations && begun_ >= *options_.iterations)) return false;
    if (!options_.duration) return true;
    const auto end = begin_ + *options_.duration;
    if (options_.rate <= 0) return now < end;
    return due() < end && now < end + catching_up_limit(*options_.duration);
}

std::uint64_t load_schedule::never_begun() const noexcept {
    // Stopped, it was not the time that was missing.
    if (stopped_ || options_.rate <= 0 || !options_.duration) return 0;
    const auto in_time =
        std::ceil(options_.rate * std::chrono::duration<double>(*options_.duration).count());
    auto due = static_cast<std::uint64_t>(in_time);
    if (options_.iterations) due = std::min(due, *options_.iterations);
    return due > begun_ ? due - begun_ : 0;
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
