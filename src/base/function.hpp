#pragma once
// The move-only callable that the public headers already need.

#include <rvget/detail/function.hpp>

namespace rvget {
using detail::unique_function;
}  // namespace rvget
