#pragma once
// What `rvget perf` is to measure.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rvget/config.hpp>
#include <rvget/error.hpp>

#include "command_line.hpp"
#include "diag/perf_limits.hpp"
#include "perf_load.hpp"
#include "perf_session.hpp"
#include "route_pins.hpp"

namespace rvget::tools {

/// The port where it is not given.
inline constexpr std::uint16_t perf_port = 18'518;

/// Slots of a point: its gets take turns, and no byte of one is like that of the other.
inline constexpr std::uint64_t perf_slots = 2;

struct perf_settings {
    std::optional<endpoint_address> owner;  ///< none: one of its own, in a child process
    endpoint_address own_at;                ///< where that one listens
    std::uint64_t budget_bytes = 0;         ///< of what that one stages
    route_pins pins;
    std::optional<wireup_choice> wireup;  ///< none: as the environment says

    std::vector<perf_operation> operations;
    std::vector<std::uint64_t> sizes;
    std::vector<std::uint32_t> depths;
    double rate = 0;
    std::optional<std::uint64_t> iterations;
    std::optional<std::chrono::nanoseconds> duration;
    std::chrono::nanoseconds warmup{0};
    std::chrono::milliseconds interval{0};
    std::chrono::milliseconds deadline{0};
    std::uint32_t repeat = 1;
    path_policy policy = path_policy::prefer;
    bool cold = false;
    bool verify_all = true;  ///< else one transfer in the warm-up
    bool pinned = true;      ///< the owner stages in registered memory
    bool registered = true;  ///< destinations of get_into
    perf_owner_wish wish;

    bool json = false;
    bool csv = false;
    std::string svg;
    std::vector<diag::perf_requirement> required;
    std::optional<diag::perf_baseline> baseline;
};

/// 0, 2, 3, 64 and those of signals; for --help.
exit_convention perf_exits() noexcept;
inline constexpr int perf_not_good = 2;
inline constexpr int perf_not_started = 3;

void add_perf_options(command_line& line);
/// `sweep`: with its own defaults, for sizes that are all to go by RDMA.
result<perf_settings> read_perf_settings(const command_line& line,
                                         const std::optional<std::string>& owner, bool sweep);

/// "4K,64K", "8..8M:x2" (each twice as large as the one before), or several of both with commas.
result<std::vector<std::uint64_t>> parse_sizes(std::string_view text);

}  // namespace rvget::tools
