// What a step does: the Reliable Connection protocol as its users can observe it.

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "fabric/sim/world.hpp"

namespace rvget::fabric::sim {
namespace {

constexpr std::uint8_t retries_for_ever = 7;

bool connected(queue_pair_state s) noexcept {
    return s == queue_pair_state::ready_to_receive || s == queue_pair_state::ready_to_send;
}

/// 4.096 us x 2^timeout x (retry_count + 1).
std::chrono::nanoseconds retry_window(const retry_parameters& p) noexcept {
    return std::chrono::nanoseconds{4096} * (std::int64_t{1} << (p.timeout_exponent & 31)) *
           (p.retry_count + 1);
}

std::span<const std::byte> piece_span(const std::byte* at, std::size_t bytes) noexcept {
    return {at, bytes};
}

}  // namespace

// --- What could run ----------------------------------------------------------------------------

void world::set_runnable(queue_pair_record& q, lane which, bool on) {
    auto& position = q.position[static_cast<std::size_t>(which)];
    if (on == (position != not_runnable)) return;
    if (on) {
        position = runnable_.size();
        runnable_.push_back({&q, which});
        return;
    }
    const auto last = runnable_.back();
    runnable_[position] = last;
    last.queue_pair->position[static_cast<std::size_t>(last.which)] = position;
    runnable_.pop_back();
    position = not_runnable;
}

void world::update(queue_pair_record& q) {
    while (q.sends.front() != q.executed) {  // unsignalled successes complete silently
        const auto& wr = q.sends[q.sends.front()];
        if (wr.signalled || wr.status != completion_status::success) break;
        q.sends.pop_until(q.sends.front() + 1);
    }
    const bool alive = hosts_[q.host]->alive;
    const bool in_error = q.state == queue_pair_state::error;
    set_runnable(q, lane::send, alive && send_runnable(q));
    set_runnable(q, lane::completion, alive && q.sends.front() != q.executed);
    set_runnable(q, lane::receive,
                 alive && (q.receives.front() != q.received || (in_error && q.has_receive())));
    set_runnable(q, lane::late, alive && late_runnable(q));
    if (idle_) changed_.notify_one();
}

void world::update_with_peer(queue_pair_record& q) {
    update(q);
    auto* peer = peer_of(q);
    if (peer != nullptr && peer != &q) update(*peer);
}

void world::update_all() {
    for (auto* q : live_) update(*q);
}

bool world::send_runnable(const queue_pair_record& q) const noexcept {
    if (q.sends_idle()) return false;
    if (q.state == queue_pair_state::error) return true;
    if (q.port->state != route::port_state::active || q.own_gid_gone) return true;
    if (q.head().kind == operation::read && q.send.initiator_depth == 0) return false;
    const auto& retry = q.send.retry;
    const bool for_ever =
        (q.waiting == wait::receiver_not_ready && retry.rnr_retry_count == retries_for_ever) ||
        (q.waiting == wait::retry && retry.retry_count == retries_for_ever &&
         q.nic->options.quirks.retry_seven_is_for_ever);
    return !for_ever || can_proceed(q);
}

bool world::late_runnable(const queue_pair_record& q) const noexcept {
    if (q.sends_idle() || q.executed >= q.late_until) return false;
    const auto& wr = q.head();
    if (wr.kind != operation::read || wr.done >= wr.bytes) return false;
    const auto* peer = peer_of(q);
    return peer != nullptr && linked(q, *peer) &&
           (q.state == queue_pair_state::error || peer->state == queue_pair_state::error);
}

bool world::dropped(std::size_t a, std::size_t b) const noexcept {
    return std::any_of(drops_.begin(), drops_.end(), [&](const auto& d) {
        return d == std::pair{std::min(a, b), std::max(a, b)};
    });
}

/// Whether a packet of `q` gets to `peer` and is meant for it: the wire, and what RC checks of a
/// packet before it looks at its operation.
bool world::linked(const queue_pair_record& q, const queue_pair_record& peer) const noexcept {
    return peer.receive.peer.number == q.number && hosts_[peer.host]->alive &&
           q.port->state == route::port_state::active &&
           peer.port->state == route::port_state::active && !peer.own_gid_gone &&
           q.receive.peer.gid == peer.own_gid && peer.receive.peer.gid == q.own_gid &&
           peer.receive.peer.starting_psn == q.send.starting_psn && !dropped(q.host, peer.host);
}

/// Whether the request at the head of the send queue would be answered.
bool world::reachable(const queue_pair_record& q) const noexcept {
    const auto* peer = peer_of(q);
    if (peer == nullptr || !connected(peer->state) || !linked(q, *peer)) return false;
    // A path MTU above the responder's, or above what the wire carries, loses every message that
    // fills a packet; one that is smaller passes (measured on rxe; loopback never meets the wire).
    const auto mtu = q.receive.path_mtu;
    const auto wire = std::min(q.port->active_mtu, peer->port->active_mtu);
    const auto limit =
        q.nic == peer->nic ? peer->receive.path_mtu : std::min(peer->receive.path_mtu, wire);
    return mtu <= limit || q.head().bytes <= limit;
}

bool world::can_proceed(const queue_pair_record& q) const noexcept {
    return reachable(q) && (q.head().kind != operation::send || peer_of(q)->has_receive());
}

/// Whether the READ at `position` would be served as things stand.
bool world::servable(const queue_pair_record& q, std::uint64_t position) const noexcept {
    const auto* peer = peer_of(q);
    if (peer == nullptr || peer->receive.peer.number != q.number || !hosts_[peer->host]->alive) {
        return false;
    }
    const bool open = q.state == queue_pair_state::ready_to_send && connected(peer->state);
    return (open || position < q.late_until) && has(peer->remote_rights, access::remote_read) &&
           remote_read_allowed(*peer, q.sends[position]);
}

/// One past the READs that a NIC has on the wire at once.
std::uint64_t world::in_flight_end(const queue_pair_record& q) noexcept {
    auto end = q.executed;
    while (end != q.sends.back() && end - q.executed < q.send.initiator_depth &&
           q.sends[end].kind == operation::read) {
        ++end;
    }
    return end;
}

step_kind world::kind_of_send(const queue_pair_record& q) const noexcept {
    if (q.state == queue_pair_state::error) return step_kind::flush;
    if (q.port->state != route::port_state::active || q.own_gid_gone) {
        return step_kind::local_failure;
    }
    switch (q.head().kind) {
        case operation::bind:
            return step_kind::bind;
        case operation::invalidate:
            return step_kind::invalidate;
        case operation::read:
        case operation::send:
            break;
        default:
            return step_kind::marker;
    }
    if (!can_proceed(q)) {
        return q.waiting == wait::none ? step_kind::request_lost : step_kind::retry_timeout;
    }
    return q.head().kind == operation::read ? step_kind::read_piece : step_kind::send;
}

step_kind world::kind_of(const actor& a) const noexcept {
    const auto& q = *a.queue_pair;
    switch (a.which) {
        case lane::send:
            return kind_of_send(q);
        case lane::completion:
            return step_kind::completion;
        case lane::late:
            return step_kind::late_piece;
        case lane::receive:
            break;
    }
    return q.receives.front() != q.received ? step_kind::receive_completion
                                            : step_kind::receive_flush;
}

step_info world::at(std::size_t index) const {
    const auto& a = runnable_.at(index);
    const auto& q = *a.queue_pair;
    step_info info{kind_of(a), q.host, q.number, 0, 0, 0};
    if (a.which == lane::receive) {
        info.id = q.receives[q.receives.front()].id;
        return info;
    }
    const auto& wr = a.which == lane::completion ? q.sends[q.sends.front()] : q.head();
    info.id = wr.id;
    if (info.kind == step_kind::read_piece || info.kind == step_kind::late_piece) {
        info.offset = wr.done;
        info.bytes = std::min(options_.piece_bytes, wr.bytes - wr.done);
    } else if (info.kind == step_kind::send) {
        info.bytes = wr.bytes;
    }
    return info;
}

// --- Running a step ----------------------------------------------------------------------------

void world::step(std::size_t index) {
    const auto a = runnable_.at(index);
    auto& q = *a.queue_pair;
    switch (a.which) {
        case lane::send:
            step_send(q);
            break;
        case lane::completion:
            deliver_send(q);
            break;
        case lane::receive:
            step_receive(q);
            break;
        case lane::late:
            late_piece(q);
            break;
    }
    update(q);
}

void world::step_send(queue_pair_record& q) {
    switch (kind_of_send(q)) {
        case step_kind::flush:
            finish(q, completion_status::flushed);
            break;
        case step_kind::local_failure:
            fail(q, completion_status::local_queue_pair_operation);
            break;
        case step_kind::bind:
            run_bind(q);
            break;
        case step_kind::invalidate:
            run_invalidate(q);
            break;
        case step_kind::request_lost:
            lose(q);
            break;
        case step_kind::retry_timeout:
            time_out(q);
            break;
        case step_kind::read_piece:
            read_piece(q);
            break;
        case step_kind::send:
            move_send(q);
            break;
        default:
            finish(q, completion_status::success);
            break;
    }
}

void world::finish(queue_pair_record& q, completion_status status) {
    q.head().status = status;
    ++q.executed;
    q.waiting = wait::none;
}

void world::fail(queue_pair_record& q, completion_status status) {
    finish(q, status);
    enter_error(q, false);
}

/// The responder answers with a negative acknowledgement: both ends go to error.
void world::refuse(queue_pair_record& q, queue_pair_record& responder, completion_status status) {
    fail(q, status);
    enter_error(responder, false);
    raise(*responder.nic,
          {async_event_kind::queue_pair_fatal, responder.port->number, responder.number});
}

void world::enter_error(queue_pair_record& q, bool in_flight_goes_on) {
    if (q.state == queue_pair_state::error) return;
    const auto still_moving = [&](queue_pair_record& requester) {
        const bool on_the_wire = in_flight_goes_on && !requester.sends_idle() &&
                                 requester.state == queue_pair_state::ready_to_send &&
                                 requester.waiting == wait::none && reachable(requester);
        requester.late_until = on_the_wire ? in_flight_end(requester) : requester.executed;
    };
    still_moving(q);
    auto* peer = peer_of(q);
    if (peer != nullptr && peer != &q && peer->state == queue_pair_state::ready_to_send &&
        peer->receive.peer.number == q.number) {
        still_moving(*peer);
    }
    q.state = queue_pair_state::error;
    q.waiting = wait::none;
    update_with_peer(q);
}

void world::lose(queue_pair_record& q) {
    q.waiting = reachable(q) ? wait::receiver_not_ready : wait::retry;
    if (realtime_) {
        q.retry_until = std::chrono::steady_clock::now() + retry_window(q.send.retry);
    }
}

void world::time_out(queue_pair_record& q) {
    fail(q, q.waiting == wait::receiver_not_ready ? completion_status::rnr_retry_exceeded
                                                  : completion_status::retry_exceeded);
}

void world::move_piece(work_request& read) {
    const auto bytes = std::min(options_.piece_bytes, read.bytes - read.done);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): a remote address is a number until here
    const auto* from = reinterpret_cast<const std::byte*>(read.remote_address) + read.done;
    auto* to = read.local + read.done;
    if (on_read_) on_read_(piece_span(from, bytes));
    if (on_write_) on_write_(piece_span(to, bytes));
    std::memmove(to, from, bytes);  // loopback: source and sink may overlap
    read.done += bytes;
}

