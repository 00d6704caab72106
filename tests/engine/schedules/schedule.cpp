#include "engine/schedules/schedule.hpp"

#include <algorithm>
#include <exception>
#include <utility>

namespace rvget::test {

using namespace std::chrono_literals;
using engine::destination_kind;

namespace {

node_options make_node(prng& r, bool owner) {
    constexpr std::size_t kib = 1024;
    constexpr std::size_t budgets[] = {64 * kib, 64 * kib, 128 * kib, 32 * kib};
    constexpr std::uint8_t depths[] = {1, 1, 2, 4, 16};
    node_options o;
    if (owner) o.listen = endpoint_address{"10.0.0.1", 7471};
    o.rdma_min_bytes = r.one_in(2) ? 1 : 2 * kib;
    o.inline_max = r.one_in(3) ? 0 : 256;
    o.retry_window = 10ms;
    o.wireup_wait = std::chrono::milliseconds(r.one_in(3) ? 1 : 20);
    o.handshake_timeout = 5s;
    o.registered_budget_bytes = r.of(budgets);
    o.first_arena_bytes = std::min(o.registered_budget_bytes, 32 * kib);
    o.max_arena_bytes = o.registered_budget_bytes;
    if (r.one_in(6)) o.bounce_budget_bytes = 8 * kib;
    if (r.one_in(6)) o.chunk_budget_bytes = 1;
    o.arena_idle_time = 0ms;  // a timer that never ends would keep the world from coming to rest
    o.read_depth = r.of(depths);
    o.read_piece_bytes = r.one_in(2) ? 4 * kib : 16 * kib;
    o.chunk_bytes = 4 * kib;
    o.chunks_in_flight = 1 + r.below(3);
    o.rdma_disabled = r.one_in(24);
    if (r.one_in(16)) o.max_leases = 2;
    constexpr wireup_eagerness wireups[] = {wireup_eagerness::lazy, wireup_eagerness::prepared,
                                            wireup_eagerness::eager};
    o.eagerness = r.of(wireups);
    o.spare_queue_pairs = r.below(3);
    return o;
}

operation make_stage(prng& r, std::size_t owners, std::uint8_t slot) {
    constexpr std::uint32_t sizes[] = {8192, 8192, 16384, 12000, 4096, 3000, 200, 1, 0};
    operation o;
    o.kind = operation_kind::stage;
    o.node = static_cast<std::uint8_t>(slot % owners);
    o.slot = slot;
    o.bytes = r.of(sizes);
    o.pinned = !r.one_in(5);
    o.region = r.one_in(4);
    return o;
}

operation make_get(prng& r, std::size_t owners, std::size_t nodes) {
    constexpr std::uint32_t deadlines[] = {2000, 2000, 500, 500, 100, 20, 2};
    operation o;
    o.kind = operation_kind::get;
    o.node =
        static_cast<std::uint8_t>(owners + r.below(static_cast<std::uint32_t>(nodes - owners)));
    // An owner gets as well, also from itself.
    if (r.one_in(10))
        o.node = static_cast<std::uint8_t>(r.below(static_cast<std::uint32_t>(owners)));
    o.slot = static_cast<std::uint8_t>(r.below(workload::slots));
    o.destination = static_cast<destination_kind>(r.below(3));
    o.buffer = static_cast<std::uint8_t>(r.below(workload::buffers));
    o.bytes = r.one_in(8) ? 1 + r.below(workload::buffer_bytes) : workload::buffer_bytes;
    if (r.one_in(3)) o.offset = r.below(4096);
    if (r.one_in(32)) o.offset = 1 << 20;
    if (r.one_in(3)) o.length = 1 + r.below(9000);
    o.policy = r.one_in(6) ? path_policy::never
                           : (r.one_in(5) ? path_policy::require : path_policy::prefer);
    o.milliseconds = r.of(deadlines);
    return o;
}

operation make_batch(prng& r, std::size_t owners, std::size_t nodes) {
    auto o = make_get(r, owners, nodes);
    o.kind = operation_kind::batch;
    o.destination = r.one_in(2) ? destination_kind::owned : destination_kind::pinned;
    o.number = 2 + r.below(4);
    return o;
}

operation make_disturbance(prng& r, std::size_t owners, std::size_t nodes) {
    using k = operation_kind;
    constexpr k kinds[] = {k::cut,         k::cut,         k::pause,           k::pause,
                           k::resume,      k::drop,        k::undrop,          k::link_down,
                           k::link_up,     k::fail_wiring, k::refuse_connects, k::accept_connects,
                           k::shut_down,   k::unregister,  k::false_success,   k::false_success,
                           k::refuse_read, k::refuse_read, k::refuse_read,     k::lose_gid,
                           k::regain_gid,  k::take_back,   k::take_back};
    operation o;
    o.kind = r.of(kinds);
    const auto owner = static_cast<std::uint8_t>(r.below(static_cast<std::uint32_t>(owners)));
    const auto consumer =
        static_cast<std::uint8_t>(owners + r.below(static_cast<std::uint32_t>(nodes - owners)));
    o.node = consumer;
    o.peer = owner;
    o.buffer = static_cast<std::uint8_t>(r.below(workload::buffers - 1));
    o.slot = static_cast<std::uint8_t>(r.below(workload::slots));
    const bool of_owner = o.kind == k::refuse_connects || o.kind == k::accept_connects;
    const bool of_either = o.kind == k::link_down || o.kind == k::link_up ||
                           o.kind == k::fail_wiring || o.kind == k::shut_down ||
                           o.kind == k::lose_gid || o.kind == k::regain_gid;
    if (of_owner || (of_either && r.one_in(2))) o.node = owner;
    o.milliseconds = r.one_in(2) ? 400 : 2000;
    return o;
}

/// Gets of one consumer side by side, of which one is refused.
void add_refusal_among_many(prng& r, schedule& s, std::size_t owners, std::size_t nodes,
                            std::uint32_t staged) {
    auto get = make_get(r, owners, nodes);
    const auto gets = 3 + r.below(5);
    const auto refused = r.below(gets);
    for (std::uint32_t i = 0; i < gets; ++i) {
        if (i == refused)
            s.operations.push_back({.kind = operation_kind::refuse_read, .node = get.node});
        const auto node = get.node;
        get = make_get(r, owners, nodes);
        get.node = node;
        get.slot = static_cast<std::uint8_t>(get.slot % staged);
        get.milliseconds = 2000;
        s.operations.push_back(get);
    }
}

}  // namespace

schedule make_schedule(std::uint64_t seed) {
    prng r(seed);
    schedule s;
    s.seed = seed;
    const std::size_t owners = r.one_in(4) ? 2 : 1;
    const std::size_t nodes = owners + (r.one_in(3) ? 2 : 1);
    s.options.seed = r.u64();
    s.options.nic_piece_bytes = r.one_in(2) ? 4096 : 2048;
    s.options.frame_piece_bytes = r.one_in(2) ? 4096 : 1500;
    if (r.one_in(2))
        s.options.lease_keys = r.one_in(4) ? wire::lease_mode::exact : wire::lease_mode::window;
    const auto lease_timeout = std::chrono::milliseconds(r.one_in(2) ? 50 : 100);
    for (std::size_t i = 0; i < nodes; ++i) {
        s.options.nodes.push_back(make_node(r, i < owners));
        s.options.nodes.back().lease_timeout = lease_timeout;
    }

    // Each kind of schedule is slow somewhere else.
    constexpr std::uint32_t paces[] = {4, 8, 16, 32, 64};
    for (auto& w : s.weights) w = r.of(paces);
    constexpr std::uint32_t rare[] = {1, 1, 2, 4};
    s.weights[static_cast<std::size_t>(step_kind::operation)] = 2 * r.of(rare);
    s.weights[static_cast<std::size_t>(step_kind::clock)] = r.of(rare);
    // DMA that comes late, or not before all the rest: leases end and lanes fall under it.
    constexpr std::uint32_t late[] = {0, 1, 1, 2};
    if (r.one_in(3)) {
        s.weights[static_cast<std::size_t>(step_kind::nic)] = r.of(late);
        s.weights[static_cast<std::size_t>(step_kind::clock)] = 4;
    }
    s.random_steps = 100 + r.below(300);

    const auto staged = 1 + r.below(workload::slots);
    for (std::uint32_t i = 0; i < staged; ++i)
        s.operations.push_back(make_stage(r, owners, static_cast<std::uint8_t>(i)));
    const auto wishes = 2 + r.below(18);
    const auto trouble = r.below(3);  // how much of it there is
    for (std::uint32_t i = 0; i < wishes; ++i) {
        operation o;
        const auto dice = r.below(16);
        if (i < 2 && trouble != 0 && r.one_in(4)) {
            o = make_disturbance(r, owners, nodes);  // before there is a connection
        } else if (dice < 9) {
            o = r.one_in(6) ? make_batch(r, owners, nodes) : make_get(r, owners, nodes);
            if (i < 4) o.slot %= staged;
        } else if (dice < 11) {
            o.kind = operation_kind::cancel;
            o.number = r.below(3);
        } else if (dice < 13) {
            const auto slot = static_cast<std::uint8_t>(r.below(workload::slots));
            o = make_stage(r, owners, slot);
            if (r.one_in(3)) o.kind = operation_kind::release;
        } else if (dice < 14) {
            constexpr operation_kind kinds[] = {operation_kind::metadata, operation_kind::reference,
                                                operation_kind::connect};
            o.kind = r.of(kinds);
            o.node = static_cast<std::uint8_t>(owners);
            o.slot = static_cast<std::uint8_t>(r.below(workload::slots));
            o.pinned = r.one_in(2);
        } else if (trouble != 0 || r.one_in(8)) {
            o = make_disturbance(r, owners, nodes);
        } else {
            o = make_get(r, owners, nodes);
        }
        s.operations.push_back(o);
    }
    if (r.one_in(4)) add_refusal_among_many(r, s, owners, nodes, staged);
    return s;
}

std::string describe(const schedule& s) {
    std::string text = "seed " + std::to_string(s.seed) + ", lease keys " +
                       std::string(to_string(s.options.lease_keys)) + "\n";
    for (std::size_t i = 0; i < s.options.nodes.size(); ++i) {
        const auto& n = s.options.nodes[i];
        text += "  n" + std::to_string(i) + (n.listen ? " owner" : " consumer") +
                ": lease_timeout " + std::to_string(n.lease_timeout.count()) + " ms, rdma_min " +
                std::to_string(n.rdma_min_bytes) + ", inline_max " + std::to_string(n.inline_max) +
                ", wireup_wait " + std::to_string(n.wireup_wait.count()) + " ms, budget " +
                std::to_string(n.registered_budget_bytes) + ", read_depth " +
                std::to_string(n.read_depth) + ", read_piece " +
                std::to_string(n.read_piece_bytes) + (n.rdma_disabled ? ", rdma disabled" : "") +
                "\n";
    }
    return text;
}

namespace {

/// One run of one schedule.
class run {
public:
    run(const schedule& s, const trace_line& trace)
        : schedule_(s), world_(s.options), users_(world_) {
        world_.trace = trace;
        world_.after_step = [this] {
            if (const auto v = world_.nic().violations(); !v.empty())
                world_.outcome().fail("the NIC was misused: " + v.front());
        };
    }

