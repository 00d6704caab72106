#pragma once
// A choice of route as an embedder sees it.

#include <string>

#include <rvget/error.hpp>
#include <rvget/route.hpp>

#include "base/function.hpp"
#include "route/choose.hpp"

namespace rvget {

/// Resolves `host`, asks the kernel for its route there, and tells what `choose` makes of it.
/// Blocking. Fails where `host` does not resolve or the kernel has no route.
[[nodiscard]] result<route_explanation> explain_route(
    const std::string& host, unique_function<route::choice(const route::control_path&)> choose);

}  // namespace rvget
