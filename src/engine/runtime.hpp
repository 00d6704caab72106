#pragma once
// What the engine runs on: one strand over Asio, with timers, worker threads, the completion
// reactor and the control network.

#include <chrono>
#include <cstddef>
#include <memory>

#include <boost/asio/any_io_executor.hpp>

#include "engine/control_link.hpp"
#include "engine/environment.hpp"

namespace boost::asio {
class io_context;
}

namespace rvget::engine {

class tls_context;

struct runtime_options {
    /// How long the reactor polls after the last completion before it parks. Taken as 0 where the
    /// process may use one CPU only: spinning would take it from the peer that it waits for.
    std::chrono::microseconds spin{20};
    /// Threads for offload(), made on demand. At least 1.
    std::size_t worker_threads = 4;
    /// Accepted control connections open at once; one more is closed as soon as it is accepted.
    std::size_t max_accepted = 1024;
    /// A control connection whose peer acknowledges nothing for this long is dead (TCP keepalive
    /// and TCP_USER_TIMEOUT; also a peer whose host is up but which does not read while we write).
    std::chrono::milliseconds peer_timeout{5'000};
    /// What control connections are wrapped in; null: nothing.
    std::shared_ptr<const tls_context> tls{};
};

/// Everything given out by it (environment, network, links) calls back on one strand: never two
/// callbacks at once. What callbacks throw leaves through the io_context's run(); on an internal
/// thread that ends the process.
class runtime {
public:
    /// On an io_context of its own, run by one internal thread.
    explicit runtime(const runtime_options& options = {});
    /// On the embedder's io_context, run by one or more threads of his. It outlives the runtime.
    explicit runtime(boost::asio::io_context& embedder, const runtime_options& options = {});
    /// As stop().
    ~runtime();
    runtime(const runtime&) = delete;
    runtime& operator=(const runtime&) = delete;

    /// Valid until destruction; its calls are ignored once stopped (at() then returns 0).
    [[nodiscard]] environment& env() noexcept;
    /// Valid until destruction. Once stopped, listen() fails and connect() never answers.
    [[nodiscard]] control_network& network() noexcept;
    /// The io_context's executor, outside the strand.
    [[nodiscard]] boost::asio::any_io_executor executor() const;
    /// As environment::post(). Any thread.
    void post(environment::task f);

    /// Ends everything; no callback runs after it returned. In this order: connects in progress are
    /// answered (`stopped`), links and the listener closed with on_closed told, these callbacks on
    /// the calling thread; then timers and posted tasks are destroyed unrun, `offload` work not
    /// begun likewise, running work is awaited and its `done` destroyed. Blocks while a callback or
    /// work runs. In the internal-thread mode what others posted to executor() before is run first,
    /// and the thread goes on to run what they post later, until destruction; that may block while
    /// the system resolves a name.
    /// Any thread (the embedder's io_context need not be running), also from a callback; not from
    /// offloaded work. Call it again as you like.
    void stop();

private:
    struct impl;
    std::unique_ptr<impl> impl_;
};

}  // namespace rvget::engine
