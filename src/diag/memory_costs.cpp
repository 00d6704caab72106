#include "diag/memory_costs.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>

#include "engine/memory.hpp"

namespace rvget::diag {
namespace {

using clock = std::chrono::steady_clock;
constexpr std::size_t page = 4096;

double us_since(clock::time_point begin) {
    return std::chrono::duration<double, std::micro>(clock::now() - begin).count();
}

failure refused(const engine::pool::refusal& r) {
    return {device_errc::registration, r.detail.empty() ? std::string(to_string(r.why)) : r.detail};
}

}  // namespace

result<std::vector<registration_cost>> measure_registration(fabric::device& device,
                                                            const std::vector<std::uint64_t>& sizes,
                                                            std::uint32_t repetitions) {
    std::vector<registration_cost> costs;
    for (const auto size : sizes) {
        std::vector<std::byte> memory(size + page);  // zeroed, so every page is there
        void* first = memory.data();
        std::size_t room = memory.size();
        std::align(page, size, first, room);
        const std::span bytes(static_cast<std::byte*>(first), size);
        std::vector<double> registering;
        std::vector<double> deregistering;
        for (std::uint32_t n = 0; n < repetitions; ++n) {
            auto begin = clock::now();
            auto region = device.register_memory(
                bytes, fabric::access::local_write | fabric::access::remote_read);
            registering.push_back(us_since(begin));
            if (!region) return region.error();
            begin = clock::now();
            region->reset();
            deregistering.push_back(us_since(begin));
        }
        costs.push_back(
            {size, spread::of(std::move(registering)), spread::of(std::move(deregistering))});
    }
    return costs;
}

result<std::vector<pool_cost>> measure_pool(const std::shared_ptr<fabric::device>& device,
                                            const std::vector<std::uint64_t>& sizes,
                                            std::uint32_t live_blocks, std::uint32_t repetitions) {
    constexpr std::uint32_t batch = 1000;
    engine::pool_options options;
    std::size_t largest = 0;
    for (const auto size : sizes) largest = std::max<std::size_t>(largest, size);
    options.first_arena_bytes = options.granule_bytes * live_blocks + 2 * largest + (1 << 20);
    options.budget_bytes = 2 * options.first_arena_bytes;
    options.dedicated_bytes = options.budget_bytes;  // nothing: an arena of its own is no lending
    engine::pool pool(device, options);
    std::vector<engine::pinned_block> live;
    for (std::uint32_t n = 0; n < live_blocks; ++n) {
        auto block = pool.obtain(options.granule_bytes);
        if (!block) return refused(block.error());
        live.push_back(std::move(*block));
    }
    // Every second one is given back and lent anew, so that they lie as in a node that has run.
    for (std::size_t n = 0; n < live.size(); n += 2) live[n] = {};
    for (std::size_t n = 0; n < live.size(); n += 2) {
        auto block = pool.obtain(options.granule_bytes);
        if (!block) return refused(block.error());
        live[n] = std::move(*block);
    }
    std::vector<pool_cost> costs;
    for (const auto size : sizes) {
        std::vector<double> pairs;
        for (std::uint32_t n = 0; n < repetitions; ++n) {
            const auto begin = clock::now();
            for (std::uint32_t i = 0; i < batch; ++i) {
                auto block = pool.allocate(size);
                if (!block) return refused(block.error());
            }
            pairs.push_back(us_since(begin) * 1e3 / batch);
        }
        costs.push_back({size, live_blocks, spread::of(std::move(pairs))});
    }
    return costs;
}

}  // namespace rvget::diag
