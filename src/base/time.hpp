#pragma once
// Time as the library sees it: a steady clock that tests replace. Durations travel on the wire,
// never points in time.

#include <chrono>

namespace rvget {

using duration = std::chrono::nanoseconds;
using time_point = std::chrono::time_point<std::chrono::steady_clock, duration>;

}  // namespace rvget
