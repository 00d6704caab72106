#pragma once
// What travels between two queue pairs: one message each, whole. Its numbers still count packets of
// the path MTU, so that ends which disagree about the MTU or the first number notice.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace softmlx5 {

enum class packet_kind : std::uint8_t {
    send,
    send_invalidate,
    write,
    read,
    compare_swap,
    fetch_add,
    acknowledge,
    read_response,
    atomic_response,
    receiver_not_ready,
    refusal,
};

struct packet {
    packet_kind kind = packet_kind::send;
    bool has_immediate = false;
    bool solicited = false;
    std::uint8_t code = 0;  ///< refusal: the requester's syndrome; receiver_not_ready: the timer
    std::uint32_t source = 0;
    std::uint32_t destination = 0;
    std::uint32_t sequence = 0;
    std::uint32_t outstanding = 0;  ///< reads of the requester that wait, this one included
    std::uint32_t immediate = 0;
    std::uint32_t key = 0;
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    std::uint64_t swap_or_add = 0;
    std::uint64_t compare = 0;
    std::vector<std::byte> payload;

    [[nodiscard]] bool is_response() const noexcept { return kind >= packet_kind::acknowledge; }
};

}  // namespace softmlx5
