#pragma once
// Queue pairs made ahead of need and taken to INIT, so that no get has to wait for their making.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <rvget/config.hpp>
#include <rvget/error.hpp>

#include "engine/counters.hpp"
#include "engine/environment.hpp"
#include "engine/rdma_context.hpp"

namespace rvget::engine {

/// A queue pair in INIT, and the memory windows of an owner's end. rxe blocks for 50 s in the
/// destruction of a queue pair with a window bound, so windows are allocated after it and go first.
struct initial_queue_pair {
    std::uint8_t port = 0;
    std::unique_ptr<fabric::queue_pair> queue_pair;
    std::vector<std::unique_ptr<fabric::memory_window>> windows;

    /// Blocking.
    void destroy() noexcept {
        windows.clear();
        queue_pair.reset();
    }
};

/// How the lanes of one side are made.
struct queue_pair_recipe {
    std::shared_ptr<fabric::completion_queue> completions;
    fabric::queue_pair_options options;
    fabric::access rights = fabric::access::none;
    std::size_t windows = 0;
    std::uint32_t entries = 0;  ///< of the completion queue, which whoever makes one has reserved

    /// Of a consumer's ends, and of an owner's. Precondition: `rdma` is usable.
    static queue_pair_recipe reading(const rdma_context& rdma, const node_options& options);
    static queue_pair_recipe serving(const rdma_context& rdma);

    /// Sees to it that `q` is one on `port`. Blocking; on a worker thread.
    result<void> make(const rdma_context& rdma, std::uint8_t port, initial_queue_pair& q) const;
};

/// Lives on the strand, as long as its node. Makes one at a time, on a worker thread.
class queue_pair_stock {
public:
    /// Of a node without RDMA it stays empty.
    queue_pair_stock(environment& env, rdma_context& rdma, counters& stats,
                     queue_pair_recipe recipe, std::size_t wanted);
    queue_pair_stock(const queue_pair_stock&) = delete;
    queue_pair_stock& operator=(const queue_pair_stock&) = delete;

    [[nodiscard]] const queue_pair_recipe& recipe() const noexcept { return recipe_; }
    [[nodiscard]] std::size_t size() const noexcept { return spares_.size(); }

    /// Makes what is missing.
    void fill();
    /// A spare one with its entries reserved, else an empty one. What is then missing is made a
    /// little later, out of the way of whoever needs this one now.
    [[nodiscard]] initial_queue_pair take();
    /// Where lanes are made; the next ones are made there.
    void note_port(std::uint8_t port) noexcept { port_ = port; }
    /// No more are made, and those that are there destroyed.
    void close();

private:
    struct attempt;
    void made(attempt& a);
    void discard(initial_queue_pair q);

    environment& env_;
    rdma_context& rdma_;
    counters& stats_;
    const queue_pair_recipe recipe_;
    const std::size_t wanted_;
    std::vector<initial_queue_pair> spares_;
    std::uint8_t port_ = 0;  ///< 0: the first that is active
    bool making_ = false;
    bool asked_meanwhile_ = false;
    bool closed_ = false;
    environment::timer_id timer_ = 0;
};

}  // namespace rvget::engine
