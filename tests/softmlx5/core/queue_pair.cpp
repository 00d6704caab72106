#include "softmlx5/core/queue_pair.hpp"

#include <algorithm>
#include <string>

#include "softmlx5/core/bytes.hpp"

namespace softmlx5 {

std::string queue_pair::name() const { return "queue pair " + std::to_string(number_); }

bool queue_pair::change(queue_pair_state target) {
    switch (target) {
        case queue_pair_state::reset:
            requests_.clear();
            atomics_.clear();
            fetched_ = completed_ = received_ = 0;
            stalled_ = key_updated_ = false;
            resume_.reset();
            break;
        case queue_pair_state::init:
            if (state_ != queue_pair_state::reset && state_ != queue_pair_state::init) return false;
            break;
        case queue_pair_state::ready_to_receive:
            if (state_ != queue_pair_state::init) return false;
            expected_sequence_ = path.receive_sequence;
            break;
        case queue_pair_state::ready_to_send:
            if (state_ == queue_pair_state::ready_to_send) break;
            if (state_ != queue_pair_state::ready_to_receive) return false;
            if (load_record(config_.record + 4) != 0) {
                around_.log.report("record.stale", name() +
                                                       ": its send record is not zero before "
                                                       "anything can have been sent");
            }
            next_sequence_ = path.send_sequence;
            retries_ = path.retry_count;
            rnr_retries_ = path.rnr_retry_count;
            break;
        case queue_pair_state::error:
            if (state_ == queue_pair_state::reset) return false;
            to_error();
            return true;
    }
    state_ = target;
    return true;
}

void queue_pair::to_error() {
    state_ = queue_pair_state::error;
    flush();
    flush_receives();
}

void queue_pair::receive(packet&& arrived) {
    if (arrived.is_response()) {
        answer(arrived);
    } else {
        respond(arrived);
    }
}

void queue_pair::tick() {
    if (state_ == queue_pair_state::error) {
        flush_receives();
        return;
    }
    if (state_ != queue_pair_state::ready_to_send || requests_.empty()) return;
    if (resume_ && around_.now() >= *resume_) {
        resume_.reset();
        pump();
    }
    if (path.timeout_exponent == 0) return;
    const auto limit = std::chrono::nanoseconds(std::int64_t{4096} << path.timeout_exponent);
    for (auto& oldest : requests_) {
        if (oldest.at != stage::in_flight) continue;
        // The timer restarts with every answer.
        if (around_.now() - std::max(oldest.sent, latest_answer_) < limit) return;
        if (retries_ == 0) {
            fail(oldest, syndrome::retry_exceeded, 0x81);
            retire();
            return;
        }
        --retries_;
        for (auto& one : requests_) {
            if (one.at == stage::in_flight) one.at = stage::waiting;
        }
        pump();
        return;
    }
}

}  // namespace softmlx5
