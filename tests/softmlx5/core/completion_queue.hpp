#pragma once
// A completion queue: a ring of entries that the device fills, and its doorbell record.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "softmlx5/core/violations.hpp"

namespace softmlx5 {

/// The codes in an entry's last byte.
enum class entry_code : std::uint8_t {
    request = 0,
    write_immediate = 1,
    send = 2,
    send_immediate = 3,
    send_invalidate = 4,
    request_error = 13,
    response_error = 14,
    invalid = 15,
};

/// Why a request failed.
enum class syndrome : std::uint8_t {
    none = 0,
    local_length = 0x01,
    local_operation = 0x02,
    local_protection = 0x04,
    flushed = 0x05,
    window_bind = 0x06,
    bad_response = 0x10,
    local_access = 0x11,
    remote_invalid_request = 0x12,
    remote_access = 0x13,
    remote_operation = 0x14,
    retry_exceeded = 0x15,
    rnr_exceeded = 0x16,
    aborted = 0x22,
};

struct completion_entry {
    entry_code code = entry_code::request;
    std::uint32_t user_index = 0;
    std::uint32_t immediate = 0;
    std::uint32_t bytes = 0;
    std::uint8_t operation = 0;  ///< of the request, as in its control segment
    std::uint32_t queue_pair = 0;
    std::uint32_t source = 0;  ///< responder: the sender's queue pair
    std::uint16_t counter = 0;
    bool solicited = false;
    syndrome why = syndrome::none;
    std::uint8_t vendor = 0;
    std::span<const std::byte> scattered;  ///< at most 32 bytes (64 in entries of 128) go in here
};

struct completion_queue_config {
    std::byte* ring = nullptr;
    std::byte* record = nullptr;  ///< word 0 the consumer index, word 1 the request for an event
    std::uint8_t log_entries = 0;
    std::uint16_t entry_bytes = 64;
    std::uint32_t uar = 0;
    bool ignore_overrun = false;
};

class completion_queue {
public:
    completion_queue(std::uint32_t number, const completion_queue_config& config,
                     violation_log& log)
        : number_(number), config_(config), log_(log) {}

    /// Called for each completion event and once if the queue overruns.
    std::function<void()> on_event;
    std::function<void()> on_overrun;

    [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
    [[nodiscard]] const completion_queue_config& config() const noexcept { return config_; }
    [[nodiscard]] std::uint32_t producer() const noexcept { return producer_; }
    void write(const completion_entry& entry, std::uint64_t timestamp);
    /// A doorbell that asks for an event. It carries what the record says; `exact`: seen at its
    /// instruction, so that the record cannot have moved on.
    void arm(std::uint32_t request, bool exact);
    /// Takes the request from the record, since its doorbell may have been overwritten by another
    /// queue's on the same register before a poll saw it.
    void arm_from_record();

private:
    void fire_if_due();

    std::uint32_t number_;
    completion_queue_config config_;
    violation_log& log_;
    std::uint32_t producer_ = 0;
    bool overrun_ = false;
    bool armed_ = false;
    bool only_solicited_ = false;
    std::uint32_t armed_consumer_ = 0;
    std::optional<std::uint32_t> latest_request_;
    std::uint32_t notified_until_ = 0;   ///< entries before this one have had an event
    std::uint32_t sequence_ = 0;         ///< of the event to come, two bits
    std::uint32_t solicited_until_ = 0;  ///< the latest entry that a solicited request wants, + 1
};

}  // namespace softmlx5
