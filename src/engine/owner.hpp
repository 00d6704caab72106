#pragma once
// The owner: staged slots, their references and leases, the reaper, and the rule that no byte is
// given back while a NIC may still read it.

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <rvget/error.hpp>

#include "engine/lease_key.hpp"
#include "engine/serve_lane.hpp"
#include "engine/services.hpp"
#include "engine/slot.hpp"

namespace rvget::engine {

/// The consumer that a lease belongs to, as the owner sees it.
class lease_holder {
public:
    /// This lane may serve no READ any more. Destroys it, then calls `proven`; tells the consumer.
    virtual void fence(std::uint32_t generation, unique_function<void()> proven) = 0;
    /// One of its leases ended.
    virtual void lease_ended() = 0;
    [[nodiscard]] virtual node_id consumer() const = 0;
    /// Its connection is open, so that it could have ended its lease.
    [[nodiscard]] virtual bool reachable() const = 0;

protected:
    ~lease_holder() = default;
};

/// Lives on the strand.
class owner {
public:
    explicit owner(services& s);
    ~owner();
    owner(const owner&) = delete;
    owner& operator=(const owner&) = delete;

    void add_slot(std::uint64_t id, std::shared_ptr<const slot_memory> memory);
    [[nodiscard]] const slot* find(std::uint64_t slot_id) const;
    /// Who holds a reference. What consumers hold their connections count.
    enum class referrer : std::uint8_t { owner, consumer };
    /// One more reference; none where the slot is gone.
    std::optional<std::uint32_t> add_reference(std::uint64_t slot_id,
                                               referrer by = referrer::owner);
    /// `count` references less; at none and without leases the slot is freed. None where the slot
    /// is gone, or the owner has none of its own left. Precondition: a consumer has as many.
    std::optional<std::uint32_t> release(std::uint64_t slot_id, referrer by = referrer::owner,
                                         std::uint32_t count = 1);

    /// The slots in `region` lose all their references, whoever holds them.
    void withdraw(const fabric::memory_region& region);
    /// Starts revocation of every lease on them.
    void revoke_in(const fabric::memory_region& region);

    struct grant {
        std::uint64_t lease = 0;
        std::chrono::milliseconds duration{0};
    };
    /// Counts a lease on a slot for `holder`: with a key and the generation of the lane to READ
    /// through, or with neither for chunks. Renewals end at `cap` from now. Precondition: the slot
    /// exists.
    grant grant_lease(std::uint64_t slot_id, std::shared_ptr<lease_holder> holder,
                      std::shared_ptr<lease_key> key, std::uint32_t lane, std::uint64_t offset,
                      std::uint64_t length, std::chrono::milliseconds cap);
    /// Bytes of chunks that wait to be written.
    [[nodiscard]] const byte_budget& chunks() const noexcept { return chunks_; }
    [[nodiscard]] bool room_for_lease() const noexcept {
        return leases_.size() < s_.options.max_leases;
    }
    /// The consumer promises that it is done. False: not its lease, or over already.
    bool detach(std::uint64_t lease_id, const lease_holder& holder);
    /// The new duration, or nothing where the lease is past its end, revoked or unknown.
    std::optional<std::chrono::milliseconds> renew(std::uint64_t lease_id,
                                                   const lease_holder& holder);

    struct leased_bytes {
        std::span<const std::byte> bytes;
        std::shared_ptr<const slot_memory> keep;
    };
    /// A lease whose lane failed, and what its next key shall be for.
    struct keyless {
        std::uint32_t lane = 0;
        leased_bytes range;
    };
    /// Begins to give a lease a key for lane `next`. Nothing where the lease is past its end,
    /// revoked, unknown, of chunks, of that very lane, or is being given one already.
    std::optional<keyless> begin_rekey(std::uint64_t lease_id, const lease_holder& holder,
                                       std::uint32_t next);
    /// Ends that: with the key, whose lease then runs on as after a renewal and whose former key is
    /// taken away, or with none. What is left of the lease, or nothing where it is over: then the
    /// key was not taken. Precondition with a key: no READ gets through the former lane any more.
    std::optional<std::chrono::milliseconds> end_rekey(std::uint64_t lease_id,
                                                       const lease_holder& holder,
                                                       const std::shared_ptr<lease_key>& key,
                                                       std::uint32_t next);
    /// The range of an active chunked lease of `holder`.
    [[nodiscard]] std::optional<leased_bytes> leased_range(std::uint64_t lease_id,
                                                           const lease_holder& holder) const;

    /// A lane is gone, and with it every key that is good there only: the leases live on without,
    /// until their consumer ends or renews them or their time is up.
    void lane_gone(const lease_holder& holder, std::uint32_t generation);
    [[nodiscard]] bool is_fenced(node_id consumer) const {
        return fenced_.contains(consumer.value);
    }

    /// Peers whose address did not resolve: asking again costs a second, so it is put off.
    [[nodiscard]] bool unreachable_now(const std::string& gid) const;
    void note_unreachable(const std::string& gid);
    void note_reachable(const std::string& gid) { unreachable_.erase(gid); }

    void begin_draining() { draining_ = true; }
    [[nodiscard]] bool draining() const noexcept { return draining_; }
    /// Runs `f` when no lease is active; at once where none is.
    void when_no_leases(unique_function<void()> f);
    /// Starts revocation of every lease now.
    void revoke_all();
    /// Drops the owner's references: slots without leases are freed.
    void drop_slots();
    [[nodiscard]] std::size_t slot_count() const noexcept { return slots_.size(); }

private:
    struct lease {
        std::uint64_t slot_id = 0;
        std::shared_ptr<lease_holder> holder;
        bool by_nic = false;
        std::shared_ptr<lease_key> key;  ///< none in chunks, and after its lane is gone
        std::uint32_t lane = 0;
        std::uint64_t offset = 0;
        std::uint64_t length = 0;
        time_point end;
        time_point cap;
        bool revoking = false;
        bool rekeying = false;
    };
    using lease_map = std::unordered_map<std::uint64_t, lease>;

    /// A lease of `holder` that is not past its end and not being revoked.
    lease* renewable(std::uint64_t lease_id, const lease_holder& holder);
    void schedule(lease& l, std::uint64_t id, time_point end);
    void arm_reaper();
    void reap();
    void revoke(std::uint64_t lease_id, lease& l, bool abandoned);
    template <class Chosen>
    void revoke_where(Chosen chosen);
    void begin_revocation(std::uint64_t lease_id);
    void end_lease(lease_map::iterator it, bool expired);
    void free_if_unused(std::uint64_t slot_id);

    services& s_;
    byte_budget chunks_;
    std::unordered_map<std::uint64_t, slot> slots_;
    lease_map leases_;
    std::set<std::pair<time_point, std::uint64_t>> ends_;  ///< active, not revoking
    environment::timer_id reaper_ = 0;
    std::uint64_t next_lease_ = 1;
    std::unordered_set<std::uint64_t> fenced_;
    struct backoff {
        time_point until;
        duration step;
    };
    std::unordered_map<std::string, backoff> unreachable_;
    bool draining_ = false;
    std::vector<unique_function<void()>> idle_;
};

}  // namespace rvget::engine
