#pragma once
// The short table of devices, ports and GIDs, for people.

#include <string>

#include <boost/json/array.hpp>

#include "diag/rule.hpp"

namespace rvget::diag {

/// One line per port, and beneath it one per GID, best first; at most `most_gids` of them.
[[nodiscard]] std::string device_table(const inventory::facts& facts, std::size_t most_gids);
[[nodiscard]] boost::json::array device_list(const inventory::facts& facts);

}  // namespace rvget::diag
