#pragma once
// How an owner answers an acquire: the ordered checks, as a pure function of what is known.

#include <cstdint>

#include <rvget/path.hpp>

#include "wire/frames.hpp"

namespace rvget::engine {

/// The state of the owner's end of the lane that the consumer offers.
enum class lane_status : std::uint8_t { absent, making, ready, failed };

struct decision_facts {
    // The request.
    bool offered = false;
    bool forced = false;  ///< policy `require`
    bool common_backend = true;
    std::uint64_t range_bytes = 0;
    // The connection.
    bool version_has_rdma = true;
    lane_status lane = lane_status::absent;
    bool fenced = false;
    // The node.
    bool configured = true;  ///< there is a device
    bool kill_switch = false;
    bool draining = false;
    std::uint64_t rdma_min_bytes = 0;
    std::uint64_t inline_max = 0;
    // The slot.
    bool pinned = false;
    bool region_stale = false;
};

struct decision {
    wire::answer answer = wire::answer::chunked;
    reason why = reason::ok;
    /// Every other check passed and the lane is still being made: wait for it, then ask again.
    bool wait_for_lane = false;
};

/// The first check that fails is the reason, in this order: no_offer, version, not_configured,
/// kill_switch, draining, fenced, not_pinned, below_min, no_common_backend, no_lane, stale_region.
/// A range within inline_max is answered inline, except a pinned one under `require`.
[[nodiscard]] decision decide(const decision_facts& f) noexcept;

}  // namespace rvget::engine
