#include "fabric/quirks.hpp"

#include <array>

namespace rvget::fabric {

namespace {

struct row {
    std::string_view driver;
    fabric::quirks quirks;
};

constexpr std::array table = {
    row{.driver = "rxe",
        .quirks =
            {
                // Measured on Linux 6.1 and explained by its source: when the
                // responder's own host refuses the first packet of a READ response (it is over the
                // netdev's MTU, or a shaper or an output rule drops it), the responder answers
                // "receiver not ready", and the repeated response begins with a MIDDLE packet. The
                // requester's check_ack() calls that an error without setting a status, so the work
                // request completes with the one it has: success, and not a byte written.
                // rxe_completer() then posts that completion (do_complete) and only afterwards puts
                // the queue pair in error (rxe_qp_error).
                // tests/fabric/verbs_wire_test.cpp reproduces it between two hosts.
                .success_needs_state_query = true,
                // Measured on 6.1: ibv_destroy_qp() sleeps 50 s, and so does the exit of a process:
                // __rxe_cleanup() waits that long for the reference that a bound window holds.
                .destroy_blocks_on_bound_window = true,
                // rxe_completer(): `if (qp->comp.retry_cnt != 7) qp->comp.retry_cnt--`, and the
                // same for rnr_retry. Measured: no completion within 60 s of the peer's death.
                .retry_seven_is_for_ever = true,
            }},
    row{.driver = "siw",
        .quirks =
            {
                // siw_dereg_mr() marks the key invalid and waits for nothing, and siw_tx_hdt(),
                // which sends the segments of a response, looks at the key before the first of them
                // only (siw_qp_sq_proc_tx(), siw_check_sgl_tx()).
                .response_outlives_its_key = true,
            }},
};

}  // namespace

quirks quirks_of(const route::device_facts& device) noexcept {
    fabric::quirks known;
    for (const auto& r : table) {
        if (r.driver == device.driver) known = r.quirks;
    }
    // RFC 5040 and the verbs of iWARP leave it to the device whether a post in the error state is
    // refused at once or flushed. siw of Linux 6.1 does neither for a process: siw_post_send() is
    // not told of it before the next doorbell, which it answers with ENOTCONN. Measured: no
    // completion of a marker, nor of the READs before it, within 10 s of the peer's death.
    known.drains_by_destruction = device.is_iwarp();
    return known;
}

}  // namespace rvget::fabric