void world::read_piece(queue_pair_record& q) {
    auto& wr = q.head();
    auto& peer = *peer_of(q);
    q.waiting = wait::none;
    if (wr.bytes > q.port->max_message_bytes) return fail(q, completion_status::local_length);
    if (!local_allowed(q, wr.local_key, {wr.local, wr.bytes}, access::local_write)) {
        return fail(q, completion_status::local_protection);
    }
    // A responder holds no more READs than its depth; the first one beyond is an invalid request.
    const auto depth = peer.receive.responder_depth;
    if (q.send.initiator_depth > depth && in_flight_end(q) - q.executed > depth) {
        q.sends[q.executed + depth].beyond_depth = true;
    }
    if (wr.beyond_depth || !has(peer.remote_rights, access::remote_read)) {
        return refuse(q, peer, completion_status::remote_invalid_request);
    }
    if (!remote_read_allowed(peer, wr)) return refuse(q, peer, completion_status::remote_access);
    if (auto& scripted = hosts_[q.host]->refused_reads; scripted != 0) {
        --scripted;
        return refuse(q, peer, completion_status::remote_access);
    }
    if (auto& scripted = hosts_[q.host]->false_successes; scripted != 0) {
        --scripted;
        return fail(q, completion_status::success);
    }
    move_piece(wr);
    if (wr.done == wr.bytes) finish(q, completion_status::success);
}

