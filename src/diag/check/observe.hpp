#pragma once
// Runs the probes of a check over two ends.

#include <chrono>
#include <functional>
#include <string>

#include "diag/check/end.hpp"

namespace rvget::diag {

struct check_wishes {
    std::string peer;                  ///< how this end names the other one, for commands to print
    std::string gid;                   ///< index or address of this end's GID; empty: the best
    std::string peer_gid;              ///< likewise
    std::uint32_t mtu_bytes = 0;       ///< path MTU to force; 0: the common one
    std::uint32_t peer_mtu_bytes = 0;  ///< of the other end's queue pair; 0: the same
    /// The GID to which this end sends, where a program has it from elsewhere than from the other
    /// end's queue pair; empty: that one's.
    std::string target_gid;
    std::uint32_t reads = 2000;
    std::string own_address, peer_address;  ///< of the control connection
};

using clock_function = std::function<std::chrono::steady_clock::time_point()>;

/// Blocking for as long as the probes take, each at most a few seconds. Calls `so_far` whenever
/// there is more to tell. What takes long and can be left out is, once `now` says that it is late.
[[nodiscard]] result<observations> observe(
    check_end& a, check_end& b, const check_wishes& wishes,
    const std::function<void(const observations&)>& so_far,
    const clock_function& now = &std::chrono::steady_clock::now);

}  // namespace rvget::diag
