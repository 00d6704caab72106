// The send side of a queue pair.

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "softmlx5/core/bytes.hpp"
#include "softmlx5/core/queue_pair.hpp"

namespace softmlx5 {

namespace {

constexpr std::uint32_t sequence_mask = 0xffffff;
constexpr std::uint64_t largest_message = std::uint64_t{1} << 30;

/// The encodings of the RNR NAK timer (InfiniBand specification, table 45), in microseconds.
constexpr std::array<std::uint32_t, 32> rnr_timers{
    655360, 10,    20,    30,    40,    60,     80,     120,    160,    240,   320,
    480,    640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240, 15360,
    20480,  30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520};

packet_kind kind_of(opcode code) noexcept {
    switch (code) {
        case opcode::write:
        case opcode::write_immediate:
            return packet_kind::write;
        case opcode::read:
            return packet_kind::read;
        case opcode::compare_swap:
            return packet_kind::compare_swap;
        case opcode::fetch_add:
            return packet_kind::fetch_add;
        case opcode::send_invalidate:
            return packet_kind::send_invalidate;
        default:
            return packet_kind::send;
    }
}

}  // namespace

std::uint32_t queue_pair::packets_of(std::uint64_t bytes) const noexcept {
    const auto mtu = std::max<std::uint64_t>(path.path_mtu, 256);
    return static_cast<std::uint32_t>(std::max<std::uint64_t>(1, (bytes + mtu - 1) / mtu));
}

std::uint32_t queue_pair::reads_in_flight() const noexcept {
    std::uint32_t count = 0;
    for (const auto& one : requests_) {
        count += one.at == stage::in_flight && one.work.reads() ? 1 : 0;
    }
    return count;
}

void queue_pair::ring(std::uint64_t control, bool exact) {
    if (state_ != queue_pair_state::ready_to_send && state_ != queue_pair_state::error) {
        around_.log.report("doorbell.state", name() + ": a doorbell before it is ready to send");
        return;
    }
    const auto record = load_record(config_.record + 4);
    if (record >> 16 != 0) {
        around_.log.report("record.reserved", name() + ": more than 16 bits in its send record");
    }
    const auto producer = static_cast<std::uint16_t>(record);
    const auto index = static_cast<std::uint16_t>(control >> 40);
    const auto distance = static_cast<std::uint16_t>(producer - index);
    if (distance == 0 || distance > config_.sends.blocks) {
        around_.log.report("doorbell.record", name() + ": a doorbell for block " +
                                                  std::to_string(index) + " with its record at " +
                                                  std::to_string(producer));
    } else if (exact && distance != ((control & 0x3f) + 3) / 4) {
        around_.log.report("doorbell.last", name() + ": block " + std::to_string(index) +
                                                " is not where the last request starts");
    } else {
        const auto ahead = static_cast<std::uint16_t>(index - fetched_);
        const auto waiting = static_cast<std::uint16_t>(producer - fetched_);
        if (ahead < waiting && load64(config_.sends.at(index)) != control) {
            around_.log.report("doorbell.control", name() + ": not what block " +
                                                       std::to_string(index) + " starts with");
        }
    }
    fetch(producer);
    pump();
}

void queue_pair::ring_from_record() {
    if (state_ != queue_pair_state::ready_to_send && state_ != queue_pair_state::error) return;
    const auto producer = static_cast<std::uint16_t>(load_record(config_.record + 4));
    if (producer == fetched_) return;
    fetch(producer);
    pump();
}

void queue_pair::fetch(std::uint16_t producer) {
    if (static_cast<std::uint16_t>(producer - completed_) > config_.sends.blocks) {
        around_.log.report("sq.overflow", name() + ": blocks up to " + std::to_string(producer) +
                                              " of " + std::to_string(config_.sends.blocks) +
                                              " with " + std::to_string(completed_) +
                                              " not completed");
        to_error();
        return;
    }
    while (fetched_ != producer) {
        const auto left = static_cast<std::uint16_t>(producer - fetched_);
        auto work = decode_request(config_.sends, fetched_, number_, around_.log);
        if (work && work->blocks > left) {
            around_.log.report("wqe.beyond",
                               name() + ": the request at block " + std::to_string(fetched_) +
                                   " takes " + std::to_string(work->blocks) + " blocks, of which " +
                                   std::to_string(left) + " were announced");
            work.reset();
        }
        request one;
        if (work) {
            if (key_updated_ && work->wait == fence::none) {
                around_.log.report("wqe.small_fence",
                                   name() + ": no fence in the request after a key update");
            }
            key_updated_ = work->code == opcode::key_update;
            one.work = std::move(*work);
        } else {
            one.work.index = fetched_;
            one.work.blocks = left;
            one.at = stage::done;
            one.why = syndrome::local_operation;
        }
        fetched_ = static_cast<std::uint16_t>(fetched_ + one.work.blocks);
        requests_.push_back(std::move(one));
    }
    if (state_ == queue_pair_state::error) flush();
}

void queue_pair::pump() {
    if (state_ != queue_pair_state::ready_to_send) return;
    bool reading = false;
    for (auto& one : requests_) {
        if (one.at == stage::waiting) {
            if (stalled_ || resume_) break;
            if (one.work.wait == fence::all_reads && reading) break;
            if (one.work.reads() && path.initiator_depth > 0 &&
                reads_in_flight() >= path.initiator_depth) {
                break;
            }
            launch(one);
        }
        if (one.at == stage::done && one.why != syndrome::none) stalled_ = true;
        reading |= one.work.reads() && one.at == stage::in_flight;
    }
    retire();
}

void queue_pair::launch(request& one) {
    if (const auto spoil = std::exchange(spoil_, std::nullopt)) {
        one.missing_bytes = spoil->missing_bytes;
        if (spoil->why != syndrome::none) {
            fail(one, spoil->why, spoil->vendor);
            return;
        }
    }
    if (one.work.code == opcode::nop) {
        one.at = stage::done;
        return;
    }
    if (one.work.code == opcode::key_update) {
        change_key(one);
        return;
    }
    const auto bytes = one.work.length();
    if (bytes > largest_message) {
        fail(one, syndrome::local_length, 0x68);
        return;
    }
    if (one.work.reads() && path.initiator_depth == 0) {
        around_.log.report("qp.read_depth", name() + ": a READ or an atomic with a depth of 0");
        fail(one, syndrome::local_operation, 0x69);
        return;
    }
    if (!one.numbered) {
        one.numbered = true;
        one.bytes = static_cast<std::uint32_t>(bytes);
        one.sequence = next_sequence_;
        next_sequence_ = (next_sequence_ + packets_of(bytes)) & sequence_mask;
    }
    transmit(one);
}

void queue_pair::transmit(request& one) {
    packet out;
    const auto& work = one.work;
    if (work.reads()) {
        for (const auto& p : work.pieces) {
            const key_use use{.domain = config_.domain, .rights = local_write};
            if (around_.keys.resolve(p.key, p.address, p.length, use) == nullptr) {
                fail(one, syndrome::local_protection, 0x53);
                return;
            }
        }
    } else if (!gather(one, out.payload)) {
        fail(one, syndrome::local_protection, 0x52);
        return;
    }
    one.at = stage::in_flight;
    one.sent = around_.now();
    out.kind = kind_of(work.code);
    out.has_immediate = work.code == opcode::send_immediate || work.code == opcode::write_immediate;
    out.solicited = work.solicited;
    out.source = number_;
    out.destination = path.remote_queue_pair;
    out.sequence = one.sequence;
    out.outstanding = reads_in_flight();
    out.immediate = work.immediate;
    out.key = work.remote_key;
    out.address = work.remote_address;
    out.length = one.bytes;
    out.swap_or_add = work.swap_or_add;
    out.compare = work.compare;
    around_.transmit(std::move(out));
}

bool queue_pair::gather(request& one, std::vector<std::byte>& into) {
    if (one.work.inlined) {
        into = one.work.inline_bytes;
        return true;
    }
    into.reserve(one.bytes);
    for (const auto& p : one.work.pieces) {
        const auto* from =
            around_.keys.resolve(p.key, p.address, p.length, {.domain = config_.domain});
        if (from == nullptr) return false;
        into.insert(into.end(), from, from + p.length);
    }
    return true;
}

bool queue_pair::scatter(request& one, const std::vector<std::byte>& from) {
    const auto* completions = around_.completions(config_.send_queue);
    const std::size_t fits =
        completions != nullptr && completions->config().entry_bytes == 128 ? 64 : 32;
    if (config_.scatter_responses && one.work.signalled && from.size() <= fits) {
        one.scattered = from;
        return true;
    }
    std::size_t done = 0;
    for (const auto& p : one.work.pieces) {
        auto* to = around_.keys.resolve(p.key, p.address, p.length,
                                        {.domain = config_.domain, .rights = local_write});
        if (to == nullptr) return false;
        std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(done), p.length, to);
        done += p.length;
    }
    return true;
}

