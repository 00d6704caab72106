#pragma once
// Control connections without sockets: two ends in one process, frames delivered when the test says
// so, each to be seen, changed or held back.

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/control_link.hpp"
#include "engine/environment.hpp"

namespace rvget::test {

/// One end. What is sent lies in the other end's inbox until deliver().
class memory_link final : public engine::control_link {
public:
    static std::pair<std::shared_ptr<memory_link>, std::shared_ptr<memory_link>> pair() {
        auto a = std::make_shared<memory_link>();
        auto b = std::make_shared<memory_link>();
        a->other_ = b;
        b->other_ = a;
        return {a, b};
    }

    /// Hands over the next frame, or the end of the connection; false where there is nothing.
    bool deliver() {
        if (!events_) return false;
        if (!inbox.empty() && !own_close_) {
            auto [head, payload] = std::move(inbox.front());
            inbox.pop_front();
            std::span<std::byte> into;
            if (!payload.empty()) into = events_->payload_destination(head, payload.size());
            if (!into.empty()) std::ranges::copy(payload, into.begin());
            if (!own_close_) events_->on_frame(head, into.empty() ? payload : decltype(payload){});
            return true;
        }
        if (!closed_) return false;
        // What the peer said before it closed has been heard by now.
        std::exchange(events_, nullptr)
            ->on_closed({connection_errc::lost,
                         own_close_ ? "closed by this end" : "peer closed the connection"});
        return true;
    }

    void start(std::shared_ptr<engine::control_link_events> events) override {
        events_ = std::move(events);
    }
    void send(std::vector<std::byte> head, engine::frame_payload payload) override {
        if (closed_) return;
        const auto other = other_.lock();
        other->inbox.emplace_back(
            std::move(head), std::vector<std::byte>(payload.bytes.begin(), payload.bytes.end()));
    }
    void forget_destination(std::span<std::byte>) override {}
    std::size_t queued_bytes() const override { return 0; }
    void close(bool) override {
        own_close_ = true;
        closed_ = true;
        if (const auto other = other_.lock()) other->closed_ = true;
    }
    std::string peer_name() const override { return "peer"; }
    std::string peer_address() const override { return "192.0.2.1"; }
    std::string own_address() const override { return "192.0.2.2"; }

    std::deque<std::pair<std::vector<std::byte>, std::vector<std::byte>>> inbox;
    [[nodiscard]] bool closed() const { return closed_; }

private:
    std::weak_ptr<memory_link> other_;
    std::shared_ptr<engine::control_link_events> events_;
    bool closed_ = false;
    bool own_close_ = false;
};

/// Every connect() reaches every listener at once.
class memory_network final : public engine::control_network {
public:
    void connect(const endpoint_address&, time_point, connected done) override {
        auto [ours, theirs] = memory_link::pair();
        ends.push_back(ours);
        ends.push_back(theirs);
        done(std::shared_ptr<engine::control_link>(ours));
        if (on_accept_) on_accept_(theirs);
    }
    result<endpoint_address> listen(const endpoint_address& at, accepted on_accept) override {
        on_accept_ = std::move(on_accept);
        return at;
    }
    void stop_listening() override { on_accept_ = nullptr; }

    /// Until nothing is under way.
    void run() {
        for (bool more = true; more;) {
            more = false;
            for (const auto& end : ends) more |= end->deliver();
        }
    }

    std::vector<std::shared_ptr<memory_link>> ends;  ///< connector and acceptor, in turn

private:
    accepted on_accept_;
};

/// Random numbers that count, and nothing else.
class counting_environment final : public engine::environment {
public:
    time_point now() const override { return {}; }
    timer_id at(time_point, task) override { return 0; }
    void cancel(timer_id) override {}
    void post(task f) override { f(); }
    void offload(engine::blocking_work, task work, task done) override {
        work();
        done();
    }
    std::uint64_t random() override { return ++last_; }
    void watch(std::shared_ptr<engine::completion_source>) override {}
    void unwatch(const engine::completion_source&) override {}
    void expect_completions() override {}

private:
    std::uint64_t last_ = 0;
};

}  // namespace rvget::test
