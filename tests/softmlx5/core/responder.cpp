// The receive side of a queue pair.

#include <algorithm>
#include <string>

#include "softmlx5/core/bytes.hpp"
#include "softmlx5/core/queue_pair.hpp"

namespace softmlx5 {

namespace {

constexpr std::uint32_t sequence_mask = 0xffffff;

/// The rights of the queue pair and of the key that an operation needs.
std::uint8_t rights_of(packet_kind kind) noexcept {
    switch (kind) {
        case packet_kind::write:
            return remote_write;
        case packet_kind::read:
            return remote_read;
        case packet_kind::compare_swap:
        case packet_kind::fetch_add:
            return remote_atomic;
        default:
            return 0;
    }
}

}  // namespace

void queue_pair::respond(packet& arrived) {
    if (state_ != queue_pair_state::ready_to_receive && state_ != queue_pair_state::ready_to_send) {
        return;
    }
    if (arrived.source != path.remote_queue_pair) return;
    packet answer;
    answer.kind = packet_kind::acknowledge;
    answer.source = number_;
    answer.destination = arrived.source;
    answer.sequence = arrived.sequence;

    const auto ahead = (arrived.sequence - expected_sequence_) & sequence_mask;
    const bool repeated = ahead > sequence_mask / 2;
    if (ahead != 0 && !repeated) return;  // one before it is missing: the sender's timer sees to it
    if (repeated && arrived.kind != packet_kind::read) {
        const auto known = std::find_if(atomics_.begin(), atomics_.end(), [&](const auto& one) {
            return one.first == arrived.sequence;
        });
        if (known != atomics_.end()) {
            answer.kind = packet_kind::atomic_response;
            answer.payload.resize(8);
            std::memcpy(answer.payload.data(), &known->second, 8);
        }
        around_.transmit(std::move(answer));
        return;
    }
    const bool consumes = arrived.kind == packet_kind::send ||
                          arrived.kind == packet_kind::send_invalidate || arrived.has_immediate;
    if (consumes && !receive_posted()) {
        answer.kind = packet_kind::receiver_not_ready;
        answer.code = path.min_rnr_timer;
        around_.transmit(std::move(answer));
        return;
    }
    if (const auto why = execute(arrived, answer); why != syndrome::none) {
        refuse(arrived, why);
        return;
    }
    if (!repeated) {
        expected_sequence_ = (expected_sequence_ + packets_of(arrived.length)) & sequence_mask;
    }
    around_.transmit(std::move(answer));
}

syndrome queue_pair::execute(packet& arrived, packet& answer) {
    const auto needed = rights_of(arrived.kind);
    if (needed != 0) {
        const bool atomic = needed == remote_atomic;
        const bool reads = needed != remote_write;
        if (reads && arrived.outstanding > path.responder_depth) {
            around_.log.report("qp.responder_depth",
                               name() + ": the peer has " + std::to_string(arrived.outstanding) +
                                   " reads out where " + std::to_string(path.responder_depth) +
                                   " are answered at once");
            return syndrome::remote_invalid_request;
        }
        if (atomic && (arrived.address & 7) != 0) return syndrome::remote_invalid_request;
        if ((path.remote_rights & needed) == 0) return syndrome::remote_access;
        auto* memory = around_.keys.resolve(
            arrived.key, arrived.address, arrived.length,
            {.domain = config_.domain, .queue_pair = number_, .rights = needed, .remote = true});
        if (memory == nullptr) return syndrome::remote_access;
        if (arrived.kind == packet_kind::write) {
            std::copy(arrived.payload.begin(), arrived.payload.end(), memory);
        } else if (arrived.kind == packet_kind::read) {
            answer.kind = packet_kind::read_response;
            answer.payload.assign(memory, memory + arrived.length);
        } else {
            std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(memory));
            auto before = arrived.compare;
            if (arrived.kind == packet_kind::fetch_add) {
                before = word.fetch_add(arrived.swap_or_add);
            } else {
                word.compare_exchange_strong(before, arrived.swap_or_add);
            }
            answer.kind = packet_kind::atomic_response;
            answer.payload.resize(8);
            std::memcpy(answer.payload.data(), &before, 8);
            atomics_.emplace_back(arrived.sequence, before);
            if (atomics_.size() > 128) atomics_.pop_front();
        }
        if (!arrived.has_immediate) return syndrome::none;
    }
    return receive_message(arrived);
}

bool queue_pair::receive_posted() {
    const auto record = load_record(config_.record);
    if (record >> 16 != 0) {
        around_.log.report("record.reserved", name() + ": more than 16 bits in its receive record");
    }
    const auto posted = static_cast<std::uint16_t>(record - received_);
    if (posted > config_.receive_count) {
        around_.log.report("rq.overflow", name() + ": " + std::to_string(posted) +
                                              " receives in a queue of " +
                                              std::to_string(config_.receive_count));
        return false;
    }
    return posted > 0;
}

