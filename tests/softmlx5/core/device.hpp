#pragma once
// The device: objects by number, UAR pages, and the one lock over all of it.
//
// Two ways to see a doorbell. Polled, like a NIC that runs beside the processor: `poll` takes what
// lies in the UAR pages. Trapped: `store` is told of every store at its instruction, with memory as
// it was then, and is strict about order, BlueFlame copies and halves.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "softmlx5/core/queue_pair.hpp"

namespace softmlx5 {

enum class uar_kind : std::uint8_t { blue_flame, uncached };

/// One store to a UAR page, as trapped.
struct uar_store {
    std::uint32_t uar = 0;
    std::uint32_t offset = 0;
    std::uint64_t value = 0;  ///< as a big-endian number
    bool operator==(const uar_store&) const = default;
};

struct device_options {
    /// The first queue pair number's upper 8 bits: which of several processes this is.
    std::uint8_t slot = 0;
    std::function<time_point()> now;
};

class device {
public:
    static constexpr std::uint32_t page_bytes = 4096;

    explicit device(device_options options);

    // Who hears of what; called with the lock held, must not call back.
    std::function<void(std::uint32_t completion_queue)> on_completion_event;
    std::function<void(std::uint32_t completion_queue)> on_completion_queue_error;
    std::function<void(std::uint32_t queue_pair, queue_pair_event)> on_queue_pair_event;
    /// Packets for another slot; without it they are lost.
    std::function<void(packet&&)> on_departure;

    /// Everything below takes the lock itself; this is for more than one call.
    [[nodiscard]] std::unique_lock<std::recursive_mutex> hold() { return std::unique_lock(mutex_); }
    [[nodiscard]] violation_log& violations() noexcept { return log_; }
    [[nodiscard]] key_table& keys() noexcept { return keys_; }

    std::uint32_t add_domain();
    std::uint32_t add_uar(std::byte* page, uar_kind kind);
    void remove_uar(std::uint32_t uar);
    std::uint32_t add_completion_queue(const completion_queue_config& config);
    bool remove_completion_queue(std::uint32_t number);
    std::uint32_t add_queue_pair(const queue_pair_config& config);
    bool remove_queue_pair(std::uint32_t number);
    [[nodiscard]] queue_pair* find_queue_pair(std::uint32_t number);
    [[nodiscard]] completion_queue* find_completion_queue(std::uint32_t number);

    /// A store of 8 bytes, trapped.
    void store(std::uint32_t uar, std::uint32_t offset, std::uint64_t value);
    /// Ends the latest burst of stores, as a fence would.
    void fence();
    [[nodiscard]] std::vector<uar_store> take_trace();

    /// Takes what doorbells lie in the pages. Whether there were any.
    bool poll();
    /// Delivers packets and runs timers. Whether anything happened.
    bool step();
    void arrive(packet&& from_elsewhere);

private:
    struct half_state {
        std::optional<std::uint32_t> latest;  ///< the half that was written last
    };
    struct page {
        std::byte* memory = nullptr;
        uar_kind kind = uar_kind::blue_flame;
        std::map<std::uint32_t, half_state> registers;
    };
    /// A BlueFlame copy under way.
    struct burst {
        std::uint32_t uar = 0;
        std::uint32_t base = 0;
        std::uint32_t next = 0;
        std::uint32_t queue_pair = 0;
        std::uint16_t index = 0;
        std::uint16_t blocks = 0;
    };

    void doorbell(std::uint32_t uar, std::uint64_t control, bool exact);
    void arm(std::uint32_t uar, std::uint64_t value, bool exact);
    void poll_shared(std::uint32_t uar);
    void continue_burst(std::uint32_t uar, std::uint32_t offset, std::uint64_t value);
    void check_halves(std::uint32_t uar, page& on, std::uint32_t offset);

    std::recursive_mutex mutex_;
    device_options options_;
    violation_log log_;
    key_table keys_;
    surroundings around_;
    std::uint32_t next_domain_ = 1;
    std::uint32_t next_uar_ = 1;
    std::uint32_t next_completion_queue_ = 0x400;
    std::uint32_t next_queue_pair_ = 0x40;
    std::map<std::uint32_t, page> pages_;
    std::map<std::uint32_t, std::unique_ptr<completion_queue>> completion_queues_;
    std::map<std::uint32_t, std::unique_ptr<queue_pair>> queue_pairs_;
    std::deque<packet> arrivals_;
    std::optional<burst> burst_;
    std::vector<uar_store> trace_;
};

}  // namespace softmlx5
