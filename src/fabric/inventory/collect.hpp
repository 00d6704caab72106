#pragma once
// Learns the facts of this machine, or of a recorded tree of files. Reads only.

#include <filesystem>

#include "fabric/fabric.hpp"
#include "fabric/inventory/facts.hpp"

namespace rvget::fabric::inventory {

/// What the files below `root`/sys, `root`/proc and `root`/dev say ("/" for this machine). Never
/// fails: what is unreadable, truncated or senseless is left out, and noted where a rule needs it.
/// Bounded in time by the number of files: none is read beyond 64 KiB.
[[nodiscard]] facts from_files(const std::filesystem::path& root);

/// Adds what only calls can tell, of this machine: libibverbs, netlink, ethtool, limits, addresses.
void add_live(facts& f);

/// Only counters, again: `growth` becomes the difference to those in `f`.
void add_growth(facts& f, std::uint64_t watched_ms);

}  // namespace rvget::fabric::inventory
