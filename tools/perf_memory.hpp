#pragma once
// What memory costs on this machine's device.

#include "command_line.hpp"

namespace rvget::tools {

/// Prints the costs of registering, deregistering and lending from the pool; the exit status.
int measure_memory(const command_line& line);

}  // namespace rvget::tools
