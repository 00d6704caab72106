#pragma once
// What stands behind rvget::node. Tests also build one over a provider of their own.

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include <prometheus/collectable.h>
#include <rvget/node.hpp>

#include "api/metrics.hpp"
#include "engine/node_core.hpp"
#include "engine/runtime.hpp"
#include "fabric/fabric.hpp"

namespace rvget {

struct node::impl : std::enable_shared_from_this<node::impl> {
    node_options options;
    std::unique_ptr<engine::runtime> runtime;
    std::shared_ptr<engine::rdma_context> rdma;
    std::shared_ptr<engine::node_core> core;
    std::optional<endpoint_address> address;
    node_id id;
    std::atomic<operation> next_operation{1};
    std::atomic<bool> stopping{false};
    std::mutex shutdown_mutex;
    std::optional<bool> shut_down;
    node_statistics last_statistics;  ///< as of the end of shutdown
    metrics_snapshot last_snapshot;   ///< likewise
    std::shared_ptr<prometheus::Collectable> metrics_source;

    /// Opens what `provider` has (null: none) and starts; the common part of node::start.
    static result<node> start(node_options options, boost::asio::io_context* context,
                              fabric::provider* provider);
    ~impl();

    /// Runs `f` on the strand and waits for its result. Not on the strand.
    template <class F>
    auto on_strand(F f);

    void begin(operation op, const url& from, const get_options& o, engine::destination_kind kind,
               std::span<std::byte> into, engine::transfer::answered done);
    /// Answers with the sentence of what went wrong; not at all where the strand has stopped.
    template <class R>
    using told = detail::unique_function<void(const failure&, R)>;
    void ask_metadata(operation op, const url& of, told<slot_metadata> done);
    void ask_owner(operation op, const endpoint_address& to, told<node_id> done);
    /// On the strand, or after it has stopped.
    [[nodiscard]] node_statistics count() const;
    [[nodiscard]] metrics_snapshot snapshot() const;
    [[nodiscard]] rdma_status rdma_now() const;
    /// The same from any other thread.
    [[nodiscard]] metrics_snapshot snapshot_now();
    bool shutdown(std::chrono::milliseconds deadline);
};

/// A node over `provider` instead of the built-in ones; for tests.
result<node> start_node_on(fabric::provider* provider, node_options options,
                           boost::asio::io_context* context = nullptr);

}  // namespace rvget
