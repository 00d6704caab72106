#pragma once
// From one setting in milliseconds to the transport timer and retry count of a queue pair. Pure.

#include <chrono>
#include <cstdint>

namespace rvget::route {

/// What a Reliable Connection queue pair is given, and the window that comes of it: the time that
/// passes without any answer before a request ends in `retry_exceeded`. Hardware may take up to
/// four times as long (InfiniBand specification, 9.7.6.1.3: the timer may run up to 4 x its nominal
/// time).
struct retry_plan {
    std::uint8_t timeout_exponent =
        0;                         ///< the timer is 4.096 us x 2^exponent; never 0 (= no timer)
    std::uint8_t retry_count = 0;  ///< 1 to 6: 7 can mean for ever, 0 dies of one lost packet
    std::chrono::nanoseconds window{0};
};

/// The longest window that is not above `wished`; of equal ones the one with more retries, because
/// each survives one more lost packet. Below the shortest (2.1 ms) it is the shortest, above the
/// longest (17 h) the longest: compare `window` where that matters.
[[nodiscard]] retry_plan plan_retries(std::chrono::milliseconds wished = std::chrono::milliseconds{
                                          500}) noexcept;

}  // namespace rvget::route
