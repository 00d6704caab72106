#pragma once
// The option that says how queue pairs are wired up.

#include <optional>

#include <rvget/config.hpp>
#include <rvget/error.hpp>

#include "command_line.hpp"

namespace rvget::tools {

/// --wireup.
void add_wireup(command_line& line);
/// None where it was not given: then it is as the environment says.
[[nodiscard]] result<std::optional<wireup_choice>> read_wireup(const command_line& line);

}  // namespace rvget::tools
