#pragma once
// Two queue pairs of one device, driven by hand: requests are written word by word, as they lie in
// memory, so that a test says exactly what the device sees.

#include <array>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <vector>

#include "softmlx5/core/bytes.hpp"
#include "softmlx5/core/device.hpp"

namespace softmlx5::testing {

using words = std::vector<std::uint32_t>;

/// Joins segments of a request.
inline words join(std::initializer_list<words> parts) {
    words all;
    for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
}

struct page_memory {
    struct freer {
        void operator()(std::byte* p) const noexcept { std::free(p); }
    };
    explicit page_memory(std::size_t bytes)
        : at(static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096))) {
        std::memset(at.get(), 0, (bytes + 4095) / 4096 * 4096);
    }
    std::unique_ptr<std::byte, freer> at;
};

constexpr std::uint32_t high(std::uint64_t v) noexcept {
    return static_cast<std::uint32_t>(v >> 32);
}
constexpr std::uint32_t low(std::uint64_t v) noexcept { return static_cast<std::uint32_t>(v); }
inline std::uint64_t address_of(const void* p) noexcept {
    return reinterpret_cast<std::uintptr_t>(p);
}

/// A queue pair with a completion queue and a UAR of its own.
class hand {
public:
    struct sizes {
        std::uint32_t blocks = 16;
        std::uint8_t log_entries = 4;
        std::uint16_t entry_bytes = 64;
        std::uint32_t receives = 4;
        bool scatter = false;
    };
    static constexpr std::uint32_t stride = 32;

    hand(device& on, std::uint32_t domain, sizes s)
        : device_(on),
          size_(s),
          uar_page_(4096),
          ring_(s.receives * stride + s.blocks * 64),
          entries_((std::size_t{1} << s.log_entries) * s.entry_bytes),
          records_(4096) {
        uar = on.add_uar(uar_page_.at.get(), uar_kind::blue_flame);
        for (std::size_t i = 0; i < std::size_t{1} << s.log_entries; ++i) {
            entries_.at.get()[(i + 1) * s.entry_bytes - 1] = std::byte{0xf1};
        }
        queue = on.add_completion_queue({.ring = entries_.at.get(),
                                         .record = records_.at.get() + 64,
                                         .log_entries = s.log_entries,
                                         .entry_bytes = s.entry_bytes,
                                         .uar = uar});
        number = on.add_queue_pair({.domain = domain,
                                    .send_queue = queue,
                                    .receive_queue = queue,
                                    .uar = uar,
                                    .user_index = 0x77,
                                    .record = records_.at.get(),
                                    .sends = {sends(), s.blocks},
                                    .receives = ring_.at.get(),
                                    .receive_count = s.receives,
                                    .receive_stride = stride,
                                    .scatter_responses = s.scatter,
                                    .scatter_receives = s.scatter});
        pair = on.find_queue_pair(number);
    }

    void connect(std::uint32_t peer, queue_pair_path path = usual()) {
        path.remote_queue_pair = peer;
        pair->path = path;
        pair->change(queue_pair_state::init);
        pair->change(queue_pair_state::ready_to_receive);
        pair->change(queue_pair_state::ready_to_send);
    }
    static queue_pair_path usual() {
        return {.port = 1,
                .remote_rights = remote_read | remote_write | remote_atomic,
                .path_mtu = 1024,
                .receive_sequence = 0x100,
                .responder_depth = 4,
                .min_rnr_timer = 1,
                .send_sequence = 0x100,
                .initiator_depth = 4,
                .retry_count = 2,
                .rnr_retry_count = 2,
                .timeout_exponent = 8};
    }

    /// The control segment of a request of `units` at the next block.
    [[nodiscard]] words control(std::uint8_t code, std::uint32_t units, std::uint8_t modes = 8,
                                std::uint32_t immediate = 0) const {
        return {std::uint32_t{produced} << 8 | code, number << 8 | units, modes, immediate};
    }
    /// Writes a request at the next block, wrapping, without telling the device.
    void write(const words& request) {
        latest_ = produced;
        for (std::size_t i = 0; i < request.size(); ++i) {
            store_be(sends() + (produced * 64 + i * 4) % (size_.blocks * 64), request[i]);
        }
        produced = static_cast<std::uint16_t>(produced + (request.size() + 15) / 16);
    }
    void publish() { store_be(records_.at.get() + 4, std::uint32_t{produced}); }
    /// The store to the register: what the latest request starts with.
    [[nodiscard]] std::uint64_t latest_control() const {
        return load64(sends() + (latest_ * 64) % (size_.blocks * 64));
    }
    void store(std::uint32_t offset, std::uint64_t value) { device_.store(uar, offset, value); }
    void ring() {
        publish();
        store(half_, latest_control());
        device_.fence();
        half_ ^= 0x100;
        while (device_.step()) {
        }
    }
    void post(const words& request) {
        write(request);
        ring();
    }
    void receive(std::uint64_t address, std::uint32_t bytes, std::uint32_t key) {
        auto* slot = ring_.at.get() + (received_++ % size_.receives) * stride;
        store_be(slot, bytes);
        store_be(slot + 4, key);
        store_be(slot + 8, address);
        store_be(slot + 16, 0U);
        store_be(slot + 20, key_table::terminator);
        store_be(records_.at.get(), std::uint32_t{received_});
    }

