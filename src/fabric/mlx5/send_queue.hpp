#pragma once
// The send side of one queue pair, written directly: requests into its ring, doorbells to its
// register. Used from one thread. Takes part in nothing else: whoever owns it never posts to that
// queue pair in another way.

#include <bit>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "fabric/mlx5/layout.hpp"
#include "fabric/mlx5/platform.hpp"

namespace rvget::fabric::mlx5 {

template <class T>
constexpr T big_endian(T v) noexcept {
    static_assert(std::endian::native == std::endian::little);
    if constexpr (sizeof(T) == 2) return __builtin_bswap16(v);
    if constexpr (sizeof(T) == 4) return __builtin_bswap32(v);
    if constexpr (sizeof(T) == 8) return __builtin_bswap64(v);
}

/// What a send queue is made of; all of it outlives the queue.
struct send_queue_memory {
    std::byte* ring = nullptr;
    std::uint32_t blocks = 0;         ///< a power of two
    std::uint32_t* record = nullptr;  ///< the queue pair's, both words
    std::byte* registers = nullptr;   ///< the two halves of its doorbell register,
    std::uint32_t half_bytes = 0;     ///< of this many bytes each; 0: no BlueFlame, one half
    std::uint32_t number = 0;         ///< of the queue pair
};

/// Part of local memory. A piece of no bytes is left out: its encoding would stand for 2 GiB.
struct local_piece {
    std::uint64_t address = 0;
    std::uint32_t bytes = 0;
    std::uint32_t key = 0;
};

struct remote_place {
    std::uint64_t address = 0;
    std::uint32_t key = 0;
};

/// How a request behaves.
struct request_modes {
    bool signalled = true;
    bool solicited = false;
    bool fence = false;
};

template <class Platform = hardware>
class send_queue {
public:
    explicit send_queue(const send_queue_memory& m)
        : memory_(m), end_(m.ring + m.blocks * layout::block), slots_(m.blocks) {}

    [[nodiscard]] const send_queue_memory& memory() const noexcept { return memory_; }
    [[nodiscard]] std::uint32_t free_blocks() const noexcept {
        return memory_.blocks - static_cast<std::uint16_t>(next_ - oldest_);
    }
    /// Requests that were added and are not known to be done.
    [[nodiscard]] std::uint32_t requests_out() const noexcept { return count_ - done_; }
    [[nodiscard]] std::uint16_t next_index() const noexcept { return next_; }

    // Each adds one request, to be rung with the others: false, and nothing changed, where it does
    // not fit now (or at all). `id` comes back from `complete`.
    bool add_read(std::uint64_t id, std::span<const local_piece> pieces, remote_place from,
                  request_modes modes) {
        const auto used = sum_up(pieces);
        auto* at = begin(id, layout::operation_read, 2 + used.count, modes, 0, used.bytes);
        if (at == nullptr) return false;
        put_pieces(put_remote(at, from), pieces);
        return true;
    }
    bool add_send(std::uint64_t id, std::span<const local_piece> pieces, request_modes modes,
                  std::optional<std::uint32_t> immediate = {}) {
        auto* at = begin(id, send_operation(immediate), 1 + sum_up(pieces).count, modes,
                         immediate.value_or(0));
        if (at == nullptr) return false;
        put_pieces(at, pieces);
        return true;
    }
    bool add_inline_send(std::uint64_t id, std::span<const std::byte> bytes, request_modes modes,
                         std::optional<std::uint32_t> immediate = {}) {
        const auto units = bytes.empty() ? 0 : (bytes.size() + 4 + layout::unit - 1) / layout::unit;
        auto* at = begin(id, send_operation(immediate), 1 + units, modes, immediate.value_or(0));
        if (at == nullptr) return false;
        if (!bytes.empty()) put_inline(at, bytes);
        return true;
    }
    bool add_fetch_add(std::uint64_t id, const local_piece& answer, remote_place at,
                       std::uint64_t add, request_modes modes) {
        auto* to = begin(id, layout::operation_fetch_add, 4, modes, 0);
        if (to == nullptr) return false;
        to = put_remote(to, at);
        store64(to, add);  // the compare word has no meaning and stays as it was
        put_piece(to + layout::unit, answer);
        return true;
    }
    bool add_compare_swap(std::uint64_t id, const local_piece& answer, remote_place at,
                          std::uint64_t compare, std::uint64_t swap, request_modes modes) {
        auto* to = begin(id, layout::operation_compare_swap, 4, modes, 0);
        if (to == nullptr) return false;
        to = put_remote(to, at);
        store64(to, swap);
        store64(to + 8, compare);
        put_piece(to + layout::unit, answer);
        return true;
    }
    bool add_nop(std::uint64_t id, request_modes modes) {
        return begin(id, layout::operation_nop, 1, modes, 0) != nullptr;
    }