void queue_pair::change_key(request& one) {
    const auto& change = one.work.change;
    auto* window = around_.keys.at(one.work.immediate);
    one.at = stage::done;
    if (window == nullptr || !window->window || window->domain != config_.domain) {
        fail(one, syndrome::window_bind, 0x5a);
        return;
    }
    if (change.invalidate) {
        if (window->free || window->key != one.work.immediate ||
            window->bound_queue_pair != number_) {
            fail(one, syndrome::window_bind, 0x5b);
            return;
        }
        window->free = true;
        return;
    }
    const auto* region = around_.keys.at(change.source.key);
    const std::uint8_t writes = remote_write | remote_atomic;
    const auto* memory = around_.keys.resolve(change.source.key, change.source.address,
                                              change.source.length, {.domain = config_.domain});
    const bool allowed = region != nullptr && !region->window && region->bindable &&
                         memory != nullptr && change.length > 0 &&
                         ((change.rights & writes) == 0 || (region->rights & local_write) != 0);
    if (!window->free || change.queue_pair != number_ || !allowed) {
        fail(one, syndrome::window_bind, 0x5c);
        return;
    }
    window->free = false;
    window->key = (window->key & ~0xffU) | change.variant;
    window->bound_queue_pair = number_;
    window->rights = change.rights;
    window->start = change.start;
    window->length = change.length;
    window->parent = region->key;
    window->memory = const_cast<std::byte*>(memory);
}

