#include "engine/schedules/sim_network.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "engine/schedules/describe.hpp"

namespace rvget::test {

// --- One end -----------------------------------------------------------------------------------

bool sim_link::runnable() const noexcept {
    if (told_ || !events_) return false;
    return closing_ || broken_ || fin_ || !inbox_.empty();
}

std::string sim_link::describe() const {
    if (closing_) return "closed by this end";
    if (broken_) return "broken";
    if (inbox_.empty()) return "closed by the peer";
    const auto& f = inbox_.front();
    auto text = describe_frame(f.decoded);
    if (f.payload.bytes.empty()) return text;
    return text + ", payload " +
           (in_payload_ ? std::to_string(received_) + " of " : std::string("announced, ")) +
           std::to_string(f.payload.bytes.size());
}

void sim_link::step() {
    const auto self = shared_from_this();
    if (closing_ || broken_ || inbox_.empty()) return tell_closed();
    if (in_payload_) return more_payload();
    if (!inbox_.front().payload.bytes.empty()) return begin_payload();
    finish_frame(false);
}

void sim_link::begin_payload() {
    const auto& f = inbox_.front();
    into_ = events_->payload_destination(f.head, f.payload.bytes.size());
    if (closing_ || inbox_.empty()) return;
    in_payload_ = true;
    forgotten_ = false;
    received_ = 0;
    own_.clear();
    if (into_.empty()) own_.resize(f.payload.bytes.size());
}

void sim_link::more_payload() {
    const auto& payload = inbox_.front().payload.bytes;
    const auto bytes = std::min(in_.piece_bytes, payload.size() - received_);
    if (own_.empty()) in_.observer_.payload_written(self_, into_.subspan(received_, bytes));
    std::memcpy((own_.empty() ? into_.data() : own_.data()) + received_, payload.data() + received_,
                bytes);
    received_ += bytes;
    if (received_ == payload.size()) finish_frame(!own_.empty() && !forgotten_);
}

void sim_link::finish_frame(bool tell_payload) {
    const auto f = std::move(inbox_.front());
    inbox_.pop_front();
    in_payload_ = false;
    into_ = {};
    const auto own = std::exchange(own_, {});
    in_.observer_.frame_delivered(self_, f.decoded);
    events_->on_frame(
        f.head, tell_payload ? std::span<const std::byte>(own) : std::span<const std::byte>());
}

void sim_link::tell_closed() {
    told_ = true;
    in_.observer_.link_over(self_);
    const auto dropped = std::exchange(inbox_, {});
    const auto events = std::exchange(events_, nullptr);
    events->on_closed({connection_errc::lost, closing_  ? "closed by this end"
                                              : broken_ ? peer_name() + ": connection reset"
                                                        : peer_name() + " closed the connection"});
}

void sim_link::cut() {
    broken_ = true;
    in_payload_ = false;
    if (!events_) return;
    const auto dropped = std::exchange(inbox_, {});
}

void sim_link::abandon() {
    told_ = true;
    const auto dropped = std::exchange(inbox_, {});
    const auto events = std::exchange(events_, nullptr);
    if (const auto peer = peer_.lock()) peer->broken_ = true;
}

void sim_link::stop() {
    if (told_) return;
    const auto self = shared_from_this();
    if (const auto peer = peer_.lock()) peer->broken_ = true;
    if (events_)
        tell_closed();
    else
        told_ = true;
}

void sim_link::start(std::shared_ptr<engine::control_link_events> events) {
    events_ = std::move(events);
}

void sim_link::send(std::vector<std::byte> head, engine::frame_payload payload) {
    auto decoded = wire::decode_frame(head);
    // The engine cannot know yet that nobody will hear it.
    in_.observer_.frame_sent(self_, decoded.value());
    if (!payload.bytes.empty() && !payload.keep) in_.observer_.payload_unkept(self_);
    const auto peer = peer_.lock();
    if (closing_ || broken_ || told_ || !peer || peer->told_ || peer->closing_) return;
    peer->inbox_.push_back(
        {std::move(head), std::move(payload), std::move(decoded.value()), in_.step_number});
}

void sim_link::forget_destination(std::span<std::byte> destination) {
    const std::less<> before;
    if (!in_payload_ || into_.empty() || !own_.empty() ||
        !before(into_.data(), destination.data() + destination.size()) ||
        !before(destination.data(), into_.data() + into_.size()))
        return;
    own_.resize(into_.size());
    forgotten_ = true;
}

void sim_link::close(bool flush) {
    if (closing_ || told_) return;
    closing_ = true;
    in_.observer_.link_over(self_);
    in_payload_ = false;
    const auto unread = std::exchange(inbox_, {});
    if (const auto peer = peer_.lock()) {
        peer->fin_ = true;
        // What was sent in this very step had not reached the kernel.
        while (!flush && !peer->inbox_.empty() &&
               peer->inbox_.back().sent_in_step == in_.step_number && peer->inbox_.size() > 1)
            peer->inbox_.pop_back();
    }
    if (!events_) told_ = true;  // nobody listens yet, so nobody is told
}

std::string sim_link::peer_name() const { return sim_network::endpoint_of(self_.peer).to_string(); }
std::string sim_link::peer_address() const { return sim_network::address_of(self_.peer); }
std::string sim_link::own_address() const { return sim_network::address_of(self_.node); }

// --- All of them -------------------------------------------------------------------------------

class sim_network::node_network final : public engine::control_network {
public:
    node_network(sim_network& in, std::size_t node) : in_(in), node_(node) {}

