#pragma once
// Makes a failing schedule small enough for a person: fewer wishes, fewer steps out of order.

#include <chrono>

#include "engine/schedules/schedule.hpp"

namespace rvget::test {

struct shrunk {
    schedule what;
    choices order;
    outcome result;
};

/// Precondition: replaying `s` in `order` fails. Stops at the latest after `patience`.
[[nodiscard]] shrunk shrink(schedule s, choices order, std::chrono::milliseconds patience);

}  // namespace rvget::test
