#include "engine/decision.hpp"

namespace rvget::engine {
namespace {

reason first_obstacle(const decision_facts& f) noexcept {
    if (!f.offered) return reason::no_offer;
    if (!f.version_has_rdma) return reason::version;
    if (!f.configured) return reason::not_configured;
    if (f.kill_switch) return reason::kill_switch;
    if (f.draining) return reason::draining;
    if (f.fenced) return reason::fenced;
    if (!f.pinned) return reason::not_pinned;
    if (!f.forced && f.range_bytes < f.rdma_min_bytes) return reason::below_min;
    if (!f.common_backend) return reason::no_common_backend;
    if (f.lane != lane_status::ready) return reason::no_lane;
    if (f.region_stale) return reason::stale_region;
    return reason::ok;
}

}  // namespace

decision decide(const decision_facts& f) noexcept {
    const auto why = first_obstacle(f);
    const bool small = f.range_bytes <= f.inline_max && !f.forced;
    if (f.range_bytes == 0 || small)
        return {wire::answer::inline_answer, why == reason::ok ? reason::inline_answer : why};
    if (why == reason::ok) return {wire::answer::rdma, why};
    if (why == reason::no_lane && f.lane == lane_status::making)
        return {f.forced ? wire::answer::refused : wire::answer::chunked, why, true};
    if (!f.forced) return {wire::answer::chunked, why};
    return {why == reason::not_pinned ? wire::answer::not_pinned : wire::answer::refused, why};
}

}  // namespace rvget::engine
