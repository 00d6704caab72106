#pragma once
// The library's options by the names that the command's own options have.

#include <string>

#include <rvget/config.hpp>

namespace rvget::tools {

/// The sentence with the option ("--arena") in the place of the member of node_options
/// ("first_arena_bytes") that it sets. Not for sentences that name files.
std::string by_option_names(std::string sentence);

/// node_options::validate() in those words.
result<void> validated(const node_options& o);

}  // namespace rvget::tools