void queue_pair::fail(request& one, syndrome why, std::uint8_t vendor) {
    one.at = stage::done;
    one.why = why;
    one.vendor = vendor;
    stalled_ = true;
}

void queue_pair::answer(const packet& arrived) {
    if (state_ != queue_pair_state::ready_to_send || arrived.source != path.remote_queue_pair)
        return;
    const auto found = std::find_if(requests_.begin(), requests_.end(), [&](const request& one) {
        return one.at == stage::in_flight && one.sequence == arrived.sequence;
    });
    if (found == requests_.end()) return;  // an answer to what was repeated meanwhile
    auto& one = *found;
    retries_ = path.retry_count;
    latest_answer_ = around_.now();
    switch (arrived.kind) {
        case packet_kind::receiver_not_ready:
            if (path.rnr_retry_count != 7) {
                if (rnr_retries_ == 0) {
                    fail(one, syndrome::rnr_exceeded, 0x82);
                    break;
                }
                --rnr_retries_;
            }
            resume_ = around_.now() + std::chrono::microseconds(rnr_timers.at(arrived.code & 31));
            for (auto it = found; it != requests_.end(); ++it) {
                if (it->at == stage::in_flight) it->at = stage::waiting;
            }
            return;
        case packet_kind::refusal:
            fail(one, static_cast<syndrome>(arrived.code), 0x88);
            break;
        case packet_kind::acknowledge:
            if (one.work.reads()) return;
            one.at = stage::done;
            rnr_retries_ = path.rnr_retry_count;
            break;
        default:
            one.at = stage::done;
            if (arrived.payload.size() != one.bytes) {
                fail(one, syndrome::bad_response, 0x8a);
            } else if (!scatter(one, arrived.payload)) {
                fail(one, syndrome::local_protection, 0x53);
            }
            break;
    }
    pump();
}

void queue_pair::retire() {
    while (!requests_.empty() && requests_.front().at == stage::done) {
        const auto one = std::move(requests_.front());
        requests_.pop_front();
        completed_ = static_cast<std::uint16_t>(one.work.index + one.work.blocks);
        if (one.why != syndrome::none || one.work.signalled) complete(one);
        if (one.why != syndrome::none) {
            to_error();
            return;
        }
    }
}

void queue_pair::complete(const request& one) {
    auto* completions = around_.completions(config_.send_queue);
    if (completions == nullptr) return;
    completion_entry entry;
    entry.code = one.why == syndrome::none ? entry_code::request : entry_code::request_error;
    entry.user_index = config_.user_index;
    entry.operation = static_cast<std::uint8_t>(one.work.code);
    entry.queue_pair = number_;
    entry.counter = one.work.index;
    entry.why = one.why;
    entry.vendor = one.vendor;
    if (one.why == syndrome::none) {
        entry.bytes = one.work.reads() ? one.bytes - one.missing_bytes : 0;
        entry.scattered = one.scattered;
    }
    completions->write(entry, static_cast<std::uint64_t>(around_.now().count()));
}

/// Everything fetched comes back flushed, signalled or not, since completion mode 0 keeps silent
/// about successes only.
void queue_pair::flush() {
    stalled_ = false;
    resume_.reset();
    while (!requests_.empty()) {
        auto one = std::move(requests_.front());
        requests_.pop_front();
        completed_ = static_cast<std::uint16_t>(one.work.index + one.work.blocks);
        one.why = syndrome::flushed;
        one.vendor = 0xf9;
        complete(one);
    }
}

}  // namespace softmlx5
