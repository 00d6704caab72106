#pragma once
// One get, from the acquire to the end of its lease. Answers its caller exactly once; lives on
// until the NIC is done with its destination.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <rvget/transfer.hpp>

#include "engine/consumer_connection.hpp"
#include "engine/memory.hpp"
#include "engine/quiet_state.hpp"
#include "engine/read_lane.hpp"
#include "engine/region_table.hpp"
#include "engine/services.hpp"

namespace rvget::engine {

/// Where the bytes shall end.
enum class destination_kind : std::uint8_t {
    owned,   ///< a plain buffer that the caller then owns
    pinned,  ///< a registered buffer of the pool
    into,    ///< the caller's memory
};

struct transfer_request {
    std::uint64_t slot = 0;
    std::uint64_t offset = 0;
    std::uint64_t length = wire::whole_length;
    path_policy policy = path_policy::prefer;
    time_point deadline;
    destination_kind kind = destination_kind::owned;
    std::span<std::byte> into;
    bool checksum = false;
};

struct transfer_answer {
    failure error;
    pinned_buffer data;  ///< owned and pinned
    std::uint64_t bytes = 0;
    transfer_report report;
    rvget::quiet quiet;  ///< into
};

/// Lives on the strand; keeps itself alive until over.
class transfer final : public std::enable_shared_from_this<transfer> {
public:
    using answered = unique_function<void(transfer_answer)>;

    transfer(services& s, region_table& regions, transfer_request request, answered done);
    ~transfer();
    transfer(const transfer&) = delete;
    transfer& operator=(const transfer&) = delete;

    /// Takes the destination and starts the clock. Called once, before connected().
    void start();
    /// The connection to the owner is up, or why there is none.
    void connected(const failure& f, std::shared_ptr<consumer_connection> connection);
    /// Whether a NIC may be writing into `region` for it.
    [[nodiscard]] bool reads_into(const fabric::memory_region& region) const noexcept {
        return region_.get() == &region;
    }
    /// Answers the caller now with `code`; what the NIC may still write stays parked.
    void abandon(const failure& f);

private:
    struct chunk_in_flight {
        std::uint64_t request;
        std::uint64_t bytes;
    };

    void acquire();
    void acquired(const failure& f, wire::body* body, std::span<const std::byte> payload,
                  time_point sent, bool offered);
    void answered_busy(const wire::acquire_reply& reply);
    [[nodiscard]] failure refusal(const wire::acquire_reply& reply) const;
    void take_inline(const wire::acquire_reply& reply, std::span<const std::byte> payload);

    void begin_read(const wire::acquire_reply& reply, time_point sent);
    /// What the lease and the lane say must fit it; falls back otherwise.
    bool take_descriptor(const std::optional<std::vector<std::byte>>& encoded);
    /// Finds registered memory for the range; false where it has to wait for the pool to grow or
    /// fell back.
    bool prepare_read();
    void pool_refused(const pool::refusal& r);
    void submit_read();
    void read_ended(read_job::outcome o, const failure& f);

    /// The lane went down for another's READ: asks for a key on a new one and READs again.
    void rekey();
    void rekeyed(const failure& f, wire::body* body, time_point sent);
    void give_up_rekeying();

    void begin_pull(const wire::acquire_reply& reply, time_point sent);
    void pull_more();
    void pulled(std::uint64_t request, std::uint64_t bytes, const failure& f, wire::body* body);

    void hold_lease(std::uint64_t lease, time_point sent, std::chrono::milliseconds granted);
    void renew();
    void renewed(const failure& f, wire::body* body, time_point sent);
    void lease_ran_out();
    void end_lease();

    void fall_back(reason why, const failure& f);
    [[nodiscard]] bool prepare_plain(std::uint64_t bytes);
    void copy_out();
    void copy_more(std::uint64_t copied);
    void arrived();
    void check_more(std::uint64_t checked, std::uint32_t so_far);
    void mismatched(std::uint32_t here);
    void succeed();
    void fail(const failure& f);
    void answer(const failure& f);
    void release_destination();
    void stop_timers();

    services& s_;
    region_table& regions_;
    const transfer_request request_;
    answered done_;
    transfer_report report_;
    std::shared_ptr<consumer_connection> connection_;
    std::shared_ptr<transfer> self_;
    bool answered_ = false;
    bool taken_ = false;  ///< request_.into is marked as being filled

    environment::timer_id deadline_timer_ = 0;
    environment::timer_id busy_timer_ = 0;
    time_point began_;
    time_point phase_began_;

    std::optional<failure> fallback_;  ///< why RDMA failed, once it did
    reason no_offer_ = reason::ok;

    // The lease.
    std::uint64_t lease_ = 0;
    time_point lease_end_;
    duration grant_{0};
    bool lease_lost_ = false;
    environment::timer_id lease_timer_ = 0;

    // Where the bytes go.
    std::uint64_t range_bytes_ = 0;
    pinned_block block_;
    buffer plain_;
    region_table::region region_;
    std::shared_ptr<quiet::state> quiet_;

    // RDMA.
    std::optional<wire::descriptor> descriptor_;
    std::shared_ptr<read_lane> lane_;
    std::shared_ptr<read_job> job_;
    struct setback {
        reason why;
        failure error;
    };
    std::optional<setback> rekeying_;  ///< while a new key is asked for: what to fall back with
    unsigned rekeys_ = 0;

    // The checksum.
    std::optional<std::uint32_t> owners_checksum_;
    std::optional<failure> mismatch_;  ///< the first one
    bool insist_ = false;              ///< on RDMA, because chunks came wrong

    // Chunks.
    std::uint64_t asked_ = 0;
    std::uint64_t arrived_ = 0;
    std::span<std::byte> target_;
    std::vector<chunk_in_flight> in_flight_;
};

}  // namespace rvget::engine
