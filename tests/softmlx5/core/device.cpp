#include "softmlx5/core/device.hpp"

#include <array>
#include <string>

#include "softmlx5/core/bytes.hpp"

namespace softmlx5 {

namespace {

constexpr std::uint32_t arm_offset = 0x20;
constexpr std::uint32_t first_register = 0x800;
constexpr std::uint32_t end_of_registers = 0xc00;
constexpr std::uint32_t half_bytes = 0x100;
constexpr std::uint32_t register_bytes = 0x200;
constexpr unsigned slot_shift = 16;

std::string where(std::uint32_t uar, std::uint32_t offset) {
    return "UAR " + std::to_string(uar) + ", offset " + std::to_string(offset);
}

std::uint64_t take_word(std::byte* at) noexcept {
    std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(at));
    // Looked at first: an exchange would take the line from the processor that writes it.
    if (word.load(std::memory_order_relaxed) == 0) return 0;
    return swapped(word.exchange(0, std::memory_order_acq_rel));
}

}  // namespace

device::device(device_options options)
    : options_(std::move(options)),
      around_{.log = log_,
              .keys = keys_,
              .now = options_.now,
              .transmit =
                  [this](packet&& p) {
                      if (p.destination >> slot_shift == options_.slot) {
                          arrivals_.push_back(std::move(p));
                      } else if (on_departure) {
                          on_departure(std::move(p));
                      }
                  },
              .completions = [this](std::uint32_t number) { return find_completion_queue(number); },
              .on_event =
                  [this](std::uint32_t number, queue_pair_event what) {
                      if (on_queue_pair_event) on_queue_pair_event(number, what);
                  }} {}

std::uint32_t device::add_domain() {
    const std::lock_guard held(mutex_);
    return next_domain_++;
}

std::uint32_t device::add_uar(std::byte* memory, uar_kind kind) {
    const std::lock_guard held(mutex_);
    pages_[next_uar_] = {.memory = memory, .kind = kind, .registers = {}};
    return next_uar_++;
}

void device::remove_uar(std::uint32_t uar) {
    const std::lock_guard held(mutex_);
    for (const auto& [number, pair] : queue_pairs_) {
        if (pair->config().uar == uar) {
            log_.report("uar.in_use", "UAR " + std::to_string(uar) + " freed under queue pair " +
                                          std::to_string(number));
        }
    }
    pages_.erase(uar);
}

std::uint32_t device::add_completion_queue(const completion_queue_config& config) {
    const std::lock_guard held(mutex_);
    const auto number = next_completion_queue_++;
    auto queue = std::make_unique<completion_queue>(number, config, log_);
    queue->on_event = [this, number] {
        if (on_completion_event) on_completion_event(number);
    };
    queue->on_overrun = [this, number] {
        if (on_completion_queue_error) on_completion_queue_error(number);
    };
    completion_queues_[number] = std::move(queue);
    return number;
}

bool device::remove_completion_queue(std::uint32_t number) {
    const std::lock_guard held(mutex_);
    for (const auto& [unused, pair] : queue_pairs_) {
        if (pair->config().send_queue == number || pair->config().receive_queue == number) {
            return false;
        }
    }
    return completion_queues_.erase(number) > 0;
}

std::uint32_t device::add_queue_pair(const queue_pair_config& config) {
    const std::lock_guard held(mutex_);
    const auto number = std::uint32_t{options_.slot} << slot_shift | (next_queue_pair_++ & 0xffff);
    queue_pairs_[number] = std::make_unique<queue_pair>(number, config, around_);
    // Its driver starts at the first half, whatever an earlier one used last.
    if (const auto on = pages_.find(config.uar); on != pages_.end()) {
        on->second.registers.clear();
    }
    return number;
}

bool device::remove_queue_pair(std::uint32_t number) {
    const std::lock_guard held(mutex_);
    return queue_pairs_.erase(number) > 0;
}

queue_pair* device::find_queue_pair(std::uint32_t number) {
    const std::lock_guard held(mutex_);
    const auto found = queue_pairs_.find(number);
    return found == queue_pairs_.end() ? nullptr : found->second.get();
}

completion_queue* device::find_completion_queue(std::uint32_t number) {
    const std::lock_guard held(mutex_);
    const auto found = completion_queues_.find(number);
    return found == completion_queues_.end() ? nullptr : found->second.get();
}

void device::doorbell(std::uint32_t uar, std::uint64_t control, bool exact) {
    const auto number = static_cast<std::uint32_t>(control >> 8) & 0xffffff;
    auto* pair = find_queue_pair(number);
    if (pair == nullptr) {
        log_.report("doorbell.qpn", "UAR " + std::to_string(uar) + ": a doorbell for queue pair " +
                                        std::to_string(number) + ", which does not exist");
        return;
    }
    if (pair->config().uar != uar) {
        // A device ignores it silently, and the request is never seen.
        log_.report("uar.wrong", "queue pair " + std::to_string(number) + " belongs to UAR " +
                                     std::to_string(pair->config().uar) +
                                     ", its doorbell came through " + std::to_string(uar));
        return;
    }
    pair->ring(control, exact);
}

