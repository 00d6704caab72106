#pragma once
// Registered memory: arenas, the pool that cuts blocks from them, and the budget over all of it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <rvget/error.hpp>
#include <rvget/path.hpp>

#include "engine/byte_budget.hpp"
#include "fabric/fabric.hpp"

namespace rvget::engine {

struct pool_options {
    std::size_t first_arena_bytes = std::size_t{64} << 20;
    std::size_t max_arena_bytes = std::size_t{1} << 30;  ///< arenas double up to this
    std::size_t granule_bytes = 4096;
    std::size_t dedicated_bytes = std::size_t{64} << 20;  ///< requests this large get an own arena
    std::size_t budget_bytes = std::size_t{1} << 30;      ///< all registered bytes, whole pages
    std::size_t bounce_bytes = std::size_t{1} << 30;  ///< on loan for bouncing at once, of these
    fabric::access rights = fabric::access::local_write | fabric::access::remote_read;
};

/// What a block is for, where that has a budget of its own.
enum class block_use : std::uint8_t {
    hold,    ///< bytes that stay in it
    bounce,  ///< bytes that only pass through, on their way to plain memory
};

class pool;
namespace detail {
struct arena;
struct pool_state;
}  // namespace detail

/// A piece of registered memory on loan from a pool. Move-only; destroying it gives the block back
/// (constant time; any thread). Keeps its arena alive: the last block of a pool that is gone
/// deregisters and unmaps its arena, which blocks. It must not be destroyed while a NIC may touch
/// it: that is its holder's promise. A forked child does not see the memory.
class pinned_block {
public:
    pinned_block() = default;
    pinned_block(pinned_block&&) noexcept;
    pinned_block& operator=(pinned_block&&) noexcept;
    ~pinned_block();

    explicit operator bool() const noexcept { return arena_ != nullptr; }
    /// Exactly as many bytes as were asked for; a recycled block holds what was there before.
    [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }
    // The rest: precondition: not empty.
    [[nodiscard]] std::uint32_t local_key() const noexcept;
    [[nodiscard]] std::uint32_t remote_key() const noexcept;
    [[nodiscard]] const fabric::memory_region& region() const noexcept;

private:
    friend class pool;
    std::shared_ptr<detail::arena> arena_;
    std::span<std::byte> bytes_;
    byte_budget::claim bounce_;
};

/// Cuts blocks from registered arenas: constant-time allocate and free over power-of-two-ish size
/// classes of granules with coalescing (two-level segregated fit). Safe to use from any thread
/// (blocks are destroyed wherever their last holder is). Growing registers memory and may block for
/// milliseconds; `allocate` never grows, `grow_for` does and is meant for a worker thread.
/// Nothing throws, except the constructor when plain memory is out.
class pool {
public:
    /// `device` null: every allocation fails with `not_configured`.
    pool(std::shared_ptr<fabric::device> device, const pool_options& options);
    ~pool();
    pool(const pool&) = delete;
    pool& operator=(const pool&) = delete;

    struct refusal {
        /// pool_exhausted, budget, registration, not_configured, or zero_length for 0 bytes
        reason why = reason::pool_exhausted;
        std::string detail;  ///< for people: the figures, or the device's own words
    };

    /// A block of `bytes` from what is registered now, or why not. `pool_exhausted` may be cured by
    /// grow_for(bytes); `budget` may not, until blocks come back. Blocks begin at granules.
    boost::system::result<pinned_block, refusal> allocate(std::size_t bytes,
                                                          block_use use = block_use::hold);
    /// Registers one more arena so that a block of `bytes` fits; does nothing when one fits already
    /// (somebody else may have grown, or may take the room first: allocate and grow in turn; it
    /// ends with `budget`). Returns empty arenas to the system where the budget needs their bytes.
    /// Blocking; any thread.
    boost::system::result<void, refusal> grow_for(std::size_t bytes);

    /// A block of `bytes`, growing as often as the budget allows. Blocking; any thread.
    boost::system::result<pinned_block, refusal> obtain(std::size_t bytes);

    struct statistics {
        /// Claimed from the budget: of arenas, also of those being made or unmade, and beside them.
        std::size_t registered_bytes = 0;
        std::size_t used_bytes = 0;  ///< whole granules on loan
        std::size_t largest_free = 0;
        std::size_t arenas = 0;
        std::size_t blocks = 0;
    };
    [[nodiscard]] statistics stats() const;
    /// Deregisters arenas without any block that had none since the last call either, largest
    /// first, as long as at least `warm_floor_bytes` of arenas stay registered; returns the bytes
    /// given back. Called at equal intervals it returns an arena one to two of them after its last
    /// use. Blocking; any thread.
    std::size_t trim(std::size_t warm_floor_bytes);

    /// Room in the budget for registering `memory` beside the arenas: all pages that it touches.
    /// Returns empty arenas to the system where it needs their bytes. Blocking; any thread.
    boost::system::result<byte_budget::claim, refusal> claim(std::span<const std::byte> memory);

private:
    std::shared_ptr<detail::pool_state> state_;
};

}  // namespace rvget::engine
