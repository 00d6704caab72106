#pragma once
// Memory that callers registered, and the parts of any memory that a get is filling: what a NIC can
// write directly, and what must not be used for anything else yet.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "fabric/fabric.hpp"

namespace rvget::engine {

/// Any thread.
class region_table {
public:
    /// Kept alive by everything that may still post with its key: dropping the last reference
    /// deregisters.
    using region = std::shared_ptr<fabric::memory_region>;

    void add(region r);
    /// New gets no longer see it; jobs that run keep it.
    void remove(const fabric::memory_region& r);
    /// The region that holds all of `bytes`, or null.
    [[nodiscard]] region find(std::span<const std::byte> bytes) const;

    [[nodiscard]] std::size_t size() const;

    /// Takes a destination; false where part of it is taken already.
    [[nodiscard]] bool take(std::span<const std::byte> destination);
    void give_back(std::span<const std::byte> destination);
    /// Whether part of it is taken.
    [[nodiscard]] bool is_taken(std::span<const std::byte> bytes) const;

private:
    [[nodiscard]] bool overlaps_taken(std::span<const std::byte> bytes) const;

    mutable std::mutex mutex_;
    std::map<std::uintptr_t, region> regions_;     ///< by first byte
    std::map<std::uintptr_t, std::size_t> taken_;  ///< by first byte; never overlapping
};

}  // namespace rvget::engine