void device::arm(std::uint32_t uar, std::uint64_t value, bool exact) {
    const auto number = static_cast<std::uint32_t>(value) & 0xffffff;
    auto* queue = find_completion_queue(number);
    if (queue == nullptr || (value & 0xff000000) != 0) {
        log_.report("cq.arm_number", "UAR " + std::to_string(uar) + ": no completion queue " +
                                         std::to_string(number));
        return;
    }
    if (queue->config().uar != uar) {
        log_.report("uar.wrong", "completion queue " + std::to_string(number) +
                                     " belongs to another UAR than " + std::to_string(uar));
        return;
    }
    queue->arm(static_cast<std::uint32_t>(value >> 32), exact);
}

void device::check_halves(std::uint32_t uar, page& on, std::uint32_t offset) {
    if (on.kind == uar_kind::uncached) return;
    auto& latest = on.registers[(offset - first_register) / register_bytes].latest;
    const auto half = offset / half_bytes;
    if (latest && *latest == half) {
        log_.report("uar.half", where(uar, offset) + ": the same half twice");
    }
    latest = half;
}

void device::store(std::uint32_t uar, std::uint32_t offset, std::uint64_t value) {
    const std::lock_guard held(mutex_);
    trace_.push_back({.uar = uar, .offset = offset, .value = value});
    const auto found = pages_.find(uar);
    if (found == pages_.end()) return;
    if (offset == arm_offset) {
        fence();
        arm(uar, value, true);
        return;
    }
    if (offset < first_register || offset >= end_of_registers || offset % 8 != 0) {
        log_.report("uar.offset", where(uar, offset) + " is no register");
        return;
    }
    if (offset % half_bytes != 0) {
        continue_burst(uar, offset, value);
        return;
    }
    fence();
    check_halves(uar, found->second, offset);
    const auto number = static_cast<std::uint32_t>(value >> 8) & 0xffffff;
    burst_ = {.uar = uar,
              .base = offset,
              .next = offset + 8,
              .queue_pair = number,
              .index = static_cast<std::uint16_t>(value >> 40),
              .blocks = static_cast<std::uint16_t>(((value & 0x3f) + 3) / 4)};
    doorbell(uar, value, true);
}

/// The bytes that follow a doorbell are a copy of its request, in ascending order, going on at the
/// ring's base where the ring ends.
void device::continue_burst(std::uint32_t uar, std::uint32_t offset, std::uint64_t value) {
    if (!burst_ || burst_->uar != uar || burst_->next != offset ||
        pages_[uar].kind == uar_kind::uncached) {
        log_.report("uar.blueflame", where(uar, offset) + ": a store that follows no doorbell");
        return;
    }
    burst_->next += 8;
    const auto* pair = find_queue_pair(burst_->queue_pair);
    if (pair == nullptr) return;
    const auto done = offset - burst_->base;
    const auto& ring = pair->config().sends;
    const auto index = static_cast<std::uint16_t>(burst_->index + done / send_ring::block);
    if (done >= burst_->blocks * send_ring::block ||
        load64(ring.at(index) + done % send_ring::block) != value) {
        log_.report("uar.blueflame", where(uar, offset) + ": not what the request says there");
    }
}

void device::fence() {
    const std::lock_guard held(mutex_);
    if (!burst_) return;
    const auto copied = burst_->next - burst_->base;
    if (copied > 8 && copied != burst_->blocks * send_ring::block) {
        log_.report("uar.blueflame", where(burst_->uar, burst_->base) + ": a copy of " +
                                         std::to_string(copied) + " bytes of a request of " +
                                         std::to_string(burst_->blocks) + " blocks");
    }
    burst_.reset();
}

std::vector<uar_store> device::take_trace() {
    const std::lock_guard held(mutex_);
    return std::exchange(trace_, {});
}

/// A register that several queue pairs share may have been written twice since the last look, so
/// that only the later doorbell is left. The records of the others tell; a doorbell that was never
/// rung hides behind this, but not where each has a register of its own, nor in trap mode.
void device::poll_shared(std::uint32_t uar) {
    for (const auto& [number, pair] : queue_pairs_) {
        if (pair->config().uar == uar) pair->ring_from_record();
    }
}

bool device::poll() {
    constexpr std::array<std::uint32_t, 4> halves{0x800, 0x900, 0xa00, 0xb00};
    const std::lock_guard held(mutex_);
    bool any = false;
    for (auto& [uar, on] : pages_) {
        if (const auto value = take_word(on.memory + arm_offset); value != 0) {
            any = true;
            arm(uar, value, false);
            for (const auto& [number, queue] : completion_queues_) {
                if (queue->config().uar == uar) queue->arm_from_record();
            }
        }
        bool rung = false;
        for (const auto offset : halves) {
            const auto value = take_word(on.memory + offset);
            if (value == 0) continue;
            rung = true;
            doorbell(uar, value, false);
        }
        if (!rung) continue;
        any = true;
        std::size_t sharers = 0;
        for (const auto& [number, pair] : queue_pairs_) sharers += pair->config().uar == uar;
        if (sharers > 1) poll_shared(uar);
    }
    return any;
}

bool device::step() {
    const std::lock_guard held(mutex_);
    const bool any = !arrivals_.empty();
    while (!arrivals_.empty()) {
        auto one = std::move(arrivals_.front());
        arrivals_.pop_front();
        if (auto* pair = find_queue_pair(one.destination)) pair->receive(std::move(one));
    }
    for (const auto& [number, pair] : queue_pairs_) pair->tick();
    return any;
}

void device::arrive(packet&& from_elsewhere) {
    const std::lock_guard held(mutex_);
    arrivals_.push_back(std::move(from_elsewhere));
}

}  // namespace softmlx5
