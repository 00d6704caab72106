#pragma once
// Sizes and times as people write and read them.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rvget::tools {

/// "4096", "64K", "16M", "1G" (powers of 1024); none for anything else, or beyond 64 bits.
std::optional<std::uint64_t> parse_bytes(std::string_view text);

/// "64.0 MiB".
std::string format_bytes(std::uint64_t bytes);

/// "1.234ms", "2.500s": three decimals, without a blank, so that it can be a value of a pair.
std::string format_time(std::chrono::nanoseconds t);

}  // namespace rvget::tools
