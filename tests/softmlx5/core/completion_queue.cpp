#include "softmlx5/core/completion_queue.hpp"

#include <algorithm>
#include <string>

#include "softmlx5/core/bytes.hpp"

namespace softmlx5 {

namespace {

constexpr std::uint32_t counter_mask = 0xffffff;
constexpr std::uint32_t solicited_only = 1U << 24;
constexpr std::uint32_t reserved_request_bits = 0xce000000;

bool is_error(entry_code code) noexcept {
    return code == entry_code::request_error || code == entry_code::response_error;
}

}  // namespace

void completion_queue::write(const completion_entry& entry, std::uint64_t timestamp) {
    if (overrun_) return;
    const std::uint32_t size = 1U << config_.log_entries;
    const auto consumer = load_record(config_.record) & counter_mask;
    if (!config_.ignore_overrun && ((producer_ - consumer) & counter_mask) >= size) {
        overrun_ = true;
        log_.report("cq.overrun", "completion queue " + std::to_string(number_) + " of " +
                                      std::to_string(size) + " is full: consumer index " +
                                      std::to_string(consumer) + " was published last");
        if (on_overrun) on_overrun();
        return;
    }
    auto* slot = config_.ring + std::size_t{producer_ & (size - 1)} * config_.entry_bytes;
    auto* tail = slot + (config_.entry_bytes - 64);
    std::fill(tail, tail + 63, std::byte{0});
    std::uint8_t format = 0;
    if (!entry.scattered.empty()) {
        // Up to 32 bytes at the start of the 64, or up to 64 in the half before them.
        format = config_.entry_bytes == 128 ? 8 : 4;
        std::copy(entry.scattered.begin(), entry.scattered.end(), format == 8 ? slot : tail);
    }
    store_be(tail + 32, entry.user_index);
    store_be(tail + 36, entry.immediate);
    store_be(tail + 40, entry.source);
    store_be(tail + 44, entry.bytes);
    if (is_error(entry.code)) {
        tail[54] = std::byte{entry.vendor};
        tail[55] = static_cast<std::byte>(entry.why);
    } else {
        store_be(tail + 48, timestamp);
    }
    store_be(tail + 56, std::uint32_t{entry.operation} << 24 | entry.queue_pair);
    store_be(tail + 60, entry.counter);
    const auto owner = producer_ >> config_.log_entries & 1;
    const auto last = static_cast<std::uint8_t>(static_cast<unsigned>(entry.code) << 4 | format |
                                                (entry.solicited ? 2U : 0U) | owner);
    std::atomic_ref(*reinterpret_cast<std::uint8_t*>(tail + 63))
        .store(last, std::memory_order_release);
    ++producer_;
    if (entry.solicited || is_error(entry.code)) solicited_until_ = producer_ & counter_mask;
    fire_if_due();
}

void completion_queue::arm(std::uint32_t request, bool exact) {
    const auto record = load_record(config_.record + 4);
    latest_request_ = request;
    if (exact && record != request) {
        log_.report("cq.arm_record", "completion queue " + std::to_string(number_) +
                                         ": the doorbell asks otherwise than its record");
    }
    if ((request & reserved_request_bits) != 0) {
        log_.report("cq.arm_reserved", "completion queue " + std::to_string(number_) +
                                           ": reserved bits of a request for an event");
    }
    // A request of an earlier sequence number was answered already.
    if ((request >> 28 & 3) != sequence_) return;
    armed_ = true;
    only_solicited_ = (request & solicited_only) != 0;
    armed_consumer_ = request & counter_mask;
    fire_if_due();
}

void completion_queue::arm_from_record() {
    // Before the first request the record is zero, and so is a first request: one event too many is
    // better than one too few.
    const auto record = load_record(config_.record + 4);
    if (record != latest_request_) arm(record, false);
}

void completion_queue::fire_if_due() {
    const auto is_after = [](std::uint32_t a, std::uint32_t b) {
        const auto ahead = (a - b) & counter_mask;
        return ahead != 0 && ahead <= counter_mask / 2;
    };
    if (!armed_) return;
    // An entry raises an event if it is neither taken nor one that an event was raised for (the
    // context's last notified index): a program that arms before it polls, as perftest does, is
    // told once of each, and what came since the latest event is not lost.
    const auto until = only_solicited_ ? solicited_until_ : producer_ & counter_mask;
    if (!is_after(until, armed_consumer_) || !is_after(until, notified_until_)) return;
    armed_ = false;
    notified_until_ = producer_ & counter_mask;
    sequence_ = (sequence_ + 1) & 3;
    if (on_event) on_event();
}

}  // namespace softmlx5
