#pragma once
// The owner's end of `rvget perf`: stages what consumers ask for, and tells what that cost.

#include <chrono>
#include <cstdint>
#include <string>

#include <rvget/handle.hpp>

#include "route_pins.hpp"

namespace rvget::tools {

struct perf_owner_settings {
    endpoint_address listen;
    route_pins pins;
    std::uint64_t most_bytes = 0;       ///< that a consumer may have staged at once
    std::chrono::milliseconds idle{0};  ///< end if no consumer comes for so long; 0: wait for ever
    bool keep = false;                  ///< serve one consumer after the other, until a signal
    bool json = false;
};

/// Serves until its consumer has left (with `keep`: until a signal); returns the exit status.
int own_perf(const perf_owner_settings& settings);

}  // namespace rvget::tools
