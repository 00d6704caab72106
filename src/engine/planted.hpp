#pragma once
// Bugs that one test build plants, to prove that its schedules find each of them. In every other
// build `planted` is a constant false, and nothing of them remains.

#include <cstdint>

namespace rvget::engine {

enum class bug : std::uint8_t {
    none,
    // The destination, on the consumer.
    quiet_at_once,              ///< a deadline or cancel answers as if no READ were pending
    quiet_before_drain,         ///< the destination is given back when the caller is answered
    block_freed_on_abandon,     ///< a bounce block goes back to the pool under a READ
    jobs_end_before_drain,      ///< a lane in error lets gets fall back before its NIC is done
    drained_without_marker,     ///< a queue pair is destroyed with READs posted
    destination_not_forgotten,  ///< an abandoned pull goes on into its destination
    error_credits_unsignalled,  ///< an error completion counts what stands before it as arrived
    // The lease, on the consumer.
    lease_ended_early,    ///< a lease ends when its READ is posted
    read_outlives_lease,  ///< a READ is posted although the lease is about to end
    lane_down_ignored,    ///< READs go on after the owner has taken its end down
    generation_reused,    ///< a new lane has the number of the one before
    old_key_read_again,   ///< a get that was given a new key READs with the one it had
    // The answer.
    double_answer,     ///< a call is answered by the cancel and by the completion
    cancel_waits,      ///< a cancel answers when the NIC is done, not at once
    lost_waiter,       ///< who waits for a connection does not hear that it failed
    lane_waiter_lost,  ///< who waits for a lane does not hear that it failed
    // The owner.
    slot_freed_under_lease,     ///< the end of one lease frees a slot that others still read
    slots_dropped_at_shutdown,  ///< a shutdown frees slots whose leases are active
    fence_proven_early,         ///< a fence counts as proven before the queue pair is gone
    lane_gone_ends_others,      ///< the end of one lane ends the leases of another consumer's
    expiry_not_counted,
    detach_counted_twice,
    renewal_after_end,
    fence_late,      ///< revocation begins two timeouts after the grant
    fence_early,     ///< revocation takes leases that are not over yet
    chunk_not_kept,  ///< a chunk on its way does not hold its slot's memory
};
inline constexpr bug last_bug = bug::chunk_not_kept;

#if defined(RVGET_PLANTED_BUGS)
inline bug active_bug = bug::none;  ///< set while no node runs
[[nodiscard]] inline bool planted(bug b) noexcept { return active_bug == b; }
#else
[[nodiscard]] constexpr bool planted(bug) noexcept { return false; }
#endif

}  // namespace rvget::engine
