#include "engine/connection_desk.hpp"

#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/log.hpp"
#include "engine/worker_pool.hpp"

namespace rvget::engine {

namespace {

void reject(fabric::connection& request, std::string_view why) {
    request.reject(std::as_bytes(std::span(why.data(), why.size())));
}

}  // namespace

connection_desk::~connection_desk() { end(); }

void connection_desk::end() {
    close();
    std::map<std::string, counter> ended;
    {
        const std::lock_guard lock(mutex_);
        ended.swap(counters_);
    }
    for (auto& [address, c] : ended) c.thread.join();
}

result<connection_desk::counter> connection_desk::make_counter(const std::string& address) {
    auto made = rdma_.device()->listen(address);
    if (!made) return made.error();
    counter c{.listener = std::move(*made), .thread = {}};
    try {
        c.thread =
            start_thread("rvget-cm", [this, address, &at = *c.listener] { serve(address, at); });
    } catch (const std::system_error& e) {
        return failure{device_errc::resource,
                       std::string("no thread to listen for connections with: ") + e.what() +
                           "; raise the limit of processes (ulimit -u, pids.max)"};
    }
    return c;
}

result<std::uint16_t> connection_desk::open(const std::string& address) {
    std::unique_lock lock(mutex_);
    if (closed_) return failure{node_errc::stopped, "the node shuts down"};
    auto known = counters_.find(address);
    if (known != counters_.end() && !known->second.dead) return port_of(known->second);
    // The kernel is asked without the lock, which the strand takes as well.
    counter dead;
    if (known != counters_.end()) dead = std::move(counters_.extract(known).mapped());
    lock.unlock();
    if (dead.thread.joinable()) dead.thread.join();
    auto made = make_counter(address);
    if (!made) return made.error();
    lock.lock();
    const auto [at, first] = counters_.try_emplace(address, std::move(*made));
    if (first && !closed_) return port_of(at->second);
    // Another thread was faster, or the node began to shut down: this one goes.
    counter surplus = first ? std::move(counters_.extract(at).mapped()) : std::move(*made);
    result<std::uint16_t> port = failure{node_errc::stopped, "the node shuts down"};
    if (!first) port = port_of(at->second);
    lock.unlock();
    surplus.listener->stop();
    surplus.thread.join();
    return port;
}

/// The thread of a listener: blocks there, turns away who knows no nonce, and takes the others to
/// the strand. One at a time, so that a flood of requests fills the kernel's queue and nothing
/// here.
void connection_desk::serve(const std::string& address, fabric::connection_listener& listener) {
    for (;;) {
        auto next = listener.next();
        if (!next) {
            log(log_level::error, "connections=stopped address=" + address +
                                      " cause=" + quoted(next.error().message()) +
                                      " next=\"the next consumer that connects there has it opened "
                                      "again\"");
            const std::lock_guard lock(mutex_);
            if (const auto at = counters_.find(address); at != counters_.end())
                at->second.dead = true;
            return;
        }
        if (!*next) return;
        std::shared_ptr<fabric::connection> request(std::move(*next));
        const auto nonce = wire::decode_connect_data(request->private_data());
        if (!nonce) {
            reject(*request, "not a request of rvget, or of a version that is not known here");
            continue;
        }
        std::unique_lock lock(mutex_);
        const bool good = good_.erase(*nonce) != 0;
        lock.unlock();
        if (!good) {
            reject(*request, "the nonce is unknown here, was used, or is over its time");
            continue;
        }
        env_.post([this, nonce = *nonce, request = std::move(request)]() mutable {
            requested(nonce, std::move(request));
        });
    }
}

void connection_desk::requested(const wire::connect_nonce& nonce,
                                std::shared_ptr<fabric::connection> request) {
    // Given up a moment ago: the request ends with its destruction.
    if (auto known = expected_.extract(nonce)) known.mapped()(std::move(request));
}

wire::connect_nonce connection_desk::expect(request_handler on_request) {
    wire::connect_nonce nonce{};
    for (std::size_t at = 0; at < nonce.size(); at += sizeof(std::uint64_t)) {
        const auto random = env_.random();
        std::memcpy(nonce.data() + at, &random, sizeof random);
    }
    expected_.emplace(nonce, std::move(on_request));
    const std::lock_guard lock(mutex_);
    good_.insert(nonce);
    return nonce;
}

void connection_desk::forget(const wire::connect_nonce& nonce) {
    expected_.erase(nonce);
    const std::lock_guard lock(mutex_);
    good_.erase(nonce);
}

void connection_desk::close() {
    expected_.clear();
    const std::lock_guard lock(mutex_);
    closed_ = true;
    good_.clear();
    for (auto& [address, c] : counters_) c.listener->stop();
}

}  // namespace rvget::engine
