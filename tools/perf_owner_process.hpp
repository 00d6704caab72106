#pragma once
// `rvget perf --listen` as a child of this process.

#include <cstdint>
#include <string>

#include <rvget/error.hpp>
#include <rvget/handle.hpp>

#include "route_pins.hpp"
#include "signal_watch.hpp"

namespace rvget::tools {

/// An owner in a process of its own on this machine, which ends with its session.
class perf_owner_process {
public:
    /// `pins`, `most_bytes`: as in perf_owner_settings.
    static result<perf_owner_process> start(const endpoint_address& listen, const route_pins& pins,
                                            std::uint64_t most_bytes, signal_watch& signals);
    perf_owner_process(perf_owner_process&& other) noexcept;
    perf_owner_process& operator=(perf_owner_process&& other) = delete;
    /// Ends it, if its session has not.
    ~perf_owner_process();

    [[nodiscard]] const endpoint_address& address() const noexcept { return address_; }

private:
    perf_owner_process(int process, int output) noexcept;
    int process_ = -1;
    int output_ = -1;  ///< kept: what it says at its end must not fail
    endpoint_address address_;
};

}  // namespace rvget::tools
