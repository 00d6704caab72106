#pragma once
// The proof that a queue pair in error is done with everything posted before.

#include <cstdint>
#include <string>

#include "engine/services.hpp"

namespace rvget::engine {

/// Posts the marker `id` on a queue pair in error; when its completion comes, whoever gets it says
/// so with rdma_context::retired(1). False, logged under `lane` ("lane=3") and counted, where it
/// cannot be posted: nothing will ever prove the queue pair quiet, so it and what its NIC may touch
/// are leaked, never freed.
[[nodiscard]] bool post_drain_marker(services& s, fabric::queue_pair& queue_pair, std::uint64_t id,
                                     const std::string& lane);

}  // namespace rvget::engine
