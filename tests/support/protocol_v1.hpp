#pragma once
// Protocol version 1 as its peers spoke it, kept beside the version of today: bytes by hand,
// nothing of src/wire. It has no offers, lanes or descriptors. Never to be changed with the
// product.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

namespace rvget::test::v1 {

using bytes = std::vector<std::byte>;

inline void put(bytes& out, std::uint64_t value, unsigned width) {
    for (unsigned i = 0; i < width; ++i) out.push_back(static_cast<std::byte>(value >> 8 * i));
}

inline std::uint64_t number(std::span<const std::byte> in, std::size_t at, unsigned width) {
    if (at + width > in.size()) throw std::runtime_error("a shorter frame than version 1 has");
    std::uint64_t value = 0;
    for (unsigned i = 0; i < width; ++i)
        value |= std::to_integer<std::uint64_t>(in[at + i]) << 8 * i;
    return value;
}

/// A head of `type` with its fixed fields and, behind them, ready-made optional fields.
class frame {
public:
    frame(std::uint8_t type, std::uint64_t id) {
        put(head_, type, 1);
        put(head_, 0, 1);
        put(head_, id, 8);
    }
    frame& field(std::uint64_t value, unsigned width) {
        put(head_, value, width);
        return *this;
    }
    frame& optional(std::uint8_t tag, std::uint64_t value, unsigned width) {
        put(head_, tag, 1);
        put(head_, width, 2);
        put(head_, value, width);
        return *this;
    }
    [[nodiscard]] bytes on_the_wire(std::span<const std::byte> payload = {}) const {
        bytes out;
        put(out, head_.size(), 4);
        put(out, payload.size(), 4);
        out.insert(out.end(), head_.begin(), head_.end());
        out.insert(out.end(), payload.begin(), payload.end());
        return out;
    }

private:
    bytes head_;
};

enum type : std::uint8_t {
    hello = 1,
    acquire = 2,
    acquire_reply = 3,
    detach = 4,
    pull = 7,
    chunk = 8
};

inline bytes greeting(std::uint64_t node) {
    return frame(hello, 0).field(1, 2).field(1, 2).field(node, 8).on_the_wire();
}

/// What arrived: the head's fields by offset, and the payload.
struct received {
    bytes head;
    bytes payload;
    [[nodiscard]] std::uint64_t type() const { return number(head, 0, 1); }
    [[nodiscard]] std::uint64_t id() const { return number(head, 2, 8); }
    [[nodiscard]] std::uint64_t field(std::size_t at, unsigned width) const {
        return number(head, at, width);
    }
    /// Whether an optional field with that tag follows fixed fields that end at `at`.
    [[nodiscard]] bool has(std::uint8_t tag, std::size_t at) const {
        while (at < head.size()) {
            if (number(head, at, 1) == tag) return true;
            at += 3 + number(head, at + 1, 2);
        }
        return false;
    }
};

/// `socket` reads exactly so many bytes or none.
template <class Socket>
received read(const Socket& socket) {
    const auto prefix = socket.read(8);
    if (!prefix) throw std::runtime_error("the peer is gone");
    auto head = socket.read(number(*prefix, 0, 4));
    auto payload = socket.read(number(*prefix, 4, 4));
    if (!head || !payload) throw std::runtime_error("the peer is gone");
    return {std::move(*head), std::move(*payload)};
}

}  // namespace rvget::test::v1
