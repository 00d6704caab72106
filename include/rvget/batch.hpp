#pragma once
// Many gets in one call.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <rvget/error.hpp>
#include <rvget/handle.hpp>
#include <rvget/path.hpp>

namespace rvget {

/// A part of a slot, clipped at its end.
struct byte_range {
    std::uint64_t offset = 0;
    std::optional<std::uint64_t> length{};  ///< none: to the end
};

/// One get of a batch.
struct get_item {
    url from;
    byte_range range{};
};

/// One get of a batch into memory, which has room for the range.
struct get_into_item {
    url from;
    std::span<std::byte> destination;
    byte_range range{};
};

/// Of the whole batch: one deadline, one policy; what is not set comes from the node's options.
struct batch_options {
    std::optional<std::chrono::milliseconds> deadline{};
    std::optional<path_policy> policy{};
    bool checksum = false;  ///< of each get, as in get_options
};

/// What one get of a batch came to: `error.code` is zero where it succeeded. Of a failed get_into
/// `value.quiet` says when its destination is the caller's again.
template <class R>
struct batch_element {
    failure error;
    R value;
};

/// The items of a batch that gets many ranges of one slot.
[[nodiscard]] inline std::vector<get_item> items_of(const url& from,
                                                    std::span<const byte_range> ranges) {
    std::vector<get_item> items;
    items.reserve(ranges.size());
    for (const auto& r : ranges) items.push_back({from, r});
    return items;
}

}  // namespace rvget
