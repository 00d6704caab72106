#pragma once
// What a node tells Prometheus: the engine's counts under names, with labels of which there is a
// fixed number, and never a peer's.

#include <cstdint>
#include <string>
#include <vector>

#include <prometheus/metric_family.h>
#include <rvget/node.hpp>

#include "engine/counters.hpp"
#include "engine/memory.hpp"
#include "engine/node_core.hpp"

namespace rvget {

/// All of one moment.
struct metrics_snapshot {
    engine::counters counts{};
    engine::node_core::connection_counts connections{};
    engine::pool::statistics memory{};
    rdma_status rdma{};
    std::size_t slots = 0;
    std::size_t regions = 0;
    std::size_t spare_queue_pairs = 0;
};

std::vector<prometheus::MetricFamily> metric_families(const metrics_snapshot& s);

}  // namespace rvget
