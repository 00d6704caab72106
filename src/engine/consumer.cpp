#include "engine/consumer.hpp"

#include <algorithm>
#include <utility>

#include "engine/planted.hpp"

namespace rvget::engine {
namespace {

failure stopped_failure() { return {node_errc::stopped, "the node has been shut down"}; }

failure wrong_owner(const endpoint_address& at) {
    return {connection_errc::wrong_owner,
            at.to_string() +
                " is served by another owner than the handle's: it was restarted, or "
                "the address is wrong; ask for a new URL"};
}

}  // namespace

consumer::consumer(services& s) : s_(s) {}

consumer::~consumer() = default;

void consumer::with_connection(const endpoint_address& to, connected done) {
    if (stopped_) return done(stopped_failure(), nullptr);
    const auto key = to.to_string();
    auto& p = peers_[key];
    if (p.connection && p.connection->up()) return done({}, p.connection);
    p.waiting.push_back(std::move(done));
    if (p.connection) return;  // on its way
    p.connection = std::make_shared<consumer_connection>(s_, to, [this, key](const failure& f) {
        // Forgotten first: whoever asks again from within a handler gets a new connection.
        auto closed = peers_.extract(key);
        for (auto& waiting : closed.mapped().waiting)
            if (!planted(bug::lost_waiter)) waiting(f, nullptr);
    });
    const auto connection = p.connection;
    connection->open([this, key] {
        auto& up = peers_.at(key);
        const auto opened = up.connection;
        for (auto& waiting : std::exchange(up.waiting, {})) waiting({}, opened);
    });
}

std::size_t consumer::connecting() const { return peers_.size() - connected_count(); }

std::size_t consumer::connected_count() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        peers_, [](const auto& p) { return p.second.connection && p.second.connection->up(); }));
}

void consumer::get(const endpoint_address& at, node_id owner, transfer_request request,
                   transfer::answered done, std::uint64_t operation) {
    auto t = std::make_shared<transfer>(
        s_, regions_, request,
        [this, operation, done = std::move(done)](transfer_answer a) mutable {
            running_.erase(operation);
            done(std::move(a));
        });
    running_[operation] = t;
    t->start();
    with_connection(
        at, [t, owner, at](const failure& f, std::shared_ptr<consumer_connection> connection) {
            if (!f.code && connection->owner() != owner)
                t->connected(wrong_owner(at), nullptr);
            else
                t->connected(f, std::move(connection));
        });
}

void consumer::get_all(std::vector<get_batch::item> items, time_point deadline,
                       get_batch::answered done, std::uint64_t operation, std::uint64_t first) {
    auto timer = std::make_shared<environment::timer_id>(0);
    auto batch = std::make_shared<get_batch>(
        *this, std::move(items), first,
        [this, operation, timer, done = std::move(done)](auto answers) mutable {
            s_.env.cancel(*timer);
            asking_.erase(operation);
            done(std::move(answers));
        });
    asking_[operation] = [batch](const failure& f) { batch->abandon(f); };
    *timer = s_.env.at(deadline, [batch] {
        batch->abandon({request_errc::deadline_exceeded,
                        "the batch did not end inside its deadline; give it more time or less to "
                        "get"});
    });
    batch->start();
}

void consumer::cancel(std::uint64_t operation) {
    abandon(operation, {request_errc::cancelled, "the caller cancelled it"});
}

void consumer::abandon(std::uint64_t operation, const failure& why) {
    if (const auto it = running_.find(operation); it != running_.end())
        if (const auto t = it->second.lock()) t->abandon(why);
    if (const auto it = asking_.find(operation); it != asking_.end()) {
        const auto abandon_it = it->second;
        abandon_it(why);
    }
}

void consumer::abandon_into(const fabric::memory_region& region) {
    std::vector<std::shared_ptr<transfer>> late;
    for (const auto& [operation, weak] : running_)
        if (auto t = weak.lock(); t && t->reads_into(region)) late.push_back(std::move(t));
    for (const auto& t : late)
        t->abandon({request_errc::cancelled,
                    "the region that it fills was unregistered, and the time to end is up"});
}

template <class T>
std::function<void(const failure&, T)> consumer::answer_once(
    const endpoint_address& at, time_point deadline, std::uint64_t operation,
    unique_function<void(const failure&, T)> done) {
    struct once {
        unique_function<void(const failure&, T)> done;
        environment::timer_id timer = 0;
    };
    auto o = std::make_shared<once>();
    o->done = std::move(done);
    auto finish = [this, o, operation](const failure& f, T answer) {
        s_.env.cancel(std::exchange(o->timer, 0));
        asking_.erase(operation);
        if (auto told = std::exchange(o->done, nullptr)) told(f, answer);
    };
    asking_[operation] = [finish](const failure& f) { finish(f, T{}); };
    o->timer = s_.env.at(deadline, [finish, o, at] {
        o->timer = 0;
        finish({request_errc::deadline_exceeded, at.to_string() + " did not answer in time"}, T{});
    });
    return finish;
}

void consumer::connect(const endpoint_address& to, time_point deadline,
                       unique_function<void(const failure&, node_id)> done,
                       std::uint64_t operation) {
    const auto finish = answer_once(to, deadline, operation, std::move(done));
    with_connection(
        to, [finish](const failure& f, const std::shared_ptr<consumer_connection>& connection) {
            finish(f, f.code ? node_id{} : connection->owner());
        });
}

void consumer::warm(const endpoint_address& at, std::optional<node_id> owner, time_point deadline,
                    unique_function<void(const failure&, warm_result)> done,
                    std::uint64_t operation) {
    const auto finish = answer_once(at, deadline, operation, std::move(done));
    with_connection(
        at, [finish, owner, at](const failure& f,
                                const std::shared_ptr<consumer_connection>& connection) {
            if (f.code) return finish(f, {});
            const auto there = connection->owner();
            if (owner && there != *owner) return finish(wrong_owner(at), {});
            connection->warm(
                [finish, there](const failure& g, const consumer_connection::readiness& r) {
                    finish(g, {there, r.why, r.detail});
                });
        });
}

void consumer::ask(const endpoint_address& at, node_id owner, wire::body request,
                   time_point deadline,
                   unique_function<void(const failure&, const wire::body*)> done,
                   std::uint64_t operation) {
    const auto finish = answer_once(at, deadline, operation, std::move(done));
    with_connection(
        at, [finish, owner, at, request = std::move(request)](
                const failure& f, const std::shared_ptr<consumer_connection>& connection) mutable {
            if (f.code) return finish(f, nullptr);
            if (connection->owner() != owner) return finish(wrong_owner(at), nullptr);
            connection->request(std::move(request),
                                [finish](const failure& g, wire::body* body,
                                         std::span<const std::byte>) { finish(g, body); });
        });
}

void consumer::stop() {
    stopped_ = true;
    for (auto& [operation, weak] : std::exchange(running_, {}))
        if (const auto t = weak.lock()) t->abandon(stopped_failure());
    for (auto& [operation, abandon] : std::exchange(asking_, {})) abandon(stopped_failure());
    std::vector<std::shared_ptr<consumer_connection>> open;
    for (auto& [key, p] : peers_) open.push_back(p.connection);
    for (auto& connection : open) connection->close("the consumer shuts down");
}

}  // namespace rvget::engine
