#pragma once
// How the library logs: one line, lowercase `key=value`, to the sink of <rvget/log.hpp>.

#include <string>
#include <string_view>

#include <rvget/log.hpp>

namespace rvget {

/// Whether a line of this level goes anywhere: ask before building a costly one.
[[nodiscard]] bool log_enabled(log_level level) noexcept;

/// Hands one line to the sink. Control characters in it become \xNN, so that what a peer or a file
/// said cannot forge a second line. Any thread, never throws; a line logged from within a sink is
/// dropped. Never pass a key or a handle.
void log(log_level level, std::string_view line) noexcept;

/// `text` as the value of a pair: as it is where it is one plain word, else in double quotes with
/// quotes, backslashes and control characters escaped.
[[nodiscard]] std::string quoted(std::string_view text);

}  // namespace rvget
