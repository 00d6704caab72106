#include "engine/consumer_connection.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "engine/planted.hpp"

namespace rvget::engine {

using namespace std::chrono_literals;

/// A lone lease end leaves this long after it, where no acquire takes it along.
constexpr auto lease_end_delay = 1ms;
/// A frame holds this many lease ends at most, far below the limit of its head.
constexpr std::size_t lease_ends_per_frame = 1024;

namespace {

failure closed_failure() { return {connection_errc::lost, "the control connection is closed"}; }

}  // namespace

consumer_connection::consumer_connection(services& s, endpoint_address to, event on_closed)
    : s_(s),
      to_(std::move(to)),
      on_closed_(std::move(on_closed)),
      by_cm_(s.options.wireup == wireup_choice::cm || s.rdma.needs_cm()) {}

consumer_connection::~consumer_connection() = default;

void consumer_connection::open(unique_function<void()> on_up) {
    on_up_ = std::move(on_up);
    state_ = state::connecting;
    const auto deadline = s_.env.now() + s_.options.handshake_timeout;
    timer_ = s_.env.at(deadline, [self = shared_from_this()] {
        self->timer_ = 0;
        if (self->state_ != state::greeting) return;  // connect has the same deadline of its own
        self->end(connection_errc::connect_failed,
                  "it does not answer as an rvget owner within the handshake timeout");
    });
    s_.net.connect(to_, deadline,
                   [self = shared_from_this()](result<std::shared_ptr<control_link>> link) {
                       if (link)
                           self->connected(std::move(link.value()));
                       else
                           self->on_closed(link.error());
                   });
}

void consumer_connection::connected(std::shared_ptr<control_link> link) {
    if (state_ == state::closed) return link->close();
    link_ = std::move(link);
    state_ = state::greeting;
    link_->start(shared_from_this());
    link_->send(wire::encode(wire::frame{0, wire::hello{.node = s_.self}}));
}

void consumer_connection::greeted(const wire::hello& m) {
    if (const auto proven = link_->proven_peer(); proven && *proven != m.node)
        return protocol_error("a greeting with another id than the proven one");
    const auto version = wire::common_version(m);
    if (!version)
        return end(connection_errc::version_mismatch,
                   "no protocol version in common: it speaks " + std::to_string(m.version_oldest) +
                       " to " + std::to_string(m.version_newest) + "; update the older of the two");
    owner_ = m.node;
    version_ = *version;
    state_ = state::up;
    s_.env.cancel(std::exchange(timer_, 0));
    if (!refusal() && s_.options.policy != path_policy::never) {
        // The queue pair is made while the first get is still on its way here.
        if (s_.options.eagerness == wireup_eagerness::prepared) start_lane();
        if (s_.options.eagerness == wireup_eagerness::eager)
            warm([](const failure&, const readiness&) {});
    }
    if (on_up_) std::exchange(on_up_, nullptr)();
}

void consumer_connection::close(const std::string& why) {
    if (state_ == state::closed || closing_) return;
    if (!link_) return on_closed({node_errc::stopped, why});
    closing_ = why;
    if (lane_) std::exchange(lane_, nullptr)->retire();
    for (auto& waiter : std::exchange(lane_waiters_, {})) waiter();
    tell_warmed(closed_failure(), {});
    if (reads_ == 0) say_goodbye();
}

/// Once no READ is under way: a lease that ends after the connection is one that the owner has to
/// expire.
void consumer_connection::say_goodbye() {
    if (state_ == state::closed) return;
    send_ended_leases();
    link_->send(wire::encode(wire::frame{0, wire::goodbye{*closing_}}));
    link_->close(true);
}

void consumer_connection::read_over() {
    if (--reads_ == 0 && closing_) say_goodbye();
}

void consumer_connection::on_closed(const failure& why) {
    if (state_ == state::closed) return;
    const auto self = shared_from_this();  // the handlers below may drop the last other reference
    failure f = goodbye_.value_or(why);
    if (!goodbye_ && state_ == state::greeting && f.code == connection_errc::lost)
        f.detail += " before it greeted; it may ask for a proof of who is there (a secret, TLS)";
    if (state_ == state::up && !closing_) log_end(f);
    state_ = state::closed;
    s_.env.cancel(std::exchange(timer_, 0));
    s_.env.cancel(std::exchange(silence_timer_, 0));
    s_.env.cancel(std::exchange(ended_timer_, 0));
    s_.env.cancel(std::exchange(cm_timer_, 0));
    if (const auto lane = std::exchange(lane_, nullptr)) {
        // A device of iWARP may report nothing of READs that a dead peer leaves open.
        if (s_.rdma.needs_cm() && !closing_)
            lane->fail(reason::get_failed, f);
        else
            lane->retire();
    }
    for (auto& waiter : std::exchange(lane_waiters_, {})) waiter();
    for (auto& [id, p] : std::exchange(pending_, {})) p.done(f, nullptr, {});
    tell_warmed(f, {});
    on_up_ = nullptr;
    if (on_closed_) std::exchange(on_closed_, nullptr)(f);
}

void consumer_connection::log_end(const failure& why) const {
    // A protocol error was said where it was found; the end of this node is no news.
    if (why.code == connection_errc::protocol || why.code == node_errc::stopped) return;
    // Whoever waits for an answer is told the cause with his error.
    log(goodbye_ || !pending_.empty() ? log_level::info : log_level::warning,
        "owner=" + to_.to_string() + " event=connection_lost requests=" +
            std::to_string(pending_.size()) + " cause=" + quoted(why.message()) +
            " next=\"the next get connects again; see whether that process runs and its machine "
            "answers\"");
}

/// Says once that an owner answers nothing although its connection stands.
void consumer_connection::watch_for_silence() {
    silence_timer_ = 0;
    if (pending_.empty()) return;
    // By then a machine that does not answer has ended the connection.
    const auto limit = 2 * s_.options.peer_timeout;
    if (s_.env.now() < heard_ + limit) {
        silence_timer_ =
            s_.env.at(heard_ + limit, [self = shared_from_this()] { self->watch_for_silence(); });
        return;
    }
    silence_said_ = true;
    log(log_level::warning,
        "owner=" + to_.to_string() +
            " event=owner_silent requests=" + std::to_string(pending_.size()) +
            " cause=\"no answer for " + std::to_string(limit.count()) +
            " ms, though its machine still acknowledges: the process is stopped, hangs or has too "
            "little CPU\" next=\"look at that process; gets end by their deadlines\"");
}

std::uint64_t consumer_connection::request(wire::body body, replied done,
                                           std::span<std::byte> into) {
    const auto id = next_request_++;
    if (state_ != state::up) {
        s_.env.post([done = std::move(done)]() mutable { done(closed_failure(), nullptr, {}); });
        return id;
    }
    if (pending_.empty()) heard_ = s_.env.now();
    pending_.emplace(id, pending{std::move(done), into});
    if (silence_timer_ == 0 && !silence_said_) watch_for_silence();
    link_->send(wire::encode(wire::frame{id, std::move(body)}));
    return id;
}

void consumer_connection::forget_destination(std::uint64_t request_id) {
    const auto it = pending_.find(request_id);
    if (it == pending_.end() || it->second.into.empty()) return;
    // The payload may be half way in: the rest of it goes elsewhere.
    if (link_) link_->forget_destination(it->second.into);
    it->second.into = {};
}

std::span<std::byte> consumer_connection::payload_destination(std::span<const std::byte> head,
                                                              std::size_t payload_bytes) {
    auto decoded = wire::decode_frame(head);
    if (!decoded) return {};  // on_frame says what is wrong
    announced_ = std::move(decoded.value());
    const auto it = pending_.find(announced_->id);
    if (it == pending_.end() || it->second.into.size() != payload_bytes) return {};
    const auto* c = std::get_if<wire::chunk>(&announced_->body);
    filled_ = c != nullptr && c->status == wire::chunk_status::ok;
    return filled_ ? it->second.into : std::span<std::byte>{};
}

void consumer_connection::on_frame(std::span<const std::byte> head,
                                   std::span<const std::byte> payload) {
    if (auto f = std::exchange(announced_, std::nullopt)) return deliver(*f, payload);
    auto decoded = wire::decode_frame(head);
    if (!decoded) return protocol_error(decoded.error().detail);
    deliver(decoded.value(), payload);
}

void consumer_connection::deliver(wire::frame& f, std::span<const std::byte> payload) {
    const bool filled = std::exchange(filled_, false);
    heard_ = s_.env.now();
    silence_said_ = false;
    if (const auto* bye = std::get_if<wire::goodbye>(&f.body))
        return end(connection_errc::lost, "it said goodbye: " + bye->why);
    if (const auto* hello = std::get_if<wire::hello>(&f.body)) {
        if (state_ != state::greeting) return protocol_error("a second greeting");
        return greeted(*hello);
    }
    if (state_ != state::up) return protocol_error("the first frame is not a greeting");
    if (const auto* down = std::get_if<wire::lane_down>(&f.body)) {
        if (lane_ && lane_->generation() == down->generation && !planted(bug::lane_down_ignored))
            lane_taken_down(*down);
        return;
    }
    const auto it = pending_.find(f.id);
    if (it == pending_.end() && std::holds_alternative<wire::pong>(f.body)) return;
    if (it == pending_.end()) return protocol_error("a reply to nothing that was asked");
    auto p = std::move(it->second);
    pending_.erase(it);
    const auto* c = std::get_if<wire::chunk>(&f.body);
    if (c != nullptr && c->status == wire::chunk_status::ok && !p.into.empty() && !filled)
        return p.done({connection_errc::protocol, "a chunk of another length than asked for"},
                      nullptr, {});
    p.done({}, &f.body, payload);
}

void consumer_connection::protocol_error(const std::string& what) {
    if (state_ == state::closed) return;
    log(log_level::warning, "peer=" + link_->peer_name() + " action=close cause=" + quoted(what));
    end(connection_errc::protocol, "protocol error: it sent " + what);
}

void consumer_connection::end(connection_errc code, const std::string& why) {
    goodbye_ = failure(code, to_.to_string() + ": " + why);
    link_->close();
}

void consumer_connection::end_lease(std::uint64_t lease) {
    if (state_ != state::up) return;
    ended_leases_.push_back(lease);
    if (ended_timer_ == 0)
        ended_timer_ = s_.env.at(s_.env.now() + lease_end_delay, [self = shared_from_this()] {
            self->ended_timer_ = 0;
            self->send_ended_leases();
        });
}

std::vector<std::uint64_t> consumer_connection::take_ended_leases() {
    if (ended_leases_.size() > lease_ends_per_frame) send_ended_leases();
    s_.env.cancel(std::exchange(ended_timer_, 0));
    return std::exchange(ended_leases_, {});
}

void consumer_connection::send_ended_leases() {
    for (std::size_t i = 0; i < ended_leases_.size() && state_ == state::up;
         i += lease_ends_per_frame) {
        const auto n = std::min(lease_ends_per_frame, ended_leases_.size() - i);
        const auto first = ended_leases_.begin() + static_cast<std::ptrdiff_t>(i);
        link_->send(wire::encode(
            wire::frame{0, wire::detach{{first, first + static_cast<std::ptrdiff_t>(n)}}}));
    }
    ended_leases_.clear();
}

/// Why there can be no lane, whatever is tried.
std::optional<consumer_connection::lane_answer> consumer_connection::refusal() const {
    if (!s_.rdma.usable())
        return lane_answer{.why = s_.rdma.why_not(), .detail = s_.rdma.why_not_detail()};
    if (s_.options.wireup == wireup_choice::exchange && s_.rdma.needs_cm())
        return lane_answer{
            .why = reason::no_route,
            .detail = "device " + s_.rdma.device()->facts().name +
                      " is iWARP, which only RDMA-CM wires up, and wireup is exchange"};
    if (s_.rdma.needs_cm() && s_.options.listen)
        return lane_answer{
            .why = reason::no_route,
            .detail =
                "this node serves, and its device is iWARP, where what is read into must be "
                "open to remote writes: get with a node that does not listen"};
    // A lane that began now would have nobody to end it.
    if (state_ != state::up || closing_)
        return lane_answer{.why = reason::no_lane, .detail = "the control connection is closed"};
    if (version_ < wire::protocol_version_rdma)
        return lane_answer{.why = reason::version,
                           .detail = "the owner speaks protocol version " +
                                     std::to_string(version_) + ", RDMA needs " +
                                     std::to_string(wire::protocol_version_rdma) +
                                     ": update the owner"};
    return std::nullopt;
}

consumer_connection::lane_answer consumer_connection::lane_for_get(bool patient,
                                                                   unique_function<void()> ready) {
    if (auto refused = refusal()) return *std::move(refused);
    if (!lane_) {
        if (s_.env.now() < lane_retry_at_) return {.why = lane_why_, .detail = lane_detail_};
        start_lane();
        if (!lane_) return {.why = lane_why_, .detail = lane_detail_};
    }
    if (lane_->offerable()) return {.lane = lane_};
    if (lane_->by_cm() && lane_->current() == read_lane::state::offered) ask_for_owner_end();
    if (lane_->by_cm() && lane_->current() != read_lane::state::making && !patient) {
        const auto until = cm_begun_ + s_.options.wireup_wait;
        if (s_.env.now() >= until)
            return {.why = reason::no_lane,
                    .detail = "RDMA-CM is still connecting to the owner; the next get may find it"};
        if (cm_timer_ == 0)
            cm_timer_ = s_.env.at(until, [self = shared_from_this()] {
                self->cm_timer_ = 0;
                self->lane_settled();
            });
    }
    lane_waiters_.push_back(std::move(ready));
    return {.wait = true};
}

void consumer_connection::start_lane() {
    auto self = shared_from_this();
    lane_ = std::make_shared<read_lane>(
        s_, planted(bug::generation_reused) ? next_generation_ : next_generation_++, by_cm_,
        [self](reason why, const failure& f) { self->lane_failed(why, f); });
    // make() may fail at once and so drop lane_.
    const auto lane = lane_;
    lane->make(link_->own_address(), link_->peer_address(), [self] { self->lane_settled(); });
}

void consumer_connection::lane_settled() {
    for (auto& waiter : std::exchange(lane_waiters_, {})) waiter();
}

void consumer_connection::lane_failed(reason why, const failure& f) {
    if (!lane_) return;  // retired
    const auto generation = lane_->generation();
    // The other way may do where the wiring itself failed: what resolves for the one may not for
    // the other.
    const bool not_wired =
        !lane_->was_up() &&
        (why == reason::no_lane ||
         (why == reason::no_route &&
          (f.code == device_errc::transition_failed || f.code == connection_errc::connect_failed)));
    if (s_.options.wireup == wireup_choice::automatic && !s_.rdma.needs_cm()) {
        if (not_wired) by_cm_ = !by_cm_;
        if (owner_knows_no_cm_) by_cm_ = false;
    }
    lane_.reset();
    lane_why_ = why == reason::lease_lost ? reason::no_lane : why;
    lane_detail_ = f.message();
    // A lane that worked is replaced at once, since other gets' READs may have gone down with it;
    // what fails again and again costs less and less often, because each attempt may hold a worker
    // thread for a second.
    lane_retry_at_ = s_.env.now() + lane_backoff_;
    lane_backoff_ = std::clamp<duration>(lane_backoff_ * 2, first_lane_backoff, 30s);
    if (state_ == state::up)
        link_->send(wire::encode(wire::frame{0, wire::lane_down{generation, why}}));
    if (!planted(bug::lane_waiter_lost)) lane_settled();
    tell_warmed({}, {lane_why_, lane_detail_});
}

void consumer_connection::warm(warmed done) {
    if (state_ != state::up || closing_) return done(closed_failure(), {});
    if (s_.options.policy == path_policy::never)
        return done({}, {reason::policy, "this node's policy is never"});
    const auto answer = lane_for_get(true, [self = shared_from_this(), done] { self->warm(done); });
    if (answer.wait) return;
    if (!answer.lane) return done({}, {answer.why, answer.detail});
    if (answer.lane->current() == read_lane::state::up) return done({}, {});
    warmers_.push_back(std::move(done));
    if (!answer.lane->owner_known()) ask_for_owner_end();
}

/// A get's acquire asks for the same end; whichever answer comes first is taken.
void consumer_connection::ask_for_owner_end() {
    const auto generation = lane_->generation();
    if (std::exchange(asked_generation_, generation) == generation) return;
    cm_begun_ = s_.env.now();
    request(wire::ping{lane_->offer()},
            [self = shared_from_this(), generation](const failure& f, wire::body* body,
                                                    std::span<const std::byte>) {
                // A connection that closes tells all who wait.
                if (!f.code) self->owner_end_told(generation, std::get_if<wire::pong>(body));
            });
}

void consumer_connection::owner_end_told(std::uint32_t generation, const wire::pong* m) {
    if (!lane_ || lane_->generation() != generation) return;  // it failed, and that was told
    if (lane_->by_cm()) return owner_awaits(m);
    asked_generation_ = 0;
    if (m != nullptr) learn_owner_end(m->lane_generation, m->lane_facts);
    if (!lane_ || lane_->owner_known()) return;
    // An owner that does not know what a ping can ask echoes it.
    if (m == nullptr || m->why == reason::ok)
        return tell_warmed(
            {},
            {reason::version, "the owner makes its end of a queue pair only for a get: update it"});
    tell_warmed({}, {m->why, m->detail});
}

/// It is asked once for each lane: a nonce is good once.
void consumer_connection::owner_awaits(const wire::pong* m) {
    if (m != nullptr && m->why == reason::ok && m->connect_to && m->lane_facts)
        return lane_->connect(*m->lane_facts, *m->connect_to,
                              [self = shared_from_this()] { self->lane_settled(); });
    if (m == nullptr || m->why == reason::ok || m->why == reason::no_common_backend) {
        owner_knows_no_cm_ = true;
        return lane_->fail(
            reason::version,
            {connection_errc::connect_failed,
             "the owner does not connect by RDMA-CM: update it, or wireup=exchange"});
    }
    lane_->fail(m->why, {connection_errc::connect_failed,
                         m->detail.empty() ? "the owner says " + std::string(to_string(m->why))
                                           : m->detail});
}

void consumer_connection::tell_warmed(const failure& f, const readiness& r) {
    for (const auto& done : std::exchange(warmers_, {})) done(f, r);
}

void consumer_connection::lane_taken_down(const wire::lane_down& m) {
    const auto detail = "the owner took the connection's queue pair down (" +
                        std::string(to_string(m.why)) +
                        "); the next get makes another, the owner's log has the cause";
    if (m.why == reason::no_lane)
        lane_->fail(reason::no_lane, {connection_errc::queue_pair, detail});
    else
        lane_->fail(reason::lease_lost, {lease_errc::lost, detail},
                    m.why == reason::fenced ? read_lane::scope::path : read_lane::scope::read);
}

void consumer_connection::learn_owner_end(std::optional<std::uint32_t> generation,
                                          const std::optional<wire::queue_pair_facts>& facts) {
    if (lane_ && facts && generation == lane_->generation())
        lane_->connect(*facts, [self = shared_from_this()] { self->tell_warmed({}, {}); });
}

}  // namespace rvget::engine
