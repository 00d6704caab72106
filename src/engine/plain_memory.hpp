#pragma once
// Plain memory for owned results. Large buffers are recycled: the first touch of fresh pages can
// cost more than the READ that fills them.

#include <cstddef>

#include <rvget/transfer.hpp>

namespace rvget::engine {

/// Uninitialised memory of exactly `bytes`, or an empty buffer where there is none to be had.
/// Any thread. Recycled when destroyed, up to a limit over the whole process.
[[nodiscard]] buffer allocate_plain(std::size_t bytes) noexcept;

}  // namespace rvget::engine
