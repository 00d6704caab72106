#pragma once
// What memory costs on a device: registering it, and lending registered memory from the pool.

#include <cstdint>
#include <memory>
#include <vector>

#include <rvget/error.hpp>

#include "diag/spread.hpp"
#include "fabric/fabric.hpp"

namespace rvget::diag {

struct registration_cost {
    std::uint64_t size_bytes = 0;
    spread register_us;
    spread deregister_us;
};

/// `repetitions` registrations of touched memory of each size, with the rights of an owner's arena.
/// Blocking. Fails where the device refuses one (see `ulimit -l`).
[[nodiscard]] result<std::vector<registration_cost>> measure_registration(
    fabric::device& device, const std::vector<std::uint64_t>& sizes, std::uint32_t repetitions);

struct pool_cost {
    std::uint64_t size_bytes = 0;
    std::uint32_t live_blocks = 0;
    spread pair_ns;  ///< an allocation and giving it back; each of its values the mean of a batch
};

/// Blocks of each size come and go while `live_blocks` others of one granule are on loan.
[[nodiscard]] result<std::vector<pool_cost>> measure_pool(
    const std::shared_ptr<fabric::device>& device, const std::vector<std::uint64_t>& sizes,
    std::uint32_t live_blocks, std::uint32_t repetitions);

}  // namespace rvget::diag
