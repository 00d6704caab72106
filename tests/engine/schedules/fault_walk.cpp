// Every fault of the decorator at every call: a fixed scenario is run once to count its calls of
// each kind, on the owner's and on the consumer's NIC, and then once for each call with that call
// failing. Every get ends with the right bytes or a typed error, everything comes to rest, and
// nothing is left (AddressSanitizer's leak check included).

#include <functional>
#include <iostream>
#include <memory>
#include <string>

#include <rvget/log.hpp>

#include "engine/schedules/workload.hpp"

namespace {

using namespace rvget;
using namespace rvget::test;
using namespace std::chrono_literals;
using engine::destination_kind;
using fabric::fault::call;

struct result_of_walk {
    std::string what;
    std::array<fabric::fault::plan::counts_by_kind, 2> counts{};
    std::array<std::uint64_t, 2> reads{};
    std::array<std::size_t, 3> answers{};
};

world_options two_nodes(const std::shared_ptr<fabric::fault::plan>& owner,
                        const std::shared_ptr<fabric::fault::plan>& consumer) {
    world_options w;
    w.nodes.resize(2);
    for (auto& n : w.nodes) {
        n.rdma_min_bytes = 1;
        n.inline_max = 256;
        n.retry_window = 10ms;
        n.lease_timeout = 100ms;
        n.handshake_timeout = 200ms;
        n.read_depth = 4;
        n.read_piece_bytes = 4096;
        n.chunk_bytes = 4096;
        n.first_arena_bytes = 32 * 1024;
        n.max_arena_bytes = 64 * 1024;
        n.registered_budget_bytes = 128 * 1024;
        n.arena_idle_time = 0ms;
    }
    w.nodes.front().listen = endpoint_address{"10.0.0.1", 7471};
    w.faults = {owner, consumer};
    return w;
}

operation stage(std::uint8_t slot, std::uint32_t bytes, bool pinned) {
    operation o;
    o.kind = operation_kind::stage;
    o.slot = slot;
    o.bytes = bytes;
    o.pinned = pinned;
    return o;
}

operation get(std::uint8_t slot, destination_kind kind, std::uint8_t buffer = 0) {
    operation o;
    o.node = 1;
    o.slot = slot;
    o.destination = kind;
    o.buffer = buffer;
    o.bytes = workload::buffer_bytes;
    o.milliseconds = 500;
    return o;
}

/// `script` prepares the faults of one run.
result_of_walk run(
    const std::function<void(fabric::fault::plan& owner, fabric::fault::plan& consumer)>& script,
    const std::function<void(const std::string&)>& trace = {}) {
    const auto owner = std::make_shared<fabric::fault::plan>();
    const auto consumer = std::make_shared<fabric::fault::plan>();
    if (script) script(*owner, *consumer);
    result_of_walk r;
    {
        world w(two_nodes(owner, consumer));
        w.trace = trace;
        workload users(w);
        users.expect_faults();
        const auto rest = [&](const char* when) {
            if (!w.settle(20'000))
                w.outcome().fail(std::string("the world does not come to rest ") + when);
            users.check_deadlines();
        };
        users.run(stage(0, 16'384, true));
        users.run(stage(1, 12'000, true));
        users.run(stage(2, 100, true));
        rest("after the staging");
        users.run(get(0, destination_kind::owned));
        users.run(get(1, destination_kind::pinned));
        rest("after the first gets");
        users.run(get(0, destination_kind::into, 0));
        users.run(get(1, destination_kind::into, 2));
        users.run(get(2, destination_kind::owned));
        rest("after the second gets");
        users.run(get(0, destination_kind::pinned));
        users.run(get(1, destination_kind::into, 1));
        rest("after the last gets");
        users.release_all();
        rest("after the releases");
        if (!w.outcome().failed()) users.check_answered();
        for (std::size_t i = 0; i < w.size(); ++i) w.shut_down(i, 1s);
        rest("after the shutdown");
        bool quiet = true;
        for (std::size_t i = 0; i < w.size(); ++i) {
            if (!w.gone(i) && !w.shutdown_failed(i)) w.outcome().fail("a node does not shut down");
            quiet = quiet && w.gone(i);
        }
        if (!w.outcome().failed() && quiet) users.check_buffers();
        if (const auto v = w.nic().violations(); !v.empty())
            w.outcome().fail("the NIC was misused: " + v.front());
        r.what = w.outcome().what();
        for (std::size_t p = 0; p < r.answers.size(); ++p)
            r.answers[p] = users.answers(static_cast<path>(p));
    }
    r.counts = {owner->counts(), consumer->counts()};
    r.reads = {owner->reads(), consumer->reads()};
    return r;
}

unsigned failures = 0;
std::uint64_t runs = 0;

void judge(const std::string& fault, const result_of_walk& r) {
    ++runs;
    if (r.what.empty()) return;
    ++failures;
    std::cout << "FAILED with " << fault << ": " << r.what << '\n';
}

void walk(const result_of_walk& calm) {
    for (std::size_t end = 0; end < 2; ++end) {
        const std::string who = end == 0 ? "the owner's " : "the consumer's ";
        for (std::size_t k = 0; k < fabric::fault::call_kinds; ++k) {
            const auto kind = static_cast<call>(k);
            if (kind == call::destroy_queue_pair) continue;  // it cannot fail
            const auto code =
                kind == call::register_memory ? device_errc::registration : device_errc::resource;
            for (std::uint64_t nth = 1; nth <= calm.counts[end][k]; ++nth)
                judge(who + std::string(to_string(kind)) + " " + std::to_string(nth),
                      run([&](auto& owner, auto& consumer) {
                          (end == 0 ? owner : consumer).fail(kind, nth, {code, "injected"});
                      }));
        }
        for (std::uint64_t nth = 1; nth <= calm.reads[end]; ++nth)
            for (const auto status : {fabric::completion_status::retry_exceeded,
                                      fabric::completion_status::remote_access,
                                      fabric::completion_status::false_success})
                judge(who + "READ " + std::to_string(nth) + " ending " +
                          std::string(fabric::to_string(status)),
                      run([&](auto& owner, auto& consumer) {
                          (end == 0 ? owner : consumer).fail_read(nth, status);
                      }));
    }
}

}  // namespace

int main(int argc, char**) {
    set_log_level(log_level::off);
    const auto print = [](const std::string& line) { std::cout << "  " << line << '\n'; };
    const auto calm = argc > 1 ? run({}, print) : run({});
    judge("no fault", calm);
    if (calm.answers[0] < 4 || calm.answers[1] == 0) {
        std::cout << "FAILED: without faults " << calm.answers[0] << " gets ran over RDMA and "
                  << calm.answers[1] << " inline\n";
        return 1;
    }
    walk(calm);
    std::cout << runs << " runs, " << failures << " failed\n";
    return failures == 0 && runs > 50 ? 0 : 1;
}
