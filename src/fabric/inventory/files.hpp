#pragma once
// Reading small kernel files that may be missing, refused, cut off or full of anything.

#include <cstdint>
#include <filesystem>
#include <optional>
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
/// Why a device node cannot be opened; empty if it can.
[[nodiscard]] std::string open_error(const std::filesystem::path& node);

}  // namespace rvget::fabric::inventory