void world::late_piece(queue_pair_record& q) {
    auto& wr = q.head();
    const auto& peer = *peer_of(q);
    if (!local_allowed(q, wr.local_key, {wr.local, wr.bytes}, access::local_write) ||
        !has(peer.remote_rights, access::remote_read) || !remote_read_allowed(peer, wr)) {
        q.late_until = q.executed;  // the answer is lost; an end in error sends no refusal
        return;
    }
    move_piece(wr);
    if (wr.done == wr.bytes && q.state != queue_pair_state::error) {
        finish(q, completion_status::success);
    }
}

void world::move_send(queue_pair_record& q) {
    const auto& wr = q.head();
    auto& peer = *peer_of(q);
    q.waiting = wait::none;
    if (wr.bytes > q.port->max_message_bytes) return fail(q, completion_status::local_length);
    if (!wr.inline_data && !local_allowed(q, wr.local_key, {wr.local, wr.bytes}, access::none)) {
        return fail(q, completion_status::local_protection);
    }
    auto& slot = peer.receives[peer.received];
    const auto take = [&](completion_status status) {
        slot.status = status;
        ++peer.received;
    };
    if (slot.buffer.size() < wr.bytes) {
        take(completion_status::local_length);
        return refuse(q, peer, completion_status::remote_invalid_request);
    }
    if (!local_allowed(peer, slot.local_key, slot.buffer, access::local_write)) {
        take(completion_status::local_protection);
        return refuse(q, peer, completion_status::remote_operation);
    }
    if (wr.bytes != 0) {
        if (on_read_ && !wr.inline_data) on_read_(piece_span(wr.local, wr.bytes));
        if (on_write_) on_write_(piece_span(slot.buffer.data(), wr.bytes));
        std::memmove(slot.buffer.data(), wr.local, wr.bytes);
    }
    slot.bytes = wr.bytes;
    take(completion_status::success);
    finish(q, completion_status::success);
    if (&peer != &q) update(peer);
}

