#pragma once
// A work request as the device reads it from a send queue: strict, every bit accounted for.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "softmlx5/core/violations.hpp"

namespace softmlx5 {

enum class opcode : std::uint8_t {
    nop = 0x00,
    send_invalidate = 0x01,
    write = 0x08,
    write_immediate = 0x09,
    send = 0x0a,
    send_immediate = 0x0b,
    read = 0x10,
    compare_swap = 0x11,
    fetch_add = 0x12,
    key_update = 0x25,  ///< UMR: bind and invalidate
};

/// Part of a gather or scatter list.
struct piece {
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    std::uint32_t key = 0;
};

/// What a key update changes.
struct key_change {
    bool invalidate = false;
    std::uint8_t variant = 0;
    std::uint32_t queue_pair = 0;
    std::uint8_t rights = 0;
    std::uint64_t start = 0;
    std::uint64_t length = 0;
    piece source;  ///< the bytes of a region that the window covers
};

/// The three fence values that a driver may ask for.
enum class fence : std::uint8_t { none = 0, initiator_small = 1, all_reads = 4 };

struct work_request {
    std::uint16_t index = 0;  ///< of its first block, not masked
    std::uint16_t blocks = 1;
    opcode code = opcode::nop;
    softmlx5::fence wait = fence::none;
    bool signalled = false;
    bool solicited = false;
    std::uint32_t immediate = 0;
    std::uint64_t remote_address = 0;
    std::uint32_t remote_key = 0;
    std::uint64_t swap_or_add = 0;
    std::uint64_t compare = 0;
    std::vector<piece> pieces;
    bool inlined = false;
    std::vector<std::byte> inline_bytes;
    key_change change;

    [[nodiscard]] std::uint64_t length() const noexcept;
    [[nodiscard]] bool reads() const noexcept {
        return code == opcode::read || code == opcode::compare_swap || code == opcode::fetch_add;
    }
};

/// A send queue's ring: `blocks` (a power of two) of 64 bytes each.
struct send_ring {
    static constexpr std::size_t block = 64;

    std::byte* base = nullptr;
    std::uint32_t blocks = 0;

    [[nodiscard]] std::byte* at(std::uint16_t index) const noexcept {
        return base + (index & (blocks - 1)) * block;
    }
};

/// Reads the request that starts at block `index`. Nothing, and a violation, where a device would
/// call it malformed.
std::optional<work_request> decode_request(const send_ring& ring, std::uint16_t index,
                                           std::uint32_t queue_pair, violation_log& log);

}  // namespace softmlx5
