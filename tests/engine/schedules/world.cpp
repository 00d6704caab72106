#include "engine/schedules/world.hpp"

#include <algorithm>
#include <utility>

namespace rvget::test {

using namespace std::chrono_literals;
namespace sim = fabric::sim;

namespace {

/// The epoch means "never" to the oracles.
constexpr time_point start_of_time{1s};

std::string host_name(std::size_t node) { return "n" + std::to_string(node); }

sim::host_options host_of(std::size_t node) {
    auto host = sim::roce_host(host_name(node),
                               sim::ipv4_gid(10, 0, 0, static_cast<std::uint8_t>(node + 1)));
    host.devices.front().quirks.success_needs_state_query = true;
    // Small, so that opening a device costs little; large enough for every lane of a schedule.
    host.devices.front().facts.max_completion_entries = 512;
    return host;
}

}  // namespace

world::world(const world_options& options)
    : now_(start_of_time),
      leases_(now_, verdict_, options.nodes.front().lease_timeout, options.lease_keys),
      nic_({options.nic_piece_bytes}),
      net_(*this) {
    net_.piece_bytes = options.frame_piece_bytes;
    prng seeds(options.seed);
    for (std::size_t i = 0; i < options.nodes.size(); ++i) {
        auto n = std::make_unique<simulated_node>(now_, seeds.u64());
        n->options = options.nodes[i];
        if (n->options.listen) n->options.listen = sim_network::endpoint_of(i);
        net_.add_node(n->env);
        n->network = net_.network_of(i);
        n->provider = observe(nic_.attach(host_of(i)), *this, i);
        if (i < options.faults.size() && options.faults[i])
            n->provider =
                fabric::fault::make_fault_provider(std::move(n->provider), options.faults[i]);
        nodes_.push_back(std::move(n));
    }
    for (auto& n : nodes_) {
        n->rdma = engine::rdma_context::open(n->provider.get(), n->options, options.lease_keys);
        n->core = std::make_unique<engine::node_core>(n->env, *n->network, n->options, n->rdma);
        if (!n->core->start()) verdict_.fail("a node does not start");
    }
    for (auto& n : nodes_) n->device = n->rdma->device();
    leases_.set_retry_window(nodes_.front()->rdma->retry_window());
}

std::vector<route::gid_entry> world::gids_of(std::size_t node) {
    return host_of(node).devices.front().facts.ports.front().gids;
}

world::~world() { leak_all(); }

void world::leak_all() {
    for (std::size_t i = 0; i < nodes_.size(); ++i)
        if (nodes_[i]->core) leak(i);
    net_.collect();
}

std::string world::name(std::size_t node) const {
    return (nodes_[node]->options.listen ? "owner " : "consumer ") + host_name(node);
}

void world::say(const std::string& line) {
    if (!trace) return;
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(now_ - start_of_time);
    auto text = std::to_string(us.count() / 1000) + "." +
                std::to_string(1000 + us.count() % 1000).substr(1) + " ms  ";
    trace(text + line);
}

// --- What could run ----------------------------------------------------------------------------

bool world::look(bool operations_left) {
    for (auto& f : found_) f.clear();
    next_timer_.reset();
    const auto add = [&](step_kind kind, std::size_t node, std::size_t index = 0) {
        found_[static_cast<std::size_t>(kind)].push_back({node, index});
    };
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        const auto& n = *nodes_[i];
        if (!runs(n)) continue;
        if (n.env.tasks() != 0) add(step_kind::task, i);
        if (const auto t = n.env.next_timer()) {
            if (*t <= now_) add(step_kind::timer, i);
            next_timer_ = next_timer_ ? std::min(*next_timer_, *t) : *t;
        }
        for (std::size_t j = 0; j < n.env.jobs(); ++j) add(step_kind::job, i, j);
        if (n.completions && n.env.watches()) add(step_kind::poll, i);
    }
    const auto& ends = net_.ends();
    for (std::size_t i = 0; i < ends.size(); ++i)
        if (ends[i]->runnable() && runs(*nodes_[ends[i]->self().node]))
            add(step_kind::frame, ends[i]->self().node, i);
    for (std::size_t i = 0; i < net_.connects(); ++i)
        if (runs(*nodes_[net_.connector(i)])) add(step_kind::connect, net_.connector(i), i);
    const auto moves = nic_.runnable();
    for (std::size_t i = 0; i < moves; ++i) add(step_kind::nic, 0, i);
    if (operations_left) add(step_kind::operation, 0);
    // Time stands still while a timer is due: a strand that runs is never late by its own fault.
    if (next_timer_ && *next_timer_ > now_) add(step_kind::clock, 0);
    return std::any_of(found_.begin(), found_.end(), [](const auto& f) { return !f.empty(); });
}

