#include "engine/owner_connection.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/crc32c.hpp"
#include "base/log.hpp"
#include "engine/decision.hpp"
#include "engine/planted.hpp"

namespace rvget::engine {

using std::chrono::milliseconds;

/// Lanes of one consumer that exist at once: the one in use and those whose destruction runs.
constexpr std::size_t max_lanes = 4;
constexpr std::uint16_t known_backends = wire::backend_exchange | wire::backend_cm;
/// Acquires of one consumer that wait for its lane at once; more of them are answered as they come.
constexpr std::size_t max_waiting = 1024;
/// Checksums that one consumer has the owner compute at once; more of them are told to come again.
constexpr std::size_t max_checksums = 16;
/// Pings of one consumer that wait for its lane at once; more of them hear that there is none yet.
constexpr std::size_t max_pings = 16;
/// Slots that one consumer holds references to at once.
constexpr std::size_t max_referenced_slots = 65'536;

owner_connection::owner_connection(services& s, owner& o, std::shared_ptr<control_link> link,
                                   handlers h)
    : s_(s), owner_(o), link_(std::move(link)), handlers_(std::move(h)) {}

owner_connection::~owner_connection() = default;

void owner_connection::start() {
    handshake_timer_ =
        s_.env.at(s_.env.now() + s_.options.handshake_timeout, [self = shared_from_this()] {
            self->handshake_timer_ = 0;
            self->drop({connection_errc::lost, "no greeting within the handshake timeout"});
        });
    link_->start(shared_from_this());
}

void owner_connection::drop(const failure& why) {
    if (!why_) why_ = why;
    end_is_known_ = true;
    link_->close();
}

void owner_connection::close(const std::string& why) {
    if (!open_) return;
    if (greeted_) send(0, wire::goodbye{why});  // a stranger is told nothing
    link_->close(greeted_);
    end_is_known_ = true;
    closing_ = true;  // a peer that does not read holds up nothing
    destroy_lanes_if_over();
}

void owner_connection::on_frame(std::span<const std::byte> head,
                                std::span<const std::byte> payload) {
    auto decoded = wire::decode_frame(head);
    if (!decoded) return protocol_error(decoded.error().detail);
    if (!payload.empty()) return protocol_error("a payload where none belongs");
    auto& frame = decoded.value();
    if (!greeted_ && !std::holds_alternative<wire::hello>(frame.body))
        return protocol_error("the first frame is not a greeting");
    std::visit([&](auto& body) { handle(frame.id, body); }, frame.body);
}

std::span<std::byte> owner_connection::payload_destination(std::span<const std::byte>,
                                                           std::size_t) {
    protocol_error("a payload where none belongs");  // before any memory is found for it
    return {};
}

void owner_connection::protocol_error(const std::string& what) {
    if (!open_) return;
    if (!greeted_) return drop({connection_errc::protocol, what});
    log(log_level::warning, "peer=" + link_->peer_name() + " action=close cause=" + quoted(what));
    send(0, wire::goodbye{"protocol error: " + what});
    end_is_known_ = true;
    link_->close(true);
}

void owner_connection::on_closed(const failure& why) {
    open_ = false;
    if (greeted_ && !end_is_known_ && why.code != node_errc::stopped)
        log(leases_ != 0 ? log_level::warning : log_level::info,
            "consumer=" + link_->peer_name() + " event=connection_lost leases=" +
                std::to_string(leases_) + " cause=" + quoted(why.message()) +
                " next=\"its leases are revoked at their ends, its references are released; see "
                "whether that process runs and its machine answers\"");
    s_.env.cancel(std::exchange(handshake_timer_, 0));
    for (auto& [key, w] : std::exchange(waiting_, {})) s_.env.cancel(w.timer);
    pings_.clear();
    for (const auto& [slot_id, count] : std::exchange(references_, {}))
        owner_.release(slot_id, owner::referrer::consumer, count);
    destroy_lanes_if_over();
    handlers_.greeted = nullptr;
    if (auto closed = std::exchange(handlers_.closed, nullptr)) closed(*this, why_.value_or(why));
}

void owner_connection::lease_ended() {
    --leases_;
    destroy_lanes_if_over();
}

/// The connection is gone and so is its last lease: nothing reads through its lanes any more.
void owner_connection::destroy_lanes_if_over() {
    if ((open_ && !closing_) || leases_ != 0) return;
    for (auto& [generation, lane] : std::exchange(lanes_, {})) lane->destroy([] {});
}

void owner_connection::fence(std::uint32_t generation, unique_function<void()> proven) {
    give_up(generation, reason::fenced, std::move(proven));
}

void owner_connection::send(std::uint64_t id, wire::body body, frame_payload payload) {
    if (auto* reply = std::get_if<wire::acquire_reply>(&body))
        if (const auto known = checksums_.extract(id)) reply->crc32c = known.mapped();
    if (open_) link_->send(wire::encode(wire::frame{id, std::move(body)}), std::move(payload));
}

void owner_connection::handle(std::uint64_t, wire::hello& m) {
    if (greeted_) return protocol_error("a second greeting");
    if (const auto proven = link_->proven_peer(); proven && *proven != m.node)
        return protocol_error("a greeting with another id than the proven one");
    s_.env.cancel(std::exchange(handshake_timer_, 0));
    greeted_ = true;
    const auto version = wire::common_version(m);
    rdma_known_ = version >= wire::protocol_version_rdma;
    consumer_ = m.node;
    const bool room = handlers_.greeted(*this);
    send(0, wire::hello{.node = s_.self});
    if (!version) return close("no protocol version in common");
    if (!room)
        close("busy: " + std::to_string(s_.options.max_consumers) + " consumers are connected");
}

std::shared_ptr<serve_lane> owner_connection::lane_for(const wire::lane_offer& offer) {
    if (const auto it = lanes_.find(offer.generation); it != lanes_.end()) return it->second;
    // A generation is wired once; one that was given up never comes back. One at a time: each may
    // hold a worker thread for a second.
    const bool one_is_made =
        std::ranges::any_of(lanes_, [](const auto& l) { return l.second->is_being_made(); });
    if (!rdma_known_ || !offer.facts || (offer.backends & known_backends) == 0 ||
        offer.generation <= newest_generation_ || closing_ || one_is_made || !s_.rdma.usable() ||
        owner_.draining() || owner_.is_fenced(consumer_) || lanes_.size() >= max_lanes)
        return nullptr;
    // RDMA-CM finds out by itself whether an address resolves, and takes no second of anybody's.
    const bool by_cm = (offer.backends & wire::backend_exchange) == 0;
    const auto gid = route::gid{offer.facts->gid}.to_string();
    if (!by_cm && owner_.unreachable_now(gid)) return nullptr;
    newest_generation_ = offer.generation;
    auto lane = std::make_shared<serve_lane>(s_, offer.generation);
    lanes_.emplace(offer.generation, lane);
    lane->wire(link_->own_address(), *offer.facts, by_cm,
               [weak = weak_from_this(), generation = offer.generation] {
                   if (const auto self = weak.lock())
                       self->give_up(generation, reason::get_failed, [] {});
               });
    lane->when_answerable([self = shared_from_this()] { self->answer_pings(); });
    lane->when_settled([this, self = shared_from_this(), gid, weak = std::weak_ptr(lane)] {
        if (const auto settled = weak.lock()) lane_settled(*settled, gid);
    });
    return lane;
}

void owner_connection::lane_settled(const serve_lane& lane, const std::string& gid) {
    const auto& error = lane.error();
    if (error.code == device_errc::transition_failed)
        owner_.note_unreachable(gid);
    else if (lane.status() == lane_status::ready)
        owner_.note_reachable(gid);
    auto waiting = std::exchange(waiting_, {});
    for (auto& [key, w] : waiting) {
        s_.env.cancel(w.timer);
        answer(w.request, w.acquire, w.lane, false);
    }
    // After the answers, which carry the cause: the consumer begins anew with another generation.
    if (error.code && open_) send(0, wire::lane_down{lane.generation(), reason::no_lane});
}

/// Answers when the lane has settled or the time is up, whichever comes first.
void owner_connection::wait_for_lane(std::uint64_t id, const wire::acquire& m,
                                     const std::shared_ptr<serve_lane>& lane) {
    // Who insists on RDMA would rather wait than be refused.
    const auto wait = m.force ? std::max(s_.options.wireup_wait, milliseconds(m.deadline_ms))
                              : s_.options.wireup_wait;
    const auto key = next_waiting_++;
    auto& w = waiting_[key];
    w.request = id;
    w.acquire = m;
    w.lane = lane;
    w.timer = s_.env.at(s_.env.now() + wait, [self = shared_from_this(), key] {
        auto late = self->waiting_.extract(key);
        if (late)
            self->answer(late.mapped().request, late.mapped().acquire, late.mapped().lane, false);
    });
}

void owner_connection::handle(std::uint64_t id, wire::acquire& m) {
    // Taken out: an acquire that waits for its checksum, lane or key is copied.
    for (const auto lease : std::exchange(m.detaches, {})) owner_.detach(lease, *this);
    if (m.checksum == wire::checksum::crc32c) return checksum_first(id, m);
    answer(id, m, m.offer ? lane_for(*m.offer) : nullptr, true);
}

/// Staged bytes never change, so their checksum may be older than the answer that carries it.
void owner_connection::checksum_first(std::uint64_t id, const wire::acquire& m) {
    const auto lane = m.offer ? lane_for(*m.offer) : nullptr;
    const auto* sl = owner_.find(m.slot);
    if (sl == nullptr || m.offset > sl->memory->bytes.size() || owner_.draining())
        return answer(id, m, lane, true);
    if (checksums_running_ >= max_checksums) {
        wire::acquire_reply reply;
        reply.answer = wire::answer::busy;
        reply.retry_after_ms = 10;
        return send(id, std::move(reply));
    }
    ++checksums_running_;
    const auto whole = sl->memory->bytes.subspan(m.offset);
    const auto range = whole.first(std::min<std::uint64_t>(m.length, whole.size()));
    auto value = std::make_shared<std::uint32_t>(0);
    s_.env.offload(
        blocking_work::make, [range, value, keep = sl->memory] { *value = crc32c(range); },
        [self = shared_from_this(), id, m, lane, value] {
            --self->checksums_running_;
            self->checksums_[id] = *value;
            self->answer(id, m, lane, true);
        });
}

/// Answers an acquire, at the latest after wireup_wait. Nothing is remembered between the two
/// looks: the slot may have gone, the node may have begun to drain.
void owner_connection::answer(std::uint64_t id, const wire::acquire& m,
                              const std::shared_ptr<serve_lane>& lane, bool may_wait) {
    if (!open_) return;
    wire::acquire_reply reply;
    const auto* sl = owner_.find(m.slot);
    if (sl == nullptr) {
        reply.answer = wire::answer::not_found;
        return send(id, std::move(reply));
    }
    reply.slot_bytes = sl->memory->bytes.size();
    if (m.offset > reply.slot_bytes) {
        reply.answer = wire::answer::out_of_range;
        return send(id, std::move(reply));
    }
    const auto length = std::min(m.length, reply.slot_bytes - m.offset);
    reply.range_bytes = length;
    if (lane && m.offer->facts && lane->status() == lane_status::ready) {
        reply.lane_generation = lane->generation();
        reply.lane_facts = lane->facts();
    }
    if (owner_.draining()) {
        reply.answer = wire::answer::refused;
        reply.why = reason::draining;
        return send(id, std::move(reply));
    }

    auto f = facts_of(m.offer, lane.get());
    f.forced = m.force;
    f.range_bytes = length;
    f.rdma_min_bytes = s_.options.rdma_min_bytes;
    f.inline_max = s_.options.inline_max;
    f.pinned = sl->memory->pinned;
    const auto d = decide(f);
    if (d.wait_for_lane && may_wait && waiting_.size() < max_waiting)
        return wait_for_lane(id, m, lane);
    reply.answer = d.answer;
    reply.why = d.why;
    reply.detail = detail_of(d.why, lane.get());
    if (d.why == reason::not_pinned)
        reply.detail = sl->memory->why_plain_detail.substr(0, wire::max_text_bytes);

    if (d.answer == wire::answer::inline_answer) {
        s_.stats.decided(path::inline_answer, d.why);
        return send(id, std::move(reply),
                    {sl->memory->bytes.subspan(m.offset, length), sl->memory});
    }
    if (d.answer != wire::answer::rdma && d.answer != wire::answer::chunked)
        return send(id, std::move(reply));
    if (!owner_.room_for_lease() || (d.answer == wire::answer::chunked && behind_with_chunks())) {
        reply.answer = wire::answer::busy;
        reply.retry_after_ms = 100;
        return send(id, std::move(reply));
    }
    if (d.answer == wire::answer::rdma) {
        const auto range = sl->memory->bytes.subspan(m.offset, length);
        return make_key(lane, sl->memory, range,
                        [self = shared_from_this(), id, m, reply = std::move(reply),
                         generation = lane->generation()](auto key) mutable {
                            self->answer_rdma(id, m, std::move(reply), generation, std::move(key));
                        });
    }
    grant(reply, m, nullptr, 0);
    send(id, std::move(reply));
}

decision_facts owner_connection::facts_of(const std::optional<wire::lane_offer>& offer,
                                          const serve_lane* lane) const {
    decision_facts f;
    f.offered = offer.has_value();
    f.version_has_rdma = rdma_known_;
    f.common_backend = offer && (offer->backends & known_backends) != 0;
    f.lane = lane != nullptr ? lane->status() : lane_status::absent;
    f.fenced = owner_.is_fenced(consumer_);
    f.kill_switch = s_.options.rdma_disabled;
    f.configured = s_.rdma.usable() || f.kill_switch;
    return f;
}

std::string owner_connection::detail_of(reason why, const serve_lane* lane) const {
    std::string detail;
    if (why == reason::no_lane && lane != nullptr) detail = lane->error().detail;
    if (why == reason::not_configured) detail = s_.rdma.why_not_detail();
    return detail.substr(0, wire::max_text_bytes);
}

namespace {

/// The shared key of an arena: it opens all of it to whoever has a queue pair to this node, so that
/// taking it from one consumer means destroying that consumer's queue pair.
class fence_key final : public lease_key {
public:
    fence_key(std::shared_ptr<lease_holder> holder, std::uint32_t generation,
              std::uint32_t remote_key)
        : holder_(std::move(holder)), generation_(generation), remote_key_(remote_key) {}
    [[nodiscard]] wire::lease_mode mode() const noexcept override {
        return wire::lease_mode::fence;
    }
    [[nodiscard]] std::uint32_t remote_key() const noexcept override { return remote_key_; }
    void revoke(unique_function<void()> proven) override {
        holder_->fence(generation_, std::move(proven));
    }
    void retire() override {}  // there is nothing to take away: its word has to do

private:
    std::shared_ptr<lease_holder> holder_;
    std::uint32_t generation_;
    std::uint32_t remote_key_;
};

/// For devices on which a READ under way outlives its key: taking it away ends the queue pair
/// first.
class fenced_key final : public lease_key {
public:
    fenced_key(std::shared_ptr<lease_holder> holder, std::uint32_t generation,
               std::shared_ptr<lease_key> key)
        : holder_(std::move(holder)), generation_(generation), key_(std::move(key)) {}
    [[nodiscard]] wire::lease_mode mode() const noexcept override { return key_->mode(); }
    [[nodiscard]] std::uint32_t remote_key() const noexcept override { return key_->remote_key(); }
    void revoke(unique_function<void()> proven) override {
        holder_->fence(generation_, [key = key_, f = std::move(proven)]() mutable {
            key->revoke(std::move(f));
        });
    }
    void retire() override { key_->retire(); }  // its consumer is done

private:
    std::shared_ptr<lease_holder> holder_;
    std::uint32_t generation_;
    std::shared_ptr<lease_key> key_;
};

std::vector<std::byte> encode_descriptor(std::span<const std::byte> range, std::uint64_t lease,
                                         std::uint32_t duration_ms, const lease_key& key,
                                         std::uint32_t generation) {
    wire::descriptor d;
    d.address = reinterpret_cast<std::uintptr_t>(range.data());
    d.length = range.size();
    d.lease = lease;
    d.duration_ms = duration_ms;
    d.generation = generation;
    d.mode = key.mode();
    d.keys = {{0, key.remote_key()}};
    return wire::encode(d);
}

}  // namespace

void owner_connection::make_key(const std::shared_ptr<serve_lane>& lane,
                                const std::shared_ptr<const slot_memory>& memory,
                                std::span<const std::byte> range, lease_key_made done) {
    switch (s_.rdma.lease_keys()) {
        case wire::lease_mode::window:
            return lane->make_key(memory, range, std::move(done));
        case wire::lease_mode::exact:
            if (s_.rdma.device()->quirks().response_outlives_its_key)
                done = [self = shared_from_this(), generation = lane->generation(),
                        f = std::move(done)](result<std::shared_ptr<lease_key>> key) mutable {
                    if (key)
                        key = std::shared_ptr<lease_key>(
                            std::make_shared<fenced_key>(self, generation, *key));
                    f(std::move(key));
                };
            return make_exact_key(s_, memory, range, std::move(done));
        case wire::lease_mode::fence:
            break;
    }
    done(std::shared_ptr<lease_key>(
        std::make_shared<fence_key>(shared_from_this(), lane->generation(), memory->remote_key)));
}

/// The slot and the connection may have gone while the key was made.
void owner_connection::answer_rdma(std::uint64_t id, const wire::acquire& m,
                                   wire::acquire_reply reply, std::uint32_t generation,
                                   result<std::shared_ptr<lease_key>> key) {
    const auto* sl = owner_.find(m.slot);
    const auto lane = lanes_.find(generation);
    const bool ready = lane != lanes_.end() && lane->second->status() == lane_status::ready;
    if (!open_ || sl == nullptr || !ready || owner_.draining()) {
        if (key) key.value()->retire();
        return answer(id, m, ready ? lane->second : nullptr, false);
    }
    if (!key) {
        reply.answer = m.force ? wire::answer::refused : wire::answer::chunked;
        reply.why = s_.rdma.lease_keys() == wire::lease_mode::exact ? reason::registration
                                                                    : reason::no_lane;
        reply.detail = key.error().message().substr(0, wire::max_text_bytes);
        if (!m.force) grant(reply, m, nullptr, 0);
        return send(id, std::move(reply));
    }
    const auto k = key.value();
    grant(reply, m, k, generation);
    reply.descriptor = encode_descriptor(sl->memory->bytes.subspan(m.offset, reply.range_bytes),
                                         reply.lease, reply.duration_ms, *k, generation);
    send(id, std::move(reply));
}

/// Whose chunks wait while too many do; a consumer that reads what it asked for is served.
bool owner_connection::behind_with_chunks() const {
    return owner_.chunks().room() == 0 && link_->queued_bytes() != 0;
}

void owner_connection::grant(wire::acquire_reply& reply, const wire::acquire& m,
                             std::shared_ptr<lease_key> key, std::uint32_t generation) {
    s_.stats.decided(key ? path::rdma : path::chunked, reply.why);
    const auto granted =
        owner_.grant_lease(m.slot, shared_from_this(), std::move(key), generation, m.offset,
                           reply.range_bytes, milliseconds(m.deadline_ms));
    ++leases_;
    reply.lease = granted.lease;
    reply.duration_ms = static_cast<std::uint32_t>(granted.duration.count());
}

void owner_connection::handle(std::uint64_t, wire::detach& m) {
    for (const auto lease : m.leases) owner_.detach(lease, *this);
}

void owner_connection::handle(std::uint64_t id, wire::renew& m) {
    if (m.offer) return rekey(id, m);
    wire::renew_reply reply;
    if (const auto granted = owner_.renew(m.lease, *this)) {
        reply.granted = true;
        reply.duration_ms = static_cast<std::uint32_t>(granted->count());
    }
    send(id, reply);
}

/// The new lane is wired while the former one is destroyed, whose end is the proof that nothing
/// reads through it with the former key. No limit of its own: the kernel bounds the wiring to about
/// a second, a connection is awaited for a few, and the consumer gives up with its lease.
void owner_connection::rekey(std::uint64_t id, const wire::renew& m) {
    const auto lane = lane_for(*m.offer);
    const auto lease = lane ? owner_.begin_rekey(m.lease, *this, lane->generation()) : std::nullopt;
    if (!lease) return send(id, wire::renew_reply{});
    give_up(lease->lane, reason::get_failed,
            [self = shared_from_this(), id, m, lane, range = lease->range] {
                lane->when_settled([self, id, m, lane, range] {
                    if (!self->serves(*lane)) return self->rekeyed(id, m, *lane, range, nullptr);
                    self->make_key(lane, range.keep, range.bytes,
                                   [self, id, m, lane, range](auto key) {
                                       self->rekeyed(id, m, *lane, range, key ? *key : nullptr);
                                   });
                });
            });
}

void owner_connection::rekeyed(std::uint64_t id, const wire::renew& m, const serve_lane& lane,
                               const owner::leased_bytes& range,
                               const std::shared_ptr<lease_key>& key) {
    wire::renew_reply reply;
    const auto generation = lane.generation();
    const auto left = owner_.end_rekey(m.lease, *this, serves(lane) ? key : nullptr, generation);
    if (left) {
        reply.granted = true;
        reply.duration_ms = static_cast<std::uint32_t>(left->count());
        reply.descriptor =
            encode_descriptor(range.bytes, m.lease, reply.duration_ms, *key, generation);
        if (m.offer->facts) {
            reply.lane_generation = generation;
            reply.lane_facts = lane.facts();
        }
    } else if (key) {
        key->retire();
    }
    send(id, std::move(reply));
}

/// New leases may be READ through it.
bool owner_connection::serves(const serve_lane& lane) const {
    return open_ && !owner_.draining() && lanes_.contains(lane.generation()) &&
           lane.status() == lane_status::ready;
}

void owner_connection::handle(std::uint64_t id, wire::pull& m) {
    const auto range = owner_.leased_range(m.lease, *this);
    if (!range) return send(id, wire::chunk{wire::chunk_status::lease_unknown});
    if (m.offset > range->bytes.size() || m.bytes > range->bytes.size() - m.offset)
        return send(id, wire::chunk{wire::chunk_status::out_of_range});
    struct chunk_waiting {
        std::shared_ptr<const slot_memory> memory;
        byte_budget::claim claim;
    };
    // The lease is granted, so the chunk is served; a full budget tells the next acquires.
    const bool kept = !planted(bug::chunk_not_kept) || !range->keep->pinned;
    send(id, wire::chunk{},
         {range->bytes.subspan(m.offset, m.bytes),
          std::make_shared<chunk_waiting>(chunk_waiting{
              kept ? range->keep : nullptr, owner_.chunks().take_regardless(m.bytes)})});
}

void owner_connection::handle(std::uint64_t id, wire::metadata_request& m) {
    wire::metadata_reply reply;
    if (const auto* sl = owner_.find(m.slot)) {
        reply.found = true;
        reply.bytes = sl->memory->bytes.size();
        reply.references = sl->references;
        reply.leases = sl->leases;
        reply.pinned = sl->memory->pinned;
    }
    send(id, reply);
}

/// A consumer releases only references that it added itself.
void owner_connection::handle(std::uint64_t id, wire::reference& m) {
    wire::reference_reply reply;
    std::optional<std::uint32_t> left;
    if (m.change == wire::reference_change::add) {
        if (references_.size() < max_referenced_slots || references_.contains(m.slot))
            left = owner_.add_reference(m.slot, owner::referrer::consumer);
        if (left) ++references_[m.slot];
    } else if (const auto it = references_.find(m.slot); it != references_.end()) {
        if (--it->second == 0) references_.erase(it);
        left = owner_.release(m.slot, owner::referrer::consumer);
    }
    if (left) reply = {true, *left};
    send(id, reply);
}

/// The consumer posts nothing more through its end, and what it had posted fails: ours serves
/// nobody any more.
void owner_connection::handle(std::uint64_t, wire::lane_down& m) {
    give_up(m.generation, reason::ok, [] {});
}

/// Destroys a lane, then calls `proven`; tells the consumer why, unless it is the one who says so.
void owner_connection::give_up(std::uint32_t generation, reason tell,
                               unique_function<void()> proven) {
    const auto it = lanes_.find(generation);
    if (it == lanes_.end()) return proven();
    if (open_ && tell != reason::ok && !it->second->is_going())
        send(0, wire::lane_down{generation, tell});
    // It stays in the table until the kernel says that it is gone: a fence waits for the same
    // proof.
    it->second->destroy([self = shared_from_this(), generation, f = std::move(proven)]() mutable {
        self->lanes_.erase(generation);
        self->owner_.lane_gone(*self, generation);
        f();
    });
}

void owner_connection::handle(std::uint64_t, wire::goodbye& m) {
    log(log_level::debug, "peer=" + link_->peer_name() + " goodbye=" + quoted(m.why));
    end_is_known_ = true;
    link_->close();
}

void owner_connection::handle(std::uint64_t id, wire::ping& m) {
    if (!m.offer) return send(id, wire::pong{});
    auto lane = lane_for(*m.offer);
    // No limit of its own: the kernel bounds the wiring to about a second, a connection has its
    // own, and who asks has one.
    if (lane && lane->status() == lane_status::making && !lane->connect_to() &&
        pings_.size() < max_pings)
        return pings_.push_back({id, *m.offer, std::move(lane)});
    answer_ping(id, *m.offer, lane.get());
}

void owner_connection::answer_pings() {
    for (const auto& p : std::exchange(pings_, {})) answer_ping(p.request, p.offer, p.lane.get());
}

void owner_connection::answer_ping(std::uint64_t id, const wire::lane_offer& offer,
                                   const serve_lane* lane) {
    auto f = facts_of(offer, lane);
    f.draining = owner_.draining();
    // As for a get that insists on RDMA, of bytes that are pinned.
    f.forced = f.pinned = true;
    f.range_bytes = 1;
    wire::pong reply;
    const bool connects = lane != nullptr && lane->connect_to();
    if (connects) f.lane = lane_status::ready;  // as far as this end can tell
    reply.why = decide(f).why;
    reply.detail = detail_of(reply.why, lane);
    if (reply.why == reason::ok) {
        reply.lane_generation = lane->generation();
        if (offer.facts) reply.lane_facts = lane->facts();
        if (connects) reply.connect_to = lane->connect_to();
    }
    send(id, std::move(reply));
}

}  // namespace rvget::engine
