#include "engine/schedules/lease_oracle.hpp"

#include <algorithm>
#include <utility>

namespace rvget::test {

using std::chrono::milliseconds;

lease_oracle::lease* lease_oracle::find(std::size_t owner, std::uint64_t id) {
    const auto it = std::find_if(leases_.begin(), leases_.end(),
                                 [&](const lease& l) { return l.owner == owner && l.id == id; });
    return it == leases_.end() ? nullptr : &*it;
}

// --- Frames ------------------------------------------------------------------------------------

void lease_oracle::sent(const link_end& from, const wire::frame& f) {
    const auto key = std::pair(from.connection, f.id);
    if (const auto* m = std::get_if<wire::acquire>(&f.body)) {
        acquire_sent(from, *m);
        unanswered_[key] = {f.body, clock_};
    } else if (const auto* ping = std::get_if<wire::ping>(&f.body)) {
        if (ping->offer) offer_sent(from, *ping->offer);
    } else if (const auto* renewal = std::get_if<wire::renew>(&f.body)) {
        if (renewal->offer) offer_sent(from, *renewal->offer);
        unanswered_[key] = {f.body, clock_};
    } else if (const auto* r = std::get_if<wire::acquire_reply>(&f.body)) {
        acquire_answered(from, f.id, *r);
    } else if (const auto* rr = std::get_if<wire::renew_reply>(&f.body)) {
        renewal_answered(from, f.id, *rr);
    } else if (const auto* d = std::get_if<wire::detach>(&f.body)) {
        ends_sent(from, d->leases);
    } else if (const auto* down = std::get_if<wire::lane_down>(&f.body)) {
        if (!from.connector) fence_sent(from, *down);
    }
}

void lease_oracle::delivered(const link_end& to, const wire::frame& f) {
    if (const auto* m = std::get_if<wire::acquire>(&f.body)) {
        ends_heard(to, m->detaches);
    } else if (const auto* d = std::get_if<wire::detach>(&f.body)) {
        ends_heard(to, d->leases);
    } else if (const auto* down = std::get_if<wire::lane_down>(&f.body)) {
        auto& l = lanes_[{to.connection, down->generation}];
        (to.connector ? l.fence_heard : l.given_up) = true;
    } else if (const auto* r = std::get_if<wire::acquire_reply>(&f.body)) {
        const auto at = unheard_.find({to.connection, f.id});
        if (at == unheard_.end()) return;
        if (auto* l = find(to.peer, r->lease))
            l->consumer_end = at->second.sent + milliseconds(r->duration_ms);
        unheard_.erase(at);
    } else if (const auto* rr = std::get_if<wire::renew_reply>(&f.body)) {
        const auto at = unheard_.find({to.connection, f.id});
        if (at == unheard_.end()) return;
        auto* l = find(to.peer, std::get<wire::renew>(at->second.body).lease);
        if (l != nullptr && rr->granted)
            l->consumer_end =
                std::max(l->consumer_end, at->second.sent + milliseconds(rr->duration_ms));
        unheard_.erase(at);
    }
}

void lease_oracle::acquire_sent(const link_end& from, const wire::acquire& m) {
    ends_sent(from, m.detaches);
    if (m.offer) offer_sent(from, *m.offer);
}

void lease_oracle::offer_sent(const link_end& from, const wire::lane_offer& offer) {
    if (!offer.facts) return;
    auto& l = lanes_[{from.connection, offer.generation}];
    if (l.queue_pair != 0 && l.queue_pair != offer.facts->number)
        fail("two queue pairs were offered as one generation");
    l.queue_pair = offer.facts->number;
}

void lease_oracle::read_by(lease& l, const std::vector<std::byte>& descriptor) {
    const auto d = wire::decode_descriptor(descriptor).value();
    l.generation = d.generation;
    l.address = d.address;
    l.length = d.length;
    l.key = d.keys.front().remote_key;
    if (d.mode != mode_) fail("a lease has another kind of key than asked for");
}

void lease_oracle::acquire_answered(const link_end& owner, std::uint64_t id,
                                    const wire::acquire_reply& m) {
    auto node = unanswered_.extract({owner.connection, id});
    if (node.empty()) return fail("an acquire was answered twice, or was never asked");
    const auto& asked = std::get<wire::acquire>(node.mapped().body);
    const bool by_nic = m.answer == wire::answer::rdma;
    if (by_nic && !asked.offer) fail("the owner answered RDMA to no offer");
    if (m.lease != 0) {
        lease l;
        l.id = m.lease;
        l.connection = owner.connection;
        l.owner = owner.node;
        l.consumer = owner.peer;
        l.end = clock_ + milliseconds(m.duration_ms);
        l.cap = std::max(l.end, clock_ + milliseconds(asked.deadline_ms));
        l.by_nic = by_nic;
        if (by_nic) read_by(l, *m.descriptor);
        leases_.push_back(l);
    }
    unheard_.insert(std::move(node));
}

void lease_oracle::renewal_answered(const link_end& owner, std::uint64_t id,
                                    const wire::renew_reply& m) {
    auto node = unanswered_.extract({owner.connection, id});
    if (node.empty()) return fail("a renewal was answered twice, or was never asked");
    const auto& asked = std::get<wire::renew>(node.mapped().body);
    const auto lease_id = asked.lease;
    if (m.granted) {
        auto* l = find(owner.node, lease_id);
        if (l == nullptr) return fail("a lease was renewed that was never granted");
        if (clock_ >= l->end) fail("a lease was renewed after its end");
        if (l->end_heard) fail("a lease was renewed after its detach");
        if (l->by_nic && lanes_[{l->connection, l->generation}].fenced)
            fail("a lease was renewed after its fence");
        l->end = clock_ + milliseconds(m.duration_ms);
        if (l->end > l->cap) fail("a renewal goes beyond the deadline that the acquire carried");
        if (m.descriptor.has_value() != asked.offer.has_value())
            fail("a key was renewed without an offer, or none was for an offer");
        if (m.descriptor) {
            const auto before = *l;
            read_by(*l, *m.descriptor);
            if (l->address != before.address || l->length != before.length)
                fail("a renewed key is for another range");
            if (l->generation == before.generation) fail("a key was renewed for the lane it had");
        }
    }
    unheard_.insert(std::move(node));
}

void lease_oracle::ends_sent(const link_end& consumer, const std::vector<std::uint64_t>& ids) {
    for (const auto id : ids) {
        auto* l = find(consumer.peer, id);
        if (l == nullptr || l->connection != consumer.connection)
            fail("a consumer ends a lease that it was never granted");
        else if (std::exchange(l->end_sent, true))
            fail("a consumer ends lease " + std::to_string(id) + " twice");
    }
}

void lease_oracle::ends_heard(const link_end& owner, const std::vector<std::uint64_t>& ids) {
    for (const auto id : ids) {
        auto* l = find(owner.node, id);
        if (l == nullptr) continue;
        l->end_heard = true;
        const auto& lane = lanes_[{l->connection, l->generation}];
        l->end_heard_first = !l->by_nic || !lane.fenced;
        // Past its end, or while its owner takes leases away, a lease's own key may be on its way
        // out already, or wait for a lane that is going anyway; no frame shows it.
        const bool own_key = mode_ != wire::lease_mode::fence;
        l->end_heard_in_time =
            !l->by_nic || (!ending_[owner.node] && (own_key ? clock_ < l->end : !lane.given_up));
    }
}

void lease_oracle::fence_sent(const link_end& owner, const wire::lane_down& m) {
    auto& lane = lanes_[{owner.connection, m.generation}];
    const auto reads_there = [&](const lease& l) {
        return l.connection == owner.connection && l.by_nic && l.generation == m.generation;
    };
    if (m.why != reason::fenced) {
        lane.given_up = true;
        if (m.why == reason::no_lane && std::ranges::any_of(leases_, reads_there))
            fail("a lane counts as never wired although leases were granted on it");
        return;
    }
    lane.fenced = true;
    if (ending_[owner.node]) return;
    if (mode_ != wire::lease_mode::fence) fail("a lane was fenced although its leases have keys");
    const bool due = std::any_of(leases_.begin(), leases_.end(), [&](const lease& l) {
        return reads_there(l) && !l.end_heard && l.end <= clock_;
    });
    if (!due) fail("a lane was fenced although no lease on it is past its end");
}

void lease_oracle::over(const link_end& end) {
    if (!end.connector) over_.insert(end.connection);
}

// --- READs -------------------------------------------------------------------------------------

void lease_oracle::reads_posted(std::size_t node, std::uint32_t queue_pair,
                                std::span<const fabric::read_request> requests) {
    if (opened_.contains({node, queue_pair})) fail("a queue pair that reads grants remote rights");
    for (const auto& r : requests) {
        std::string why = "no lease covers it";
        bool allowed = false;
        for (const auto& l : leases_) {
            if (l.consumer != node || !l.by_nic || r.remote_key != l.key ||
                r.remote_address < l.address || r.remote_address + r.bytes > l.address + l.length ||
                l.consumer_end == time_point{})
                continue;
            const auto& lane = lanes_[{l.connection, l.generation}];
            if (lane.queue_pair != queue_pair)
                why = "its descriptor is for another generation of the lane";
            else if (l.end_sent)
                why = "its lease was ended before";
            else if (lane.fence_heard)
                why = "the owner has said that the lane is down";
            else if (l.consumer_end < clock_ + retry_window_)
                why = "its retry window outlives the lease";
            else
                allowed = true;
        }
        if (!allowed) fail("a READ was posted that must not be: " + why);
    }
}

void lease_oracle::queue_pair_opened(std::size_t node, std::uint32_t queue_pair,
                                     fabric::access rights) {
    if (has(rights, fabric::access::remote_write)) fail("a queue pair lets a peer write");
    if (has(rights, fabric::access::remote_read))
        opened_.insert({node, queue_pair});
    else
        opened_.erase({node, queue_pair});
}

void lease_oracle::memory_registered(fabric::access rights) {
    using fabric::access;
    if (has(rights, access::remote_write)) fail("memory was registered for a peer to write");
    if (mode_ != wire::lease_mode::fence && has(rights, access::local_write) &&
        has(rights, access::remote_read))
        fail("the key of memory that is read into opens it although leases have keys of their own");
}

// --- Counters ----------------------------------------------------------------------------------

void lease_oracle::check(std::size_t owner, const engine::counters& c) {
    if (c.leases_granted != c.leases_released + c.leases_expired + c.leases_active)
        return fail("granted " + std::to_string(c.leases_granted) + " is not released " +
                    std::to_string(c.leases_released) + " + expired " +
                    std::to_string(c.leases_expired) + " + active " +
                    std::to_string(c.leases_active));
    std::uint64_t granted = 0;
    std::uint64_t released = 0;
    std::uint64_t at_least = 0;
    std::uint64_t at_most = 0;
    for (const auto& l : leases_) {
        if (l.owner != owner) continue;
        ++granted;
        if (l.end_heard_first) ++released;
        const bool over = l.end_heard && l.end_heard_first && l.end_heard_in_time;
        const bool late = !over && clock_ > l.end + timeout_ / 2;
        if (!over && (l.by_nic || !late)) ++at_most;
        bool ended_with_lane = false;
        if (l.by_nic) {
            auto& lane = lanes_[{l.connection, l.generation}];
            if (!l.end_heard && clock_ >= l.end) lane.fence_due = true;
            ended_with_lane = lane.fenced || lane.given_up || lane.fence_due;
            // How long the proof takes is the NIC's business, but it has begun.
            if (mode_ == wire::lease_mode::fence && late && !(l.end_heard && ending_[owner]) &&
                !lane.fenced && !lane.given_up && !over_.contains(l.connection))
                fail("lease " + std::to_string(l.id) +
                     " is past its end by half a timeout and its lane is not fenced");
        }
        if (!l.end_heard && clock_ < l.end && !ended_with_lane && !ending_[owner]) ++at_least;
    }
    if (c.leases_granted != granted)
        fail("the owner counts " + std::to_string(c.leases_granted) + " leases and granted " +
             std::to_string(granted));
    if (c.leases_released > released)
        fail("the owner counts " + std::to_string(c.leases_released) +
             " leases as released and was told of " + std::to_string(released));
    if (c.leases_active > at_most || c.leases_active < at_least)
        fail("the owner counts " + std::to_string(c.leases_active) + " leases as active, " +
             std::to_string(at_least) + " to " + std::to_string(at_most) + " can be");
}

}  // namespace rvget::test
