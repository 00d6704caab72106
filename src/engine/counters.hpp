#pragma once
// What the engine counts. Plain numbers, written on the strand; the API copies them out.

#include <array>
#include <cstdint>

#include <rvget/path.hpp>

#include "engine/histogram.hpp"
#include "fabric/fabric.hpp"

namespace rvget::engine {

struct counters {
    // Owner: granted = released + expired + active, at every moment.
    std::uint64_t leases_granted = 0;
    std::uint64_t leases_released = 0;
    std::uint64_t leases_expired = 0;
    std::uint64_t leases_active = 0;
    std::uint64_t revocations = 0;  ///< of leases that were not ended in time

    // Decisions by path and reason; the consumer counts a get when it has its bytes.
    static constexpr std::size_t reasons = 128;
    std::array<std::array<std::uint64_t, reasons>, 3> owner_decisions{};
    std::array<std::array<std::uint64_t, reasons>, 3> consumer_results{};
    std::uint64_t gets_started = 0;
    std::uint64_t gets_answered = 0;
    std::uint64_t gets_failed = 0;
    std::uint64_t gets_rekeyed = 0;  ///< READ again over a new lane; each time counts
    std::uint64_t acquires_without_offer_after_rdma = 0;  ///< fallbacks

    // How long: gets that brought their bytes, acquires that were answered, queue pairs that came
    // up.
    duration_histogram gets;
    duration_histogram acquires;
    duration_histogram wireups;

    /// Of requests that this node posted and that failed for a reason of their own.
    std::array<std::uint64_t, static_cast<std::size_t>(fabric::completion_status::other) + 1>
        completion_errors{};
    std::uint64_t strangers_refused = 0;  ///< connections that ended before their greeting

    std::uint64_t checksum_mismatches = 0;
    std::uint64_t bytes_copied = 0;  ///< by the CPU, between arrival and destination
    std::uint64_t lanes_made = 0;
    std::uint64_t lanes_failed = 0;
    std::uint64_t lanes_leaked = 0;  ///< never proven quiet
    std::uint64_t spares_used = 0;   ///< lanes whose queue pair had been made ahead
    std::uint64_t spares_failed = 0;

    void decided(path p, reason r) noexcept {
        ++owner_decisions[static_cast<std::size_t>(p)][static_cast<std::size_t>(r) % reasons];
    }
    void completion_failed(fabric::completion_status s) noexcept {
        ++completion_errors[static_cast<std::size_t>(s)];
    }
    void got(path p, reason r) noexcept {
        ++consumer_results[static_cast<std::size_t>(p)][static_cast<std::size_t>(r) % reasons];
    }
};

}  // namespace rvget::engine
