#include "route/retry.hpp"

namespace rvget::route {

namespace {

// Shorter timers than 1 ms expire between two scheduler ticks of a software NIC and are rounded up
// by hardware, so that they would promise what no device keeps.
constexpr std::uint8_t min_exponent = 8;
constexpr std::uint8_t max_exponent = 31;
constexpr std::uint8_t max_retries = 6;

constexpr std::chrono::nanoseconds window_of(std::uint8_t exponent, std::uint8_t retries) noexcept {
    return std::chrono::nanoseconds{(std::int64_t{4096} << exponent) * (retries + 1)};
}

}  // namespace

retry_plan plan_retries(std::chrono::milliseconds wished) noexcept {
    retry_plan best{min_exponent, 1, window_of(min_exponent, 1)};
    // Few enough (144) to try them all. Smaller exponents come first, hence ties keep more retries.
    for (std::uint8_t exponent = min_exponent; exponent <= max_exponent; ++exponent) {
        for (std::uint8_t retries = 1; retries <= max_retries; ++retries) {
            const auto window = window_of(exponent, retries);
            if (window <= wished && window > best.window) best = {exponent, retries, window};
        }
    }
    return best;
}

}  // namespace rvget::route