    /// Drops what was added since the last `ring`.
    void drop_added() noexcept {
        next_ = rung_;
        count_ -= added_;
        added_ = 0;
    }

    /// Hands everything added to the device with one doorbell. A lone request is copied into the
    /// register (BlueFlame), which saves the device one read of host memory.
    void ring() noexcept {
        if (added_ == 0) return;
        Platform::before_record();
        Platform::store_record(memory_.record + layout::send_record_word,
                               big_endian(std::uint32_t{next_}));
        Platform::before_register();
        auto* to = memory_.registers + half_;
        const auto* from = latest_;
        if (added_ == 1 && latest_units_ > 1 &&
            latest_units_ * layout::unit <= memory_.half_bytes) {
            copy_blocks(to, from, (latest_units_ + 3) / 4);
        } else {
            Platform::store_register(to, load64(from));
        }
        Platform::after_register();
        half_ ^= memory_.half_bytes;
        rung_ = next_;
        added_ = 0;
    }

    /// The request that a completion's counter names, which with all before it is done; nothing if
    /// none that is out starts there.
    std::optional<std::uint64_t> complete(std::uint16_t counter) noexcept {
        const auto& s = slot_of(counter);
        const auto offset = static_cast<std::uint16_t>(counter - oldest_);
        if (offset >= static_cast<std::uint16_t>(rung_ - oldest_) || s.index != counter) {
            return std::nullopt;
        }
        oldest_ = s.next;
        done_ = s.count;
        return s.id;
    }
    /// What the READ that starts there asked for, until its place is used again.
    [[nodiscard]] std::uint32_t read_bytes(std::uint16_t counter) noexcept {
        return slot_of(counter).read_bytes;
    }

    /// After the queue pair was reset: nothing is out, counters and the record are zero.
    void reset() noexcept {
        next_ = rung_ = oldest_ = 0;
        done_ = count_;
        added_ = 0;
        Platform::store_record(memory_.record + layout::send_record_word, 0);
    }

private:
    struct slot {
        std::uint64_t id = 0;
        std::uint16_t index = 0xffff;  ///< of the request's first block
        std::uint16_t next = 0;        ///< of the request after it
        std::uint32_t count = 0;       ///< of requests up to this one
        std::uint32_t read_bytes = 0;
    };

    [[nodiscard]] slot& slot_of(std::uint16_t index) noexcept {
        return slots_[index & (memory_.blocks - 1)];
    }

    static std::uint8_t send_operation(const std::optional<std::uint32_t>& immediate) noexcept {
        return immediate ? layout::operation_send_immediate : layout::operation_send;
    }
    struct sum {
        std::size_t count = 0;  ///< of pieces that are not empty
        std::uint32_t bytes = 0;
    };
    static sum sum_up(std::span<const local_piece> pieces) noexcept {
        sum all;
        for (const auto& p : pieces) {
            all.count += p.bytes > 0 ? 1 : 0;
            all.bytes += p.bytes;
        }
        return all;
    }
    [[nodiscard]] std::byte* block_of(std::uint16_t index) const noexcept {
        return memory_.ring + (index & (memory_.blocks - 1)) * layout::block;
    }
    static std::uint64_t load64(const std::byte* from) noexcept {
        std::uint64_t value = 0;
        std::memcpy(&value, from, sizeof value);
        return value;
    }
    static void store32(std::byte* to, std::uint32_t v) noexcept {
        v = big_endian(v);
        std::memcpy(to, &v, sizeof v);
    }
    static void store64(std::byte* to, std::uint64_t v) noexcept {
        v = big_endian(v);
        std::memcpy(to, &v, sizeof v);
    }

