#pragma once
// What every part of the engine is given: its surroundings, the settings, and the shared tables.

#include <rvget/config.hpp>
#include <rvget/handle.hpp>

#include "engine/connection_desk.hpp"
#include "engine/control_link.hpp"
#include "engine/counters.hpp"
#include "engine/environment.hpp"
#include "engine/queue_pair_stock.hpp"
#include "engine/rdma_context.hpp"

namespace rvget::engine {

/// Borrowed by all parts of one node; the node outlives them.
struct services {
    environment& env;
    control_network& net;
    const node_options& options;
    node_id self;
    rdma_context& rdma;
    counters& stats;
    queue_pair_stock& reading_stock;  ///< for the lanes of this node as consumer
    queue_pair_stock& serving_stock;  ///< and as owner
    connection_desk& desk;            ///< where its consumers connect by RDMA-CM
};

}  // namespace rvget::engine
