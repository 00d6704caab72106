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
    std::shared_ptr<engine::runtime> runtime;  ///< regions look whether it is still there
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

    handle add_slot(std::shared_ptr<const engine::slot_memory> memory);
    /// Registers memory and shares it: the last user deregisters it on a worker thread, then
    /// `gone` runs, on the strand; both at once where the node has stopped.
    [[nodiscard]] std::shared_ptr<fabric::memory_region> share(
        engine::registration registered, detail::unique_function<void()> gone);
    [[nodiscard]] result<void> can_register(std::size_t bytes) const;
    /// `keep` lives as long as the registration.
    [[nodiscard]] region make_region(engine::registration registered, std::shared_ptr<void> keep);
    /// From now; the node's default where none is given.
    [[nodiscard]] time_point deadline_of(std::optional<std::chrono::milliseconds> asked);
    [[nodiscard]] engine::transfer_request request_for(const url& from, const get_options& o,
                                                       engine::destination_kind kind,
                                                       std::span<std::byte> into);
    void begin(operation op, const url& from, const get_options& o, engine::destination_kind kind,
               std::span<std::byte> into, engine::transfer::answered done);
    template <class R, class Item>
    void begin_batch(operation op, const std::vector<Item>& items, const batch_options& o,
                     engine::destination_kind kind,
                     detail::unique_function<void(error_code, std::vector<R>)> done);
    /// Answers with the sentence of what went wrong; not at all where the strand has stopped.
    template <class R>
    using told = detail::unique_function<void(const failure&, R)>;
    template <class Reply, class R>
    void ask(operation op, const url& of, const call_options& o, wire::body request,
             R (*answer_of)(const Reply&), told<R> done);
    void ask_metadata(operation op, const url& of, const call_options& o, told<slot_metadata> done);
    void ask_reference(operation op, const url& of, const call_options& o,
                       wire::reference_change change, told<std::uint32_t> done);
    void ask_owner(operation op, const endpoint_address& to, const call_options& o,
                   told<node_id> done);
    void ask_warm(operation op, const endpoint_address& to, std::optional<node_id> owner,
                  const call_options& o, told<warm_result> done);
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
