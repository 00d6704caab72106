#include "quantity.hpp"

#include <array>
#include <charconv>
#include <cstdio>
#include <limits>

namespace rvget::tools {

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{}) {
        return std::nullopt;
    }
    const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
    constexpr std::string_view units = "KMGT";
    if (unit.empty()) {
        return value;
    }
    const auto at = units.find(unit.front());
    if (unit.size() != 1 || at == std::string_view::npos) {
        return std::nullopt;
    }
    const auto shift = 10 * (static_cast<unsigned>(at) + 1);
    if (value > std::numeric_limits<std::uint64_t>::max() >> shift) {
        return std::nullopt;
    }
    return value << shift;
}

std::string format_bytes(std::uint64_t bytes) {
    if (bytes < 1024) {
        return std::to_string(bytes) + " B";
    }
    constexpr std::array units{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = static_cast<double>(bytes) / 1024;
    std::size_t unit = 0;
    while (value >= 1024 && unit + 1 < units.size()) {
        value /= 1024;
        ++unit;
    }
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.1f %s", value, units[unit]);
    return text.data();
}

std::string format_time(std::chrono::nanoseconds t) {
    const auto ns = static_cast<double>(t.count());
    std::array<char, 32> text{};
    if (ns < 1e9) {
        std::snprintf(text.data(), text.size(), "%.3fms", ns / 1e6);
    } else {
        std::snprintf(text.data(), text.size(), "%.3fs", ns / 1e9);
    }
    return text.data();
}

}  // namespace rvget::tools