void world::run_bind(queue_pair_record& q) {
    const auto& wr = q.head();
    auto* w = windows_[wr.window];
    const auto* k = key(wr.local_key);
    const bool write = has(wr.rights, access::remote_write);
    // A window that is bound must be invalidated before it can be bound anew (type 2).
    const bool allowed = w != nullptr && !w->bound && w->domain == q.domain && k != nullptr &&
                         k->what == key_record::kind::local &&
                         has(k->region->rights, access::window_bind) &&
                         (!write || has(k->region->rights, access::local_write)) &&
                         local_allowed(q, wr.local_key, wr.range, access::window_bind);
    if (!allowed) return fail(q, completion_status::memory_window_bind);
    w->bound = true;
    w->key = wr.remote_key;
    w->queue_pair_number = q.number;
    w->region_key = wr.local_key;
    w->range = wr.range;
    w->rights = wr.rights;
    finish(q, completion_status::success);
}

void world::run_invalidate(queue_pair_record& q) {
    const auto& wr = q.head();
    auto* w = windows_[wr.window];
    if (w == nullptr || !w->bound || w->key != wr.remote_key || w->queue_pair_number != q.number) {
        return fail(q, completion_status::local_queue_pair_operation);
    }
    w->bound = false;
    finish(q, completion_status::success);
}

// --- Completions -------------------------------------------------------------------------------

void world::deliver_send(queue_pair_record& q) {
    const auto position = q.sends.front();
    const auto& wr = q.sends[position];
    completion_entry entry{{wr.id, wr.status, 0, wr.kind, 0, q.number}, position, false};
    q.sends.pop_until(position + 1);
    deliver(*q.completions, entry);
}

void world::step_receive(queue_pair_record& q) {
    const auto position = q.receives.front();
    const auto& slot = q.receives[position];
    if (position == q.received) {
        q.receives[position].status = completion_status::flushed;
        ++q.received;
        return;
    }
    completion_entry entry{
        {slot.id, slot.status, 0, operation::receive, slot.bytes, q.number}, position, true};
    q.receives.pop_until(position + 1);
    deliver(*q.completions, entry);
}

void world::deliver(completion_queue_record& queue, const completion_entry& entry) {
    if (queue.overrun) return;
    if (queue.entries.size() == queue.capacity) {
        queue.overrun = true;
        violation("host " + hosts_[queue.host]->name + ": completion queue of " +
                  std::to_string(queue.capacity) + " entries overrun");
        for (auto* q : live_) {
            if (q->completions == &queue) enter_error(*q, false);
        }
    } else {
        queue.entries.push(entry);
    }
    if (queue.armed) {
        queue.armed = false;
        queue.flag.raise();
    }
}

}  // namespace rvget::fabric::sim
