#pragma once
// Staged bytes: where they are, who refers to them.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <rvget/path.hpp>
#include <rvget/transfer.hpp>

#include "engine/memory.hpp"

namespace rvget::engine {

/// The memory of one slot. Shared: a chunk on its way to a socket holds it beyond the slot's end.
struct slot_memory {
    pinned_block block;                                   ///< in the registered pool, or
    buffer plain;                                         ///< in plain memory, or
    std::shared_ptr<const fabric::memory_region> region;  ///< in one that the caller registered
    /// Of a region, with lease keys `fence`: what its key opens, these bytes and no others.
    std::shared_ptr<const fabric::memory_region> shared_key;
    std::span<const std::byte> bytes;
    std::uint32_t remote_key = 0;  ///< valid where pinned
    bool pinned = false;
    reason why_plain = reason::ok;  ///< where not pinned: why
    std::string why_plain_detail;

    /// Precondition: pinned.
    [[nodiscard]] const fabric::memory_region& registered() const noexcept {
        return region ? *region : block.region();
    }
};

struct slot {
    std::uint64_t id = 0;
    std::shared_ptr<const slot_memory> memory;
    std::uint32_t references = 1;  ///< of all holders
    std::uint32_t own = 1;         ///< of those: the owner's, which nobody else's release touches
    std::uint32_t leases = 0;      ///< active ones
};

}  // namespace rvget::engine
