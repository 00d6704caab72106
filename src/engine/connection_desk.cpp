#include "engine/connection_desk.hpp"

#include <cstring>
#include <string_view>
#include <utility>

#include "base/log.hpp"
#include "engine/worker_pool.hpp"

namespace rvget::engine {

namespace {

void reject(fabric::connection& request, std::string_view why) {
    request.reject(std::as_bytes(std::span(why.data(), why.size())));
}

}  // namespace

connection_desk::~connection_desk() {
    close();
    for (auto& [address, c] : counters_) c.thread.join();
}

result<std::uint16_t> connection_desk::open(const std::string& address) {
    const std::lock_guard lock(mutex_);
    if (closed_) return failure{node_errc::stopped, "the node shuts down"};
    const auto open = counters_.find(address);
    if (open != counters_.end()) return open->second.listener->port();
    auto made = rdma_.device()->listen(address);
    if (!made) return made.error();
    auto& c = counters_[address];
    c.listener = std::move(*made);
    c.thread = start_thread("rvget-cm", [this, &at = *c.listener] { serve(at); });
    return c.listener->port();
}

/// The thread of a listener: blocks there, and takes what it hears to the strand.
void connection_desk::serve(fabric::connection_listener& listener) {
    for (;;) {
        auto next = listener.next();
        if (!next) {
            log(log_level::error, "connections=stopped cause=" + quoted(next.error().message()) +
                                      " next=\"restart the node to be wired up by RDMA-CM again\"");
            return;
        }
        if (!*next) return;
        std::shared_ptr<fabric::connection> request(std::move(*next));
        const auto nonce = wire::decode_connect_data(request->private_data());
        if (!nonce) {
            reject(*request, "not a request of rvget, or of a version that is not known here");
            continue;
        }
        env_.post([this, nonce = *nonce, request = std::move(request)]() mutable {
            requested(nonce, std::move(request));
        });
    }
}

void connection_desk::requested(const wire::connect_nonce& nonce,
                                std::shared_ptr<fabric::connection> request) {
    auto known = expected_.extract(nonce);
    if (known) return known.mapped()(std::move(request));
    env_.offload(
        blocking_work::make,
        [request = std::move(request)] {
            reject(*request, "the nonce is unknown here, was used, or is over its time");
        },
        [] {});
}

wire::connect_nonce connection_desk::expect(request_handler on_request) {
    wire::connect_nonce nonce{};
    for (std::size_t at = 0; at < nonce.size(); at += sizeof(std::uint64_t)) {
        const auto random = env_.random();
        std::memcpy(nonce.data() + at, &random, sizeof random);
    }
    expected_.emplace(nonce, std::move(on_request));
    return nonce;
}

void connection_desk::forget(const wire::connect_nonce& nonce) { expected_.erase(nonce); }

void connection_desk::close() {
    expected_.clear();
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (auto& [address, c] : counters_) c.listener->stop();
}

}  // namespace rvget::engine