    // A request's control segment, and the two behind it, lie in its first block: only what comes
    // after those can be at the end of the ring.

    /// Where the segment behind the control segment goes; null where the request does not fit.
    std::byte* begin(std::uint64_t id, std::uint8_t operation, std::size_t units,
                     request_modes modes, std::uint32_t immediate,
                     std::uint32_t read_bytes = 0) noexcept {
        const auto blocks = (units + 3) / 4;
        if (units > layout::max_units || blocks > free_blocks()) return nullptr;
        auto* at = block_of(next_);
        store32(at, std::uint32_t{next_} << 8 | operation);
        store32(at + 4, memory_.number << 8 | static_cast<std::uint32_t>(units));
        store32(at + 8, (modes.signalled ? layout::mode_signalled : 0U) |
                            (modes.solicited ? layout::mode_solicited : 0U) |
                            (modes.fence ? layout::mode_fence : 0U));
        store32(at + 12, immediate);
        const auto after = static_cast<std::uint16_t>(next_ + blocks);
        auto& s = slot_of(next_);
        s.id = id;
        s.index = next_;
        s.next = after;
        s.count = ++count_;
        s.read_bytes = read_bytes;
        latest_ = at;
        latest_units_ = units;
        next_ = after;
        ++added_;
        return at + layout::unit;
    }
    static std::byte* put_remote(std::byte* at, const remote_place& r) noexcept {
        store64(at, r.address);
        store32(at + 8, r.key);
        store32(at + 12, 0);
        return at + layout::unit;
    }
    static void put_piece(std::byte* at, const local_piece& p) noexcept {
        store32(at, p.bytes);
        store32(at + 4, p.key);
        store64(at + 8, p.address);
    }
    void put_pieces(std::byte* at, std::span<const local_piece> pieces) const noexcept {
        for (const auto& p : pieces) {
            if (p.bytes == 0) continue;
            if (at == end_) at = memory_.ring;
            put_piece(at, p);
            at += layout::unit;
        }
    }
    /// Inline bytes follow their count without a gap, so the ring may end within them.
    void put_inline(std::byte* at, std::span<const std::byte> bytes) const noexcept {
        store32(at, layout::inline_flag | static_cast<std::uint32_t>(bytes.size()));
        auto* to = at + 4;
        const auto first = std::min(bytes.size(), static_cast<std::size_t>(end_ - to));
        std::memcpy(to, bytes.data(), first);
        std::memcpy(memory_.ring, bytes.data() + first, bytes.size() - first);
    }
    /// Ascending stores of 8 bytes, each once: what a library's memcpy does is not defined.
    void copy_blocks(std::byte* to, const std::byte* from, std::size_t blocks) const noexcept {
        for (; blocks > 0; --blocks) {
#pragma GCC unroll 8
            for (std::size_t i = 0; i < layout::block; i += 8) {
                Platform::store_register(to + i, load64(from + i));
            }
            to += layout::block;
            from += layout::block;
            if (from == end_) from = memory_.ring;
        }
    }

    send_queue_memory memory_;
    std::byte* end_ = nullptr;  ///< of the ring
    std::vector<slot> slots_;
    std::uint16_t next_ = 0;  ///< counts blocks, not requests; never masked but to find a slot
    std::uint16_t rung_ = 0;
    std::uint16_t oldest_ = 0;  ///< the first block that may not be written
    std::uint32_t added_ = 0;
    std::uint32_t count_ = 0;  ///< of requests ever added
    std::uint32_t done_ = 0;   ///< of those known to be done
    std::uint32_t half_ = 0;
    const std::byte* latest_ = nullptr;  ///< the request added last
    std::size_t latest_units_ = 0;
};

}  // namespace rvget::fabric::mlx5
