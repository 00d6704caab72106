// What each kind of lease key costs, for tests/perf/lease_keys: one process, both roles, over the
// RDMA device that there is. Prints one JSON line a figure.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include <rvget/node.hpp>

#include "support/pattern.hpp"
#include "support/rogue_consumer.hpp"

namespace rvget::test {
namespace {

using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;
using microseconds = std::chrono::duration<double, std::micro>;

constexpr std::size_t payload_bytes = 64 << 10;
constexpr int gets = 300;
constexpr int expiries = 20;

double median(std::vector<double> v) {
    std::ranges::sort(v);
    return v[v.size() / 2];
}

void print(const char* figure, const char* mode, double median_us) {
    std::printf("{\"name\": \"%s\", \"lease_keys\": \"%s\", \"median_us\": %.1f}\n", figure, mode,
                median_us);
}

node_options options_with(lease_key_choice keys) {
    node_options o;
    o.listen = endpoint_address{"127.0.0.1", 0};
    o.first_arena_bytes = std::size_t{1} << 20;
    o.wireup_wait = 10s;
    o.lease_keys = keys;
    return o;
}

/// A whole get, and the acquire in it, which makes the key; each into registered memory.
bool cost_of_leases(lease_key_choice keys, const char* mode) {
    auto owner = node::start(options_with(keys)).value();
    auto consumer = node::start({}).value();
    auto staging = owner.make_staging(payload_bytes).value();
    fill_pattern(staging.bytes());
    const auto from = owner.url_of(owner.stage(std::move(staging)).value());
    std::vector<std::byte> destination(payload_bytes);
    auto there = consumer.register_region(destination).value();
    std::vector<double> whole;
    std::vector<double> acquire;
    for (int i = -20; i < gets; ++i) {
        const auto begun = clock_type::now();
        const auto got = consumer.get_into(from, destination);
        if (!got || got->report.path != path::rdma) {
            std::fprintf(stderr, "%s: a get did not go by RDMA\n", mode);
            return false;
        }
        if (i < 0) continue;  // warms up
        whole.push_back(microseconds(clock_type::now() - begun).count());
        acquire.push_back(microseconds(got->report.acquire).count());
    }
    print("lease_acquire", mode, median(acquire));
    print("lease_whole_get", mode, median(whole));
    return there.unregister().wait_for(10s) && consumer.shutdown(10s) && owner.shutdown(10s);
}

/// From the moment that a lease is taken away until its memory is the owner's again; with no lease,
/// what giving memory back costs anyway.
bool cost_of_expiry(lease_key_choice keys, const char* mode, bool leased) {
    auto owner = node::start(options_with(keys)).value();
    const auto provider = fabric::make_verbs_provider();
    rogue_consumer rogue(*provider, connect_raw(*owner.address()), payload_bytes);
    std::vector<std::byte> memory(payload_bytes);
    std::vector<double> spent;
    for (int i = 0; i < expiries; ++i) {
        auto region = owner.register_region(memory).value();
        const auto slot = owner.stage_region(region, 0, payload_bytes).value().slot;
        if (leased) {
            rogue.drop_lane();
            static_cast<void>(rogue.lease(slot));
        }
        const auto begun = clock_type::now();
        const auto over = region.unregister(0ms);
        if (!over.wait_for(60s)) return false;
        spent.push_back(microseconds(clock_type::now() - begun).count());
    }
    print(leased ? "expiry" : "unregister_without_lease", mode, median(spent));
    rogue.drop_lane();
    return owner.shutdown(10s);
}

int measure() {
    bool good = true;
    using choice = lease_key_choice;
    for (const auto& [keys, mode] :
         {std::pair{choice::window, "window"}, std::pair{choice::exact, "exact"},
          std::pair{choice::fence, "fence"}})
        good = good && cost_of_leases(keys, mode) && cost_of_expiry(keys, mode, false) &&
               cost_of_expiry(keys, mode, true);
    return good ? 0 : 1;
}

}  // namespace
}  // namespace rvget::test

int main() { return rvget::test::measure(); }
