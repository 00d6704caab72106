#pragma once
// What the frames on the wire and the READs on the NICs say about leases, beside the engine's own
// bookkeeping: who was granted what until when, and what may therefore be posted, renewed, fenced.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/counters.hpp"
#include "engine/schedules/sim_network.hpp"
#include "engine/schedules/verdict.hpp"
#include "fabric/fabric.hpp"

namespace rvget::test {

class lease_oracle {
public:
    /// `clock` and `out` are borrowed.
    lease_oracle(const time_point& clock, verdict& out, duration lease_timeout,
                 wire::lease_mode mode)
        : clock_(clock), verdict_(out), timeout_(lease_timeout), mode_(mode) {}

    void set_retry_window(duration window) { retry_window_ = window; }
    /// From now on this owner may take lanes down before a lease is over.
    void shutting_down(std::size_t owner) { ending_[owner] = true; }

    void sent(const link_end& from, const wire::frame& f);
    void delivered(const link_end& to, const wire::frame& f);
    /// The owner's end of a connection is over: what happens to its lanes shows no more.
    void over(const link_end& end);
    void reads_posted(std::size_t node, std::uint32_t queue_pair,
                      std::span<const fabric::read_request> requests);
    /// Whoever reads grants nothing, and memory that is read into opens to nobody, except in the
    /// mode that shares its key.
    void queue_pair_opened(std::size_t node, std::uint32_t queue_pair, fabric::access rights);
    void memory_registered(fabric::access rights);

    /// After every step of an owner: its counters against what was seen.
    void check(std::size_t owner, const engine::counters& c);

private:
    struct lane_key {
        std::uint32_t connection = 0;
        std::uint32_t generation = 0;
        friend auto operator<=>(const lane_key&, const lane_key&) = default;
    };
    struct lane_record {
        std::uint32_t queue_pair = 0;  ///< the consumer's
        bool fenced = false;           ///< the owner has said so
        bool fence_heard = false;      ///< the consumer has heard it
        bool given_up = false;         ///< the consumer's word has reached the owner
        bool fence_due = false;        ///< a lease on it went past its end
    };
    struct lease {
        std::uint64_t id = 0;
        std::uint32_t connection = 0;
        std::size_t owner = 0;
        std::size_t consumer = 0;
        time_point end;  ///< as the owner counts
        time_point cap;  ///< no renewal goes beyond
        bool by_nic = false;
        std::uint32_t generation = 0;
        std::uint64_t address = 0;
        std::uint64_t length = 0;
        std::uint32_t key = 0;
        time_point consumer_end;       ///< as the consumer counts; the epoch until it has heard
        bool end_sent = false;         ///< the consumer's detach has left
        bool end_heard = false;        ///< ... and arrived
        bool end_heard_first = false;  ///< ... before any fence
        bool end_heard_in_time = false;
    };
    struct request {
        wire::body body;
        time_point sent;
    };

    void acquire_sent(const link_end& from, const wire::acquire& m);
    void offer_sent(const link_end& from, const wire::lane_offer& offer);
    void read_by(lease& l, const std::vector<std::byte>& descriptor);
    void acquire_answered(const link_end& owner, std::uint64_t id, const wire::acquire_reply& m);
    void renewal_answered(const link_end& owner, std::uint64_t id, const wire::renew_reply& m);
    void ends_sent(const link_end& consumer, const std::vector<std::uint64_t>& ids);
    void ends_heard(const link_end& owner, const std::vector<std::uint64_t>& ids);
    void fence_sent(const link_end& owner, const wire::lane_down& m);
    void fail(std::string what) { verdict_.fail(std::move(what)); }
    lease* find(std::size_t owner, std::uint64_t id);

    const time_point& clock_;
    verdict& verdict_;
    duration timeout_;
    wire::lease_mode mode_;
    duration retry_window_{0};
    std::map<std::size_t, bool> ending_;
    std::set<std::uint32_t> over_;
    std::set<std::pair<std::size_t, std::uint32_t>> opened_;  ///< queue pairs with remote rights
    std::vector<lease> leases_;
    std::map<lane_key, lane_record> lanes_;
    std::map<std::pair<std::uint32_t, std::uint64_t>, request> unanswered_;
    std::map<std::pair<std::uint32_t, std::uint64_t>, request> unheard_;
};

}  // namespace rvget::test
