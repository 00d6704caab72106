#pragma once
// Reading small kernel files that may be missing, refused, cut off or full of anything.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fabric/inventory/facts.hpp"

namespace rvget::fabric::inventory {

/// At most 64 KiB, trailing blanks cut; empty where it cannot be read or is not text.
[[nodiscard]] std::string read_text(const std::filesystem::path& file);
[[nodiscard]] std::optional<std::uint64_t> read_number(const std::filesystem::path& file);
/// Names in a directory, shorter before longer; none where it cannot be read.
[[nodiscard]] std::vector<std::string> names_in(const std::filesystem::path& directory);
/// Every file that holds a number, but "lifespan".
void read_counters(const std::filesystem::path& directory, counters& into);
/// The same of each directory, as of this call. The kernel answers reads of hw_counters from what
/// it last asked the device for, for "lifespan" milliseconds (10 unless changed; struct
/// rdma_hw_stats), so that a difference of two plain reads can miss all that a short run did. Waits
/// that time out, once for all and at most a second; whatever refreshes a counter meanwhile is late
/// enough, too.
[[nodiscard]] std::vector<counters> read_counters_now(
    std::span<const std::filesystem::path> directories);
/// Why a device node cannot be opened; empty if it can.
[[nodiscard]] std::string open_error(const std::filesystem::path& node);

}  // namespace rvget::fabric::inventory
