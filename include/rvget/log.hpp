#pragma once
// Where the library's log lines go. The logger is the one piece of global state of the process that
// the library keeps, and it is replaceable.

#include <cstdint>
#include <functional>
#include <string_view>

namespace rvget {

/// Severity, least first.
enum class log_level : std::uint8_t { trace, debug, info, warning, error, off };

/// "trace" ... "error", "off"; "unknown" for anything else.
std::string_view to_string(log_level level) noexcept;

/// Takes one line: lowercase `key=value` pairs, without time, level or line end, and without
/// control characters. The view is valid during the call only.
using log_sink = std::function<void(log_level level, std::string_view line)>;

/// Sends all further lines to `sink`; an empty one restores the default (standard error, with time
/// and level). Any thread may call it, but not a sink. The sink is called from any thread of the
/// library, one line at a time; what it throws is swallowed. When this returns, the sink before it
/// is not running and never runs again.
void set_log_sink(log_sink sink);

/// Drops lines below `level` (default: info). Any thread.
void set_log_level(log_level level) noexcept;

}  // namespace rvget