step_kind world::run_first() {
    for (std::size_t k = 0; k < step_kinds; ++k)
        if (!found_[k].empty()) {
            run(static_cast<step_kind>(k), 0, 0);
            return static_cast<step_kind>(k);
        }
    return step_kind::clock;
}

step_kind world::run_random(std::uint32_t random, const step_weights& weights) {
    std::uint32_t total = 0;
    for (std::size_t k = 0; k < step_kinds; ++k)
        if (!found_[k].empty()) total += weights[k];
    if (total == 0) return run_first();
    auto at = random % total;
    const auto rest = random / total;
    for (std::size_t k = 0; k < step_kinds; ++k) {
        if (found_[k].empty()) continue;
        if (at < weights[k]) {
            run(static_cast<step_kind>(k), rest % found_[k].size(),
                rest / static_cast<std::uint32_t>(found_[k].size()) | 4U);
            return static_cast<step_kind>(k);
        }
        at -= weights[k];
    }
    return step_kind::clock;
}

bool world::settle(std::size_t limit) {
    for (std::size_t i = 0; i < limit; ++i) {
        if (verdict_.failed() || !look(false)) return true;
        run_first();
    }
    return false;
}

// --- Steps -------------------------------------------------------------------------------------

void world::run(step_kind kind, std::size_t index, std::uint32_t random) {
    const auto c = found_[static_cast<std::size_t>(kind)][index];
    auto& n = *nodes_[c.node];
    ++net_.step_number;
    switch (kind) {
        case step_kind::task:
            say(name(c.node) + ": posted task");
            n.env.run_task();
            break;
        case step_kind::timer:
            say(name(c.node) + ": timer");
            n.env.fire_timer();
            break;
        case step_kind::frame: {
            const auto end = net_.ends()[c.index];
            if (trace) say(name(c.node) + " <- " + name(end->self().peer) + ": " + end->describe());
            end->step();
            if (end->over()) net_.collect();
            break;
        }
        case step_kind::connect:
            say(name(c.node) + ": connect answered");
            net_.step_connect(c.index);
            return;
        case step_kind::job:
            say(name(c.node) +
                (n.env.job_runs(c.index) ? ": worker runs a job" : ": worker hands over a job"));
            n.env.step_job(c.index);
            return;
        case step_kind::poll:
            say(name(c.node) + ": polls completions");
            n.completions = false;
            n.env.poll();
            break;
        case step_kind::nic:
            run_nic(c.index);
            return;
        case step_kind::operation:
            return;
        case step_kind::clock:
            advance(random);
            return;
    }
    node_stepped(c.node);
}

void world::run_nic(std::size_t index) {
    const auto info = nic_.at(index);
    if (trace) say("nic: " + nic_.describe(index));
    if (info.kind == sim::step_kind::completion) nodes_[info.host]->completions = true;
    nic_.step(index);
    if (after_step) after_step();
}

void world::advance(std::uint32_t random) {
    // Mostly to the next timer, sometimes only half of the way. Out of its order time does not jump
    // over whatever else waits.
    auto step = *next_timer_ - now_;
    if (random != 0) step = std::min<duration>(random % 4 == 3 ? step / 2 : step, 20ms);
    now_ += step;
    say("time passes");
    if (after_step) after_step();
}

