#pragma once
// The value of --range.

#include <cstdint>
#include <optional>
#include <string_view>

#include <rvget/error.hpp>

namespace rvget::tools {

/// Bytes `first` to `last`, both included and counted from 0; without `last`, to the end.
struct byte_range {
    std::uint64_t first = 0;
    std::optional<std::uint64_t> last;

    /// "A-B" or "A-", decimal, A not above B.
    [[nodiscard]] static result<byte_range> parse(std::string_view text);

    /// How many bytes that is of a slot of `slot_bytes`. Unlike HTTP nothing is clipped: a range
    /// that is not wholly inside the slot is `out_of_range`, because a script that asks for N bytes
    /// must not take fewer for success. "0-" of an empty slot is the whole of it.
    [[nodiscard]] result<std::uint64_t> length_in(std::uint64_t slot_bytes) const;
};

}  // namespace rvget::tools
