#pragma once
// Whole nodes on simulated NICs, control connections, threads and time: everything that could
// happen next is a step, and whoever drives the world picks one.

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <rvget/config.hpp>

#include "engine/node_core.hpp"
#include "engine/schedules/lease_oracle.hpp"
#include "engine/schedules/observed_nic.hpp"
#include "engine/schedules/sim_environment.hpp"
#include "engine/schedules/sim_network.hpp"
#include "engine/schedules/verdict.hpp"
#include "fabric/fault/fault_provider.hpp"
#include "fabric/sim/network.hpp"

namespace rvget::test {

/// What kinds of steps there are, in the order in which an undisturbed world runs them.
enum class step_kind : std::uint8_t {
    task,       ///< the strand takes what was posted to it
    timer,      ///< a timer that is due fires
    frame,      ///< a frame, a piece of a payload or the end of a connection arrives
    connect,    ///< a connect is answered
    job,        ///< a worker thread runs work, or hands over that it did
    poll,       ///< completions are taken
    nic,        ///< a NIC moves something
    operation,  ///< the user's next wish
    clock,      ///< time passes, up to the next timer
};
inline constexpr std::size_t step_kinds = 9;
using step_weights = std::array<std::uint32_t, step_kinds>;

struct world_options {
    std::vector<node_options> nodes;  ///< those with `listen` are owners
    std::uint64_t seed = 1;
    std::uint32_t nic_piece_bytes = 2048;
    std::size_t frame_piece_bytes = 2048;
    /// Faults to inject beneath node i, where given.
    std::vector<std::shared_ptr<fabric::fault::plan>> faults;
    wire::lease_mode lease_keys = wire::lease_mode::fence;
};

class world final : wire_observer, nic_observer {
public:
    explicit world(const world_options& options);
    ~world();
    world(const world&) = delete;
    world& operator=(const world&) = delete;

    [[nodiscard]] const time_point& now() const noexcept { return now_; }
    [[nodiscard]] fabric::sim::network& nic() noexcept { return nic_; }
    [[nodiscard]] sim_network& net() noexcept { return net_; }
    [[nodiscard]] lease_oracle& leases() noexcept { return leases_; }
    [[nodiscard]] verdict& outcome() noexcept { return verdict_; }

    /// The GID table of a node's port, as it is at first.
    [[nodiscard]] static std::vector<route::gid_entry> gids_of(std::size_t node);

    [[nodiscard]] std::size_t size() const noexcept { return nodes_.size(); }
    [[nodiscard]] sim_environment& env(std::size_t node) noexcept { return nodes_[node]->env; }
    /// Null once the node is gone.
    [[nodiscard]] engine::node_core* core(std::size_t node) noexcept {
        return nodes_[node]->core.get();
    }
    [[nodiscard]] const std::shared_ptr<engine::rdma_context>& rdma(std::size_t node) noexcept {
        return nodes_[node]->rdma;
    }
    [[nodiscard]] std::uint32_t queue_pairs(std::size_t node) const noexcept {
        return nodes_[node]->queue_pairs;
    }
    /// Its strand and its worker threads stop or go on; its NIC does not care.
    void pause(std::size_t node, bool paused) noexcept { nodes_[node]->paused = paused; }
    [[nodiscard]] bool paused(std::size_t node) const noexcept { return nodes_[node]->paused; }

    /// Asks the node to shut down; when it says that all is quiet it is destroyed.
    void shut_down(std::size_t node, duration deadline);
    [[nodiscard]] bool shutting_down(std::size_t node) const noexcept {
        return nodes_[node]->shutting_down;
    }
    /// It said that something could not be proven quiet: it is left as it is.
    [[nodiscard]] bool shutdown_failed(std::size_t node) const noexcept {
        return nodes_[node]->quiet && !*nodes_[node]->quiet;
    }
    [[nodiscard]] bool gone(std::size_t node) const noexcept {
        return nodes_[node]->core == nullptr;
    }