void world::node_stepped(std::size_t node) {
    auto& n = *nodes_[node];
    if (n.core) {
        leases_.check(node, n.core->stats());
        const auto blocks = n.rdma->memory().stats().blocks;
        if (blocks < std::exchange(n.pool_blocks, blocks)) check_free_blocks(node);
    }
    if (after_step) after_step();
    if (n.quiet && *n.quiet) destroy(node);
}

/// A block was given back to the pool: no NIC may touch what is free there now. The free blocks are
/// found by taking them all.
void world::check_free_blocks(std::size_t node) {
    if (nic_.runnable() == 0) return;
    auto& pool = nodes_[node]->rdma->memory();
    std::vector<engine::pinned_block> taken;
    while (auto block = pool.allocate(4096)) {
        if (nic_.dma_pending_into(block->bytes()))
            verdict_.fail(name(node) + ": a block went back to the pool under a READ into it");
        if (nic_.dma_pending_from(block->bytes()))
            verdict_.fail(name(node) + ": a block went back to the pool under a READ from it");
        taken.push_back(std::move(*block));
    }
}

// --- The end of a node -------------------------------------------------------------------------

void world::shut_down(std::size_t node, duration deadline) {
    auto& n = *nodes_[node];
    n.shutting_down = true;
    leases_.shutting_down(node);
    n.env.post([this, node, deadline] {
        auto& self = *nodes_[node];
        self.core->shutdown(now_ + deadline, [this, node](bool quiet) {
            auto& it = *nodes_[node];
            say(name(node) + ": shutdown answered, quiet=" + (quiet ? "yes" : "no"));
            if (it.quiet) verdict_.fail("a shutdown was answered twice");
            it.quiet = quiet;
        });
    });
}

void world::destroy(std::size_t node) {
    auto& n = *nodes_[node];
    if (n.quiet && *n.quiet) {
        if (n.queue_pairs != 0)
            verdict_.fail(name(node) + ": " + std::to_string(n.queue_pairs) +
                          " queue pairs are left after a quiet shutdown");
        if (before_destruction) before_destruction(node);
    }
    say(name(node) + ": destroyed");
    net_.stop(node);
    n.env.clear();
    n.core.reset();
    n.rdma.reset();
    n.env.clear();
    net_.collect();
}

void world::check_nothing_left() {
    // Queue pairs, completion queues and regions keep their device alive.
    for (std::size_t i = 0; i < nodes_.size(); ++i)
        if (gone(i) && !nodes_[i]->device.expired())
            verdict_.fail(name(i) + ": something of its device is left");
}

/// It ends like a process that is killed: what a NIC may still touch is never freed. Kept where a
/// leak checker sees it.
void world::leak(std::size_t node) {
    static auto& leaked = *new std::vector<std::unique_ptr<simulated_node>>;
    nodes_[node]->env.kill();
    nic_.kill_host(host_name(node));
    net_.abandon(node);
    leaked.push_back(std::exchange(nodes_[node], std::make_unique<simulated_node>(now_, 1)));
}

// --- What is seen ------------------------------------------------------------------------------

void world::frame_sent(const link_end& from, const wire::frame& f) { leases_.sent(from, f); }

void world::frame_delivered(const link_end& to, const wire::frame& f) { leases_.delivered(to, f); }

void world::payload_written(const link_end& to, std::span<const std::byte> into) {
    if (nic_.dma_pending_into(into))
        verdict_.fail(name(to.node) + ": chunk bytes were written where a READ is pending");
    if (on_payload_written) on_payload_written(into);
}

void world::reads_posted(std::size_t node, std::uint32_t number,
                         std::span<const fabric::read_request> requests) {
    leases_.reads_posted(node, number, requests);
}

}  // namespace rvget::test
