#pragma once
// A Reliable Connection queue pair: a requester that runs its send queue, and a responder.

#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "softmlx5/core/completion_queue.hpp"
#include "softmlx5/core/memory_key.hpp"
#include "softmlx5/core/packet.hpp"
#include "softmlx5/core/work_request.hpp"

namespace softmlx5 {

using time_point = std::chrono::nanoseconds;  ///< since some start

enum class queue_pair_state : std::uint8_t { reset, init, ready_to_receive, ready_to_send, error };

struct queue_pair_config {
    std::uint32_t domain = 0;
    std::uint32_t send_queue = 0;  ///< completion queue numbers
    std::uint32_t receive_queue = 0;
    std::uint32_t uar = 0;
    std::uint32_t user_index = 0;
    std::byte* record = nullptr;  ///< word 0 receives posted, word 1 blocks sent
    send_ring sends;
    std::byte* receives = nullptr;
    std::uint32_t receive_count = 0;
    std::uint32_t receive_stride = 0;
    bool scatter_responses = false;  ///< answers to reads of up to 32 bytes go in the completion
    bool scatter_receives = false;
};

/// What the state changes set, all of it.
struct queue_pair_path {
    std::uint8_t port = 0;
    std::uint16_t key_index = 0;
    std::uint8_t remote_rights = 0;
    std::uint32_t path_mtu = 0;
    std::uint32_t remote_queue_pair = 0;
    std::uint32_t receive_sequence = 0;
    std::uint32_t responder_depth = 0;
    std::uint8_t min_rnr_timer = 0;
    std::uint32_t send_sequence = 0;
    std::uint32_t initiator_depth = 0;
    std::uint8_t retry_count = 0;
    std::uint8_t rnr_retry_count = 0;
    std::uint8_t timeout_exponent = 0;
};

enum class queue_pair_event : std::uint8_t {
    access_error,
    request_error,
    communication_established
};

/// How a device may let down a request in ways that no peer brings about.
struct spoiled {
    syndrome why = syndrome::none;
    std::uint8_t vendor = 0;
    std::uint32_t missing_bytes = 0;  ///< its completion says that many fewer
};

/// What a queue pair needs of the device around it.
struct surroundings {
    violation_log& log;
    key_table& keys;
    std::function<time_point()> now;
    std::function<void(packet&&)> transmit;
    std::function<completion_queue*(std::uint32_t)> completions;
    std::function<void(std::uint32_t queue_pair, queue_pair_event)> on_event;
};

class queue_pair {
public:
    queue_pair(std::uint32_t number, const queue_pair_config& config, surroundings& around)
        : number_(number), config_(config), around_(around) {}

    [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
    [[nodiscard]] const queue_pair_config& config() const noexcept { return config_; }
    [[nodiscard]] queue_pair_state state() const noexcept { return state_; }
    queue_pair_path path;  ///< set before the change of state that needs it

    /// False where that state cannot follow.
    bool change(queue_pair_state target);
    /// A doorbell for this queue pair: `control` is the first 8 bytes that were stored. `exact`:
    /// seen at its instruction, so that its record must be what belongs to it.
    void ring(std::uint64_t control, bool exact);
    /// A doorbell that another may have overwritten before a poll saw it.
    void ring_from_record();
    void receive(packet&& arrived);
    /// The next request that starts ends as `f` says, whatever it asks for.
    void spoil_next(const spoiled& f) { spoil_ = f; }
    /// Timers, and receives posted in the error state.
    void tick();

private:
    enum class stage : std::uint8_t { waiting, in_flight, done };
    struct request {
        work_request work;
        stage at = stage::waiting;
        syndrome why = syndrome::none;
        std::uint8_t vendor = 0;
        bool numbered = false;
        std::uint32_t sequence = 0;
        std::uint32_t bytes = 0;
        std::uint32_t missing_bytes = 0;
        std::vector<std::byte> scattered;
        time_point sent{};
    };

    // Requester.
    void fetch(std::uint16_t producer);
    void pump();
    void launch(request& one);
    bool gather(request& one, std::vector<std::byte>& into);
    bool scatter(request& one, const std::vector<std::byte>& from);
    void change_key(request& one);
    void transmit(request& one);
    void answer(const packet& arrived);
    void fail(request& one, syndrome why, std::uint8_t vendor);
    void retire();
    void complete(const request& one);
    void flush();
    [[nodiscard]] std::uint32_t packets_of(std::uint64_t bytes) const noexcept;
    [[nodiscard]] std::uint32_t reads_in_flight() const noexcept;
    [[nodiscard]] std::string name() const;

    // Responder.
    struct receive_slot {
        std::uint16_t index = 0;
        std::vector<piece> pieces;
    };
    void respond(packet& arrived);
    syndrome execute(packet& arrived, packet& answer);
    syndrome receive_message(packet& arrived);
    [[nodiscard]] bool receive_posted();
    receive_slot take_receive();
    void flush_receives();
    void refuse(const packet& arrived, syndrome why);
    void to_error();

    std::uint32_t number_;
    queue_pair_config config_;
    surroundings& around_;
    queue_pair_state state_ = queue_pair_state::reset;

    std::deque<request> requests_;  ///< fetched and not completed
    std::uint16_t fetched_ = 0;
    std::uint16_t completed_ = 0;  ///< the first block of the oldest not completed
    std::uint32_t next_sequence_ = 0;
    bool stalled_ = false;      ///< a request failed: nothing after it starts
    bool key_updated_ = false;  ///< the latest fetched was a key update
    time_point latest_answer_{};
    unsigned retries_ = 0;
    unsigned rnr_retries_ = 0;
    std::optional<time_point> resume_;
    std::optional<spoiled> spoil_;

    std::uint16_t received_ = 0;
    std::uint32_t expected_sequence_ = 0;
    std::deque<std::pair<std::uint32_t, std::uint64_t>> atomics_;  ///< answered, for repetitions
};

}  // namespace softmlx5
