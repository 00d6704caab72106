#include "engine/owner.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/log.hpp"
#include "engine/planted.hpp"

namespace rvget::engine {

using namespace std::chrono_literals;

/// Addresses that are remembered as not resolving, at most.
constexpr std::size_t max_unreachable = 1024;

owner::owner(services& s) : s_(s), chunks_(s.options.chunk_budget_bytes) {}

owner::~owner() { s_.env.cancel(reaper_); }

void owner::add_slot(std::uint64_t id, std::shared_ptr<const slot_memory> memory) {
    slots_.emplace(id, slot{.id = id, .memory = std::move(memory)});
}

const slot* owner::find(std::uint64_t slot_id) const {
    const auto it = slots_.find(slot_id);
    return it == slots_.end() || it->second.references == 0 ? nullptr : &it->second;
}

std::optional<std::uint32_t> owner::add_reference(std::uint64_t slot_id, referrer by) {
    const auto it = slots_.find(slot_id);
    if (it == slots_.end() || it->second.references == 0 ||
        it->second.references == std::numeric_limits<std::uint32_t>::max())
        return std::nullopt;
    if (by == referrer::owner) ++it->second.own;
    return ++it->second.references;
}

std::optional<std::uint32_t> owner::release(std::uint64_t slot_id, referrer by,
                                            std::uint32_t count) {
    const auto it = slots_.find(slot_id);
    if (it == slots_.end() || it->second.references == 0) return std::nullopt;
    if (by == referrer::owner) {
        if (it->second.own == 0) return std::nullopt;
        --it->second.own;
    }
    const auto left = it->second.references -= std::min(count, it->second.references);
    free_if_unused(slot_id);
    return left;
}

void owner::withdraw(const fabric::memory_region& region) {
    for (auto it = slots_.begin(); it != slots_.end();) {
        const bool there = it->second.memory->region.get() == &region;
        if (there) it->second.references = 0;
        it = there && it->second.leases == 0 ? slots_.erase(it) : std::next(it);
    }
}

void owner::free_if_unused(std::uint64_t slot_id) {
    const auto it = slots_.find(slot_id);
    if (it != slots_.end() && it->second.references == 0 &&
        (it->second.leases == 0 || planted(bug::slot_freed_under_lease)))
        slots_.erase(it);
}

owner::grant owner::grant_lease(std::uint64_t slot_id, std::shared_ptr<lease_holder> holder,
                                std::shared_ptr<lease_key> key, std::uint32_t lane,
                                std::uint64_t offset, std::uint64_t length,
                                std::chrono::milliseconds cap) {
    auto& sl = slots_.at(slot_id);
    const auto id = next_lease_++;
    const auto now = s_.env.now();
    auto& l = leases_[id];
    l.slot_id = slot_id;
    l.holder = std::move(holder);
    l.by_nic = key != nullptr;
    l.key = std::move(key);
    l.lane = lane;
    l.offset = offset;
    l.length = length;
    l.cap = now + cap;
    schedule(l, id, now + s_.options.lease_timeout);
    ++sl.leases;
    ++s_.stats.leases_granted;
    ++s_.stats.leases_active;
    return {id, s_.options.lease_timeout};
}

void owner::schedule(lease& l, std::uint64_t id, time_point end) {
    ends_.erase({l.end, id});
    l.end = end;
    ends_.emplace(end, id);
    arm_reaper();
}

/// One timer for all: an eighth of a timeout after the first end, so that leases that end together
/// are revoked together, and well before one and a half timeouts.
void owner::arm_reaper() {
    if (reaper_ != 0 || ends_.empty()) return;
    const auto grace =
        planted(bug::fence_late) ? s_.options.lease_timeout : s_.options.lease_timeout / 8;
    reaper_ = s_.env.at(ends_.begin()->first + grace, [this] {
        reaper_ = 0;
        reap();
    });
}

void owner::reap() {
    const auto now =
        s_.env.now() + (planted(bug::fence_early) ? s_.options.lease_timeout / 2 : duration{0});
    std::vector<std::uint64_t> late;
    for (const auto& [end, id] : ends_) {
        if (end > now) break;
        late.push_back(id);
    }
    std::size_t with_keys = 0;
    for (const auto id : late) {
        const auto it = leases_.find(id);
        if (it == leases_.end() || it->second.revoking) continue;
        if (it->second.key) ++with_keys;
        revoke(id, it->second, true);
    }
    // One line for all: a consumer that dies leaves as many as it had gets.
    if (with_keys != 0)
        log(log_level::warning,
            "event=leases_expired leases=" + std::to_string(with_keys) +
                " action=revoke mode=" + std::string(to_string(s_.rdma.lease_keys())) +
                " cause=\"their consumers did not end them in time\" "
                "next=\"see whether those processes and their machines are "
                "up\"");
    arm_reaper();
}

/// A lease without a key just ends; one with a key when no NIC can read with it any more.
void owner::revoke(std::uint64_t lease_id, lease& l, bool abandoned) {
    if (!l.key) return end_lease(leases_.find(lease_id), true);
    const auto mode = l.key->mode();
    // One whose connection broke had no way to end it: that is no sign of a consumer to distrust.
    if (abandoned && mode == wire::lease_mode::fence && l.holder->reachable())
        fenced_.insert(l.holder->consumer().value);
    ++s_.stats.revocations;
    // A fence takes every lease of its lane along: READs with their key no longer arrive either.
    std::vector<std::uint64_t> over{lease_id};
    if (mode == wire::lease_mode::fence)
        for (const auto& [id, other] : leases_)
            if (id != lease_id && other.key && !other.revoking && other.holder == l.holder &&
                other.lane == l.lane)
                over.push_back(id);
    for (const auto id : over) begin_revocation(id);
}

void owner::begin_revocation(std::uint64_t lease_id) {
    const auto it = leases_.find(lease_id);
    if (it == leases_.end()) return;
    it->second.revoking = true;
    ends_.erase({it->second.end, lease_id});
    const auto key = it->second.key;
    if (!key) return end_lease(it, true);
    key->revoke([this, lease_id] {
        if (const auto l = leases_.find(lease_id); l != leases_.end()) end_lease(l, true);
    });
}

void owner::lane_gone(const lease_holder& holder, std::uint32_t generation) {
    for (auto& [id, l] : leases_) {
        if ((l.holder.get() != &holder && !planted(bug::lane_gone_ends_others)) ||
            l.lane != generation || !l.key || l.revoking ||
            l.key->mode() == wire::lease_mode::exact)
            continue;
        l.key.reset();
    }
}

bool owner::detach(std::uint64_t lease_id, const lease_holder& holder) {
    const auto it = leases_.find(lease_id);
    if (it == leases_.end() || it->second.holder.get() != &holder) return false;
    if (it->second.revoking) return false;  // its revocation is under way and will end it
    if (it->second.key) it->second.key->retire();
    end_lease(it, false);
    return true;
}

void owner::end_lease(lease_map::iterator it, bool expired) {
    const auto slot_id = it->second.slot_id;
    const auto holder = std::move(it->second.holder);
    ends_.erase({it->second.end, it->first});
    leases_.erase(it);
    --slots_.at(slot_id).leases;
    --s_.stats.leases_active;
    if (!expired || !planted(bug::expiry_not_counted))
        ++(expired ? s_.stats.leases_expired : s_.stats.leases_released);
    if (!expired && planted(bug::detach_counted_twice)) ++s_.stats.leases_released;
    free_if_unused(slot_id);
    holder->lease_ended();
    if (leases_.empty())
        for (auto& f : std::exchange(idle_, {})) f();
}

owner::lease* owner::renewable(std::uint64_t lease_id, const lease_holder& holder) {
    const auto it = leases_.find(lease_id);
    if (it == leases_.end() || it->second.holder.get() != &holder || it->second.revoking)
        return nullptr;
    // It may be over although the reaper has not come yet.
    const bool over = s_.env.now() >= it->second.end && !planted(bug::renewal_after_end);
    return over ? nullptr : &it->second;
}

std::optional<std::chrono::milliseconds> owner::renew(std::uint64_t lease_id,
                                                      const lease_holder& holder) {
    auto* l = renewable(lease_id, holder);
    if (l == nullptr || (l->by_nic && !l->key)) return std::nullopt;  // its lane is gone
    const auto now = s_.env.now();
    const auto end = std::min(now + s_.options.lease_timeout, l->cap);
    if (end <= l->end) return std::nullopt;
    schedule(*l, lease_id, end);
    return std::chrono::duration_cast<std::chrono::milliseconds>(end - now);
}

std::optional<owner::keyless> owner::begin_rekey(std::uint64_t lease_id, const lease_holder& holder,
                                                 std::uint32_t next) {
    auto* l = renewable(lease_id, holder);
    if (l == nullptr || !l->by_nic || l->lane == next || std::exchange(l->rekeying, true))
        return std::nullopt;
    const auto& memory = slots_.at(l->slot_id).memory;
    return keyless{l->lane, {memory->bytes.subspan(l->offset, l->length), memory}};
}

std::optional<std::chrono::milliseconds> owner::end_rekey(std::uint64_t lease_id,
                                                          const lease_holder& holder,
                                                          const std::shared_ptr<lease_key>& key,
                                                          std::uint32_t next) {
    if (const auto it = leases_.find(lease_id); it != leases_.end()) it->second.rekeying = false;
    auto* l = key ? renewable(lease_id, holder) : nullptr;
    if (l == nullptr) return std::nullopt;
    if (l->key) l->key->retire();
    l->key = key;
    l->lane = next;
    const auto now = s_.env.now();
    schedule(*l, lease_id, std::max(l->end, std::min(now + s_.options.lease_timeout, l->cap)));
    return std::chrono::duration_cast<std::chrono::milliseconds>(l->end - now);
}

std::optional<owner::leased_bytes> owner::leased_range(std::uint64_t lease_id,
                                                       const lease_holder& holder) const {
    const auto it = leases_.find(lease_id);
    if (it == leases_.end() || it->second.holder.get() != &holder || it->second.by_nic)
        return std::nullopt;
    const auto& memory = slots_.at(it->second.slot_id).memory;
    return leased_bytes{memory->bytes.subspan(it->second.offset, it->second.length), memory};
}

bool owner::unreachable_now(const std::string& gid) const {
    const auto it = unreachable_.find(gid);
    return it != unreachable_.end() && s_.env.now() < it->second.until;
}

void owner::note_unreachable(const std::string& gid) {
    if (unreachable_.size() >= max_unreachable) {
        const auto now = s_.env.now();
        std::erase_if(unreachable_, [&](const auto& u) { return u.second.until <= now; });
        // Somebody makes up addresses: forgetting them all costs a second each, once.
        if (unreachable_.size() >= max_unreachable) unreachable_.clear();
    }
    auto& b = unreachable_[gid];
    b.step = std::clamp<duration>(b.step * 2, 1s, 60s);
    b.until = s_.env.now() + b.step;
}

void owner::when_no_leases(unique_function<void()> f) {
    if (leases_.empty())
        f();
    else
        idle_.push_back(std::move(f));
}

void owner::revoke_all() {
    revoke_where([](const lease&) { return true; });
}

void owner::revoke_in(const fabric::memory_region& region) {
    revoke_where(
        [&](const lease& l) { return slots_.at(l.slot_id).memory->region.get() == &region; });
}

template <class Chosen>
void owner::revoke_where(Chosen chosen) {
    std::vector<std::uint64_t> ids;
    for (const auto& [id, l] : leases_)
        if (chosen(l)) ids.push_back(id);
    for (const auto id : ids)
        if (const auto it = leases_.find(id); it != leases_.end() && !it->second.revoking)
            revoke(id, it->second, false);
}

void owner::drop_slots() {
    for (auto it = slots_.begin(); it != slots_.end();) {
        it->second.references = 0;
        const bool unused = it->second.leases == 0 || planted(bug::slots_dropped_at_shutdown);
        it = unused ? slots_.erase(it) : std::next(it);
    }
}

}  // namespace rvget::engine
