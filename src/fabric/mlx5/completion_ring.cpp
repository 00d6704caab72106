#include "fabric/mlx5/completion_ring.hpp"

namespace rvget::fabric::mlx5 {

namespace {

template <class T>
T load_big_endian(const std::byte* from) noexcept {
    T value{};
    std::memcpy(&value, from, sizeof value);
    return big_endian(value);
}

}  // namespace

completion_status status_of_syndrome(std::uint8_t syndrome) noexcept {
    switch (syndrome) {
        case 0x01:
            return completion_status::local_length;
        case 0x02:
            return completion_status::local_queue_pair_operation;
        case 0x04:
            return completion_status::local_protection;
        case 0x05:
            return completion_status::flushed;
        case 0x06:
            return completion_status::memory_window_bind;
        case 0x10:
            return completion_status::bad_response;
        case 0x11:
            return completion_status::local_access;
        case 0x12:
            return completion_status::remote_invalid_request;
        case 0x13:
            return completion_status::remote_access;
        case 0x14:
            return completion_status::remote_operation;
        case 0x15:
            return completion_status::retry_exceeded;
        case 0x16:
            return completion_status::rnr_retry_exceeded;
        default:
            return completion_status::other;
    }
}

bool decode_entry(std::span<const std::byte, layout::entry> from, ring_completion& out) noexcept {
    const auto last = std::to_integer<std::uint8_t>(from[layout::entry_owner]);
    const auto code = static_cast<std::uint8_t>(last >> 4);
    constexpr std::uint8_t answer_inside = 0x0c;
    const auto word = load_big_endian<std::uint32_t>(&from[layout::entry_queue_pair]);
    out = {.operation = static_cast<std::uint8_t>(word >> 24),
           .counter = load_big_endian<std::uint16_t>(&from[layout::entry_counter]),
           .queue_pair = word & 0xffffff};
    if ((last & answer_inside) != 0) return false;
    if (code == layout::code_request) {
        out.bytes = load_big_endian<std::uint32_t>(&from[layout::entry_bytes]);
        return true;
    }
    if (code != layout::code_request_error) return false;
    out.syndrome = std::to_integer<std::uint8_t>(from[layout::entry_syndrome]);
    out.vendor = std::to_integer<std::uint8_t>(from[layout::entry_vendor]);
    out.status = status_of_syndrome(out.syndrome);
    return true;
}

}  // namespace rvget::fabric::mlx5