    /// `next` gives the order, false where there is no more of it.
    template <class Next>
    outcome operator()(Next next) {
        std::uint32_t choice = 0;
        while (!failed() && world_.look(next_operation_ < schedule_.operations.size())) {
            ++steps_;
            const bool ordered = next(choice);
            step(ordered ? choice : 0);
            if (ordered) continue;
            if (!std::exchange(natural_, true)) users_.nature_begins();
            if (next_operation_ == schedule_.operations.size()) break;
        }
        // The disturbances last: whoever can still act comes to rest without the others.
        settle("with the disturbances");
        for (std::size_t i = 0; i < world_.size(); ++i) {
            auto* const core = world_.core(i);
            if (core == nullptr) continue;
            // Once a shutdown gave up, nobody looks at completions any more.
            if (!failed() && !world_.shutdown_failed(i) && core->stats().leases_active != 0)
                fail(world_.name(i) + ": leases are active for ever");
        }
        users_.end_disturbances();
        settle("without disturbances");
        if (!failed()) users_.check_answered();
        for (std::size_t i = 0; i < world_.size() && !failed(); ++i)
            if (const auto* core = world_.core(i))
                if (core->stats().gets_started != core->stats().gets_answered)
                    fail(world_.name(i) + ": gets started and answered differ");
        for (std::size_t i = 0; i < world_.size(); ++i)
            if (const auto* core = world_.core(i)) {
                revocations_ += core->stats().revocations;
                rekeyed_ += core->stats().gets_rekeyed;
            }
        users_.release_all();
        settle("after the releases");
        for (std::size_t i = 0; i < world_.size() && !failed(); ++i)
            if (!world_.gone(i) && !world_.shutting_down(i)) world_.shut_down(i, 2s);
        settle("after the shutdown");
        if (!failed()) users_.check_answered();
        for (std::size_t i = 0; i < world_.size() && !failed(); ++i)
            if (!world_.gone(i) && !world_.shutdown_failed(i))
                fail(world_.name(i) + ": does not shut down");
        if (!failed()) users_.check_buffers();
        if (!failed()) world_.check_nothing_left();
        outcome o;
        o.what = world_.outcome().what();
        o.steps = steps_;
        o.calls = users_.calls();
        for (std::size_t p = 0; p < o.answers.size(); ++p)
            o.answers[p] = users_.answers(static_cast<path>(p));
        o.revocations = revocations_;
        o.rekeyed = rekeyed_;
        return o;
    }

private:
    [[nodiscard]] bool failed() { return world_.outcome().failed(); }
    void fail(std::string what) { world_.outcome().fail(std::move(what)); }

