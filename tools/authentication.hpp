#pragma once
// The options by which a subcommand proves who it is and asks others to: --secret-file and --tls-*.

#include <rvget/config.hpp>

#include "command_line.hpp"

namespace rvget::tools {

void add_authentication(command_line& line);

/// Reads the files that the options name into `o`. Says so on standard error where others than its
/// owner may read a secret.
result<void> read_authentication(const command_line& line, node_options& o);

}  // namespace rvget::tools