    struct entry {
        std::uint8_t code = 0xff;  ///< 0xff: none
        std::uint8_t format = 0;
        std::uint8_t syndrome = 0;
        std::uint8_t operation = 0;
        bool solicited = false;
        std::uint16_t counter = 0;
        std::uint32_t bytes = 0;
        std::uint32_t queue_pair = 0;
        std::uint32_t user_index = 0;
        std::uint32_t immediate = 0;
        const std::byte* slot = nullptr;
    };
    /// The next completion; its consumer index is published unless told otherwise.
    entry take(bool publish_index = true) {
        const auto size = std::uint32_t{1} << size_.log_entries;
        const auto* slot = entries_.at.get() + std::size_t{consumed % size} * size_.entry_bytes;
        const auto* e = slot + size_.entry_bytes - 64;
        const auto last = static_cast<std::uint8_t>(e[63]);
        entry out;
        if (last >> 4 == 15 || (last & 1) != (consumed >> size_.log_entries & 1)) return out;
        ++consumed;
        if (publish_index) publish_consumed();
        out.code = last >> 4;
        out.format = last >> 2 & 3;
        out.solicited = (last & 2) != 0;
        if (out.code >= 13) out.syndrome = static_cast<std::uint8_t>(e[55]);
        out.operation = static_cast<std::uint8_t>(load32(e + 56) >> 24);
        out.queue_pair = load32(e + 56) & 0xffffff;
        out.user_index = load32(e + 32);
        out.immediate = load32(e + 36);
        out.bytes = load32(e + 44);
        out.counter = load16(e + 60);
        out.slot = slot;
        return out;
    }
    void publish_consumed() { store_be(records_.at.get() + 64, consumed); }
    void arm(std::uint32_t sequence, bool solicited = false) {
        const auto request = sequence << 28 | (solicited ? 1U << 24 : 0U) | (consumed & 0xffffff);
        store_be(records_.at.get() + 68, request);
        store(0x20, std::uint64_t{request} << 32 | queue);
    }
    [[nodiscard]] std::byte* sends() const { return ring_.at.get() + size_.receives * stride; }
    [[nodiscard]] std::byte* record() const { return records_.at.get(); }
    [[nodiscard]] std::byte* page() const { return uar_page_.at.get(); }

    std::uint32_t uar = 0;
    std::uint32_t queue = 0;
    std::uint32_t number = 0;
    queue_pair* pair = nullptr;
    std::uint16_t produced = 0;
    std::uint32_t consumed = 0;

private:
    device& device_;
    sizes size_;
    page_memory uar_page_;
    page_memory ring_;
    page_memory entries_;
    page_memory records_;
    std::uint16_t latest_ = 0;
    std::uint16_t received_ = 0;
    std::uint32_t half_ = 0x800;
};

/// Two connected hands and a region of memory on each side.
struct bench {
    explicit bench(hand::sizes s = {}, queue_pair_path path = hand::usual())
        : soft({.slot = 3, .now = [this] { return now; }}),
          domain(soft.add_domain()),
          left(soft, domain, s),
          right(soft, domain, s),
          here(8192),
          there(8192) {
        soft.on_completion_event = [this](std::uint32_t) { ++events; };
        soft.on_completion_queue_error = [this](std::uint32_t) { ++lost_queues; };
        soft.on_queue_pair_event = [this](std::uint32_t, queue_pair_event what) {
            pair_events.push_back(what);
        };
        for (std::size_t i = 0; i < 8192; ++i) {
            there.at.get()[i] = static_cast<std::byte>(i * 7 + 1);
        }
        here_key = soft.keys().add({.domain = domain,
                                    .rights = local_write,
                                    .start = address_of(here.at.get()),
                                    .length = 8192,
                                    .memory = here.at.get()});
        there_key =
            soft.keys().add({.domain = domain,
                             .rights = local_write | remote_read | remote_write | remote_atomic,
                             .start = address_of(there.at.get()),
                             .length = 8192,
                             .memory = there.at.get(),
                             .bindable = true});
        left.connect(right.number, path);
        right.connect(left.number, path);
    }

    [[nodiscard]] words data(std::uint32_t offset, std::uint32_t bytes) const {
        const auto address = address_of(here.at.get()) + offset;
        return {bytes, here_key, high(address), low(address)};
    }
    [[nodiscard]] words remote(std::uint32_t offset) const {
        const auto address = address_of(there.at.get()) + offset;
        return {high(address), low(address), there_key, 0};
    }
    [[nodiscard]] words read(std::uint32_t bytes, std::uint8_t modes = 8) const {
        return join({left.control(0x10, 3, modes), remote(0), data(0, bytes)});
    }
    void settle() {
        while (soft.step()) {
        }
    }

    time_point now{};
    device soft;
    std::uint32_t domain;
    hand left;
    hand right;
    page_memory here;
    page_memory there;
    std::uint32_t here_key = 0;
    std::uint32_t there_key = 0;
    int events = 0;
    int lost_queues = 0;
    std::vector<queue_pair_event> pair_events;
};

}  // namespace softmlx5::testing