    void step(std::uint32_t choice) try {
        const auto kind =
            choice == 0 ? world_.run_first() : world_.run_random(choice, schedule_.weights);
        if (kind == step_kind::operation) users_.run(schedule_.operations[next_operation_++]);
        if (kind == step_kind::clock) users_.check_deadlines();
    } catch (const std::exception& e) {
        fail(std::string("an exception: ") + e.what());
    }

    void settle(const char* when) {
        constexpr std::size_t limit = 20'000;
        std::size_t n = 0;
        while (!failed() && world_.look(false)) {
            ++steps_;
            step(0);
            if (++n == limit) return fail(std::string("the world does not come to rest ") + when);
        }
    }

    const schedule& schedule_;
    world world_;
    workload users_;
    std::size_t next_operation_ = 0;
    bool natural_ = false;
    std::size_t steps_ = 0;
    std::uint64_t revocations_ = 0;
    std::uint64_t rekeyed_ = 0;
};

}  // namespace

outcome run_schedule(const schedule& s, choices& made, const trace_line& trace) {
    made.clear();
    prng r(s.seed ^ 0x5ced);
    return run(s, trace)([&](std::uint32_t& choice) {
        if (made.size() >= s.random_steps) return false;
        choice = static_cast<std::uint32_t>(r.u64()) | 1U;
        made.push_back(choice);
        return true;
    });
}

outcome replay_schedule(const schedule& s, const choices& order, const trace_line& trace) {
    std::size_t at = 0;
    return run(s, trace)([&](std::uint32_t& choice) {
        if (at == order.size()) return false;
        choice = order[at++];
        return true;
    });
}

}  // namespace rvget::test