    /// Nodes that are gone have left nothing behind.
    void check_nothing_left();
    /// Ends what is left of the nodes without freeing what a NIC may still touch.
    void leak_all();

    // --- Steps ---------------------------------------------------------------------------------

    /// Counts what could run. Without anything the world is at rest.
    [[nodiscard]] bool look(bool operations_left);
    /// Runs the first step in the order of step_kind; precondition: look() was true. Returns its
    /// kind; `operation` is the caller's to run.
    step_kind run_first();
    /// Runs the step that `random` picks by weight.
    step_kind run_random(std::uint32_t random, const step_weights& weights);
    /// Runs first steps until nothing is left, at most `limit`; false when that was not enough.
    bool settle(std::size_t limit);

    /// Called after every step of a node's strand, and after every NIC step.
    std::function<void()> after_step;
    /// Gets one line a step, where set.
    std::function<void(const std::string&)> trace;
    void say(const std::string& line);
    [[nodiscard]] std::string name(std::size_t node) const;

    // Hooks for the oracle of memory.
    std::function<void(std::span<const std::byte>)> on_payload_written;
    /// What must hold when a node has said that all is quiet, just before it is destroyed.
    std::function<void(std::size_t)> before_destruction;

private:
    struct simulated_node {
        simulated_node(const time_point& clock, std::uint64_t seed) : env(clock, seed) {}
        node_options options;
        sim_environment env;
        std::unique_ptr<fabric::provider> provider;
        std::unique_ptr<engine::control_network> network;
        std::shared_ptr<engine::rdma_context> rdma;
        std::unique_ptr<engine::node_core> core;
        std::weak_ptr<fabric::device> device;
        bool paused = false;
        bool shutting_down = false;
        std::optional<bool> quiet;                  ///< what the shutdown said
        bool completions = false;                   ///< delivered since the last poll
        std::atomic<std::uint32_t> queue_pairs{0};  ///< made and destroyed by workers
        std::size_t pool_blocks = 0;
    };
    struct candidate {
        std::size_t node = 0;
        std::size_t index = 0;
    };

    [[nodiscard]] bool runs(const simulated_node& n) const noexcept { return n.core && !n.paused; }
    void run(step_kind kind, std::size_t index, std::uint32_t random);
    void run_nic(std::size_t index);
    void advance(std::uint32_t random);
    void node_stepped(std::size_t node);
    void check_free_blocks(std::size_t node);
    void destroy(std::size_t node);
    void leak(std::size_t node);

    // wire_observer
    void frame_sent(const link_end& from, const wire::frame& f) override;
    void frame_delivered(const link_end& to, const wire::frame& f) override;
    void payload_written(const link_end& to, std::span<const std::byte> into) override;
    void link_over(const link_end& end) override { leases_.over(end); }
    void payload_unkept(const link_end&) override {
        verdict_.fail("a payload is under way that nothing keeps");
    }
    // nic_observer
    void queue_pair_made(std::size_t node, std::uint32_t) override { ++nodes_[node]->queue_pairs; }
    void queue_pair_gone(std::size_t node, std::uint32_t) override { --nodes_[node]->queue_pairs; }
    void reads_posted(std::size_t node, std::uint32_t number,
                      std::span<const fabric::read_request> requests) override;
    void queue_pair_opened(std::size_t node, std::uint32_t number, fabric::access rights) override {
        leases_.queue_pair_opened(node, number, rights);
    }
    void memory_registered(std::size_t, fabric::access rights) override {
        leases_.memory_registered(rights);
    }

    time_point now_;
    verdict verdict_;
    lease_oracle leases_;
    fabric::sim::network nic_;
    sim_network net_;
    std::vector<std::unique_ptr<simulated_node>> nodes_;

    // What look() found; rooms are kept.
    std::array<std::vector<candidate>, step_kinds> found_;
    std::optional<time_point> next_timer_;
};

}  // namespace rvget::test