queue_pair::receive_slot queue_pair::take_receive() {
    receive_slot slot{.index = received_++, .pieces = {}};
    const auto* at = config_.receives +
                     std::size_t{slot.index & (config_.receive_count - 1)} * config_.receive_stride;
    for (std::uint32_t offset = 0; offset < config_.receive_stride; offset += 16) {
        const piece p{.address = load64(at + offset + 8),
                      .length = load32(at + offset),
                      .key = load32(at + offset + 4)};
        if (p.key == key_table::terminator) break;
        if (p.length == 0) {
            around_.log.report("rq.zero_length",
                               name() + ": a receive's segment of length 0 stands for 2 GiB");
            break;
        }
        slot.pieces.push_back(p);
    }
    return slot;
}

syndrome queue_pair::receive_message(packet& arrived) {
    auto* completions = around_.completions(config_.receive_queue);
    if (completions == nullptr) return syndrome::remote_operation;
    const auto slot = take_receive();
    completion_entry entry;
    entry.user_index = config_.user_index;
    entry.queue_pair = number_;
    entry.source = arrived.source;
    entry.counter = slot.index;
    entry.immediate = arrived.immediate;
    entry.solicited = arrived.solicited;
    entry.bytes = static_cast<std::uint32_t>(arrived.length);
    const bool writes = arrived.kind == packet_kind::write;
    const auto room = [&] {
        std::uint64_t sum = 0;
        for (const auto& p : slot.pieces) sum += p.length;
        return sum;
    }();
    const std::size_t fits = completions->config().entry_bytes == 128 ? 64 : 32;
    std::vector<std::byte> scattered;
    auto refusal = syndrome::none;
    if (!writes && arrived.payload.size() > room) {
        entry.why = syndrome::local_length;
        refusal = syndrome::remote_invalid_request;
    } else if (!writes && config_.scatter_receives && !arrived.payload.empty() &&
               arrived.payload.size() <= fits) {
        scattered = arrived.payload;
        entry.scattered = scattered;
    } else if (!writes) {
        std::size_t done = 0;
        for (const auto& p : slot.pieces) {
            auto* to = around_.keys.resolve(p.key, p.address, p.length,
                                            {.domain = config_.domain, .rights = local_write});
            if (to == nullptr) {
                entry.why = syndrome::local_protection;
                refusal = syndrome::remote_operation;
                break;
            }
            const auto count = std::min<std::size_t>(p.length, arrived.payload.size() - done);
            std::copy_n(arrived.payload.begin() + static_cast<std::ptrdiff_t>(done), count, to);
            done += count;
        }
    }
    if (refusal == syndrome::none && arrived.kind == packet_kind::send_invalidate) {
        auto* window = around_.keys.at(arrived.immediate);
        if (window != nullptr && window->window && !window->free &&
            window->key == arrived.immediate && window->bound_queue_pair == number_) {
            window->free = true;
        } else {
            entry.why = syndrome::local_operation;
            refusal = syndrome::remote_access;
        }
    }
    if (entry.why != syndrome::none) {
        entry.code = entry_code::response_error;
        entry.vendor = 0x51;
    } else if (writes) {
        entry.code = entry_code::write_immediate;
    } else if (arrived.kind == packet_kind::send_invalidate) {
        entry.code = entry_code::send_invalidate;
    } else {
        entry.code = arrived.has_immediate ? entry_code::send_immediate : entry_code::send;
    }
    completions->write(entry, static_cast<std::uint64_t>(around_.now().count()));
    return refusal;
}

void queue_pair::refuse(const packet& arrived, syndrome why) {
    packet answer;
    answer.kind = packet_kind::refusal;
    answer.code = static_cast<std::uint8_t>(why);
    answer.source = number_;
    answer.destination = arrived.source;
    answer.sequence = arrived.sequence;
    around_.transmit(std::move(answer));
    around_.on_event(number_, why == syndrome::remote_access ? queue_pair_event::access_error
                                                             : queue_pair_event::request_error);
    to_error();
}

void queue_pair::flush_receives() {
    auto* completions = around_.completions(config_.receive_queue);
    if (completions == nullptr || config_.receive_count == 0) return;
    while (receive_posted()) {
        completion_entry entry;
        entry.code = entry_code::response_error;
        entry.why = syndrome::flushed;
        entry.vendor = 0xf9;
        entry.user_index = config_.user_index;
        entry.queue_pair = number_;
        entry.counter = received_++;
        completions->write(entry, static_cast<std::uint64_t>(around_.now().count()));
    }
}

}  // namespace softmlx5
