#pragma once
// What a step was, for the person who reads the trace of a failed schedule.

#include <string>

#include "wire/frames.hpp"

namespace rvget::test {

[[nodiscard]] std::string describe_frame(const wire::frame& f);

}  // namespace rvget::test
