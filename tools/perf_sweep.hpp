#pragma once
// The sweep: the same sizes by RDMA, in chunks from the same pinned memory, and without the copy.

#include "perf_settings.hpp"

namespace rvget::tools {

/// Measures `settings.iterations` transfers of each size in each way, prints them; the exit status.
int sweep_perf(const perf_settings& settings);

}  // namespace rvget::tools