    void connect(const endpoint_address& to, time_point deadline, connected done) override {
        const auto id = in_.next_connect_++;
        const auto timer = in_.environments_[node_]->at(deadline, [this, id] {
            const auto it = std::find_if(in_.connects_.begin(), in_.connects_.end(),
                                         [&](const pending_connect& c) { return c.id == id; });
            if (it == in_.connects_.end()) return;
            auto late = std::move(it->done);
            in_.connects_.erase(it);
            late(failure{connection_errc::connect_failed, "no answer in time"});
        });
        in_.connects_.push_back({id, node_, to, timer, std::move(done)});
    }
    result<endpoint_address> listen(const endpoint_address& at, accepted on_accept) override {
        auto l = std::make_shared<listener>();
        l->on_accept = std::move(on_accept);
        in_.listeners_[node_] = std::move(l);
        return at;
    }
    void stop_listening() override { in_.listeners_.erase(node_); }

private:
    sim_network& in_;
    std::size_t node_;
};

std::unique_ptr<engine::control_network> sim_network::network_of(std::size_t node) {
    return std::make_unique<node_network>(*this, node);
}

std::string sim_network::address_of(std::size_t node) {
    return "10.0.0." + std::to_string(node + 1);
}

endpoint_address sim_network::endpoint_of(std::size_t node) { return {address_of(node), 7471}; }

void sim_network::step_connect(std::size_t index) {
    auto c = std::move(connects_[index]);
    connects_.erase(connects_.begin() + static_cast<std::ptrdiff_t>(index));
    auto& env = *environments_[c.node];
    env.cancel(c.timer);
    const auto at = std::find_if(listeners_.begin(), listeners_.end(), [&](const auto& l) {
        return endpoint_of(l.first) == c.to && !l.second->refusing;
    });
    if (at == listeners_.end()) {
        env.post([done = std::move(c.done)]() mutable {
            done(failure{connection_errc::connect_failed, "connection refused"});
        });
        return;
    }
    const auto owner = at->first;
    const auto id = next_connection_++;
    auto near = std::make_shared<sim_link>(*this, link_end{id, c.node, owner, true});
    auto far = std::make_shared<sim_link>(*this, link_end{id, owner, c.node, false});
    near->peer_ = far;
    far->peer_ = near;
    ends_.push_back(near);
    ends_.push_back(far);
    env.post([done = std::move(c.done), near]() mutable { done(near); });
    environments_[owner]->post([l = std::weak_ptr(at->second), far] {
        if (const auto listening = l.lock())
            listening->on_accept(far);
        else
            far->close(false);
    });
}

void sim_network::collect() {
    std::erase_if(ends_, [](const auto& e) { return e->over(); });
}

void sim_network::cut(std::size_t a, std::size_t b) {
    for (const auto& e : ends_)
        if ((e->self().node == a && e->self().peer == b) ||
            (e->self().node == b && e->self().peer == a))
            e->cut();
}

void sim_network::abandon(std::size_t node) {
    const auto ends = ends_;  // what they hold may call back in here while it dies
    for (const auto& e : ends)
        if (e->self().node == node) e->abandon();
    std::erase_if(connects_, [&](const pending_connect& c) { return c.node == node; });
    listeners_.erase(node);
}

void sim_network::stop(std::size_t node) {
    const auto ends = ends_;
    for (const auto& e : ends)
        if (e->self().node == node) e->stop();
    for (std::size_t i = 0; i < connects_.size();) {
        if (connects_[i].node != node) {
            ++i;
            continue;
        }
        auto done = std::move(connects_[i].done);
        connects_.erase(connects_.begin() + static_cast<std::ptrdiff_t>(i));
        done(failure{node_errc::stopped, "this node stopped"});
    }
    listeners_.erase(node);
}

void sim_network::refuse_connections_to(std::size_t node, bool refused) {
    if (const auto it = listeners_.find(node); it != listeners_.end())
        it->second->refusing = refused;
}

}  // namespace rvget::test
