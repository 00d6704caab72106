#include "fabric/sim/completion_queue.hpp"

#include <algorithm>

namespace rvget::fabric::sim {

sim_completion_queue::sim_completion_queue(std::shared_ptr<sim_device> device,
                                           std::uint32_t entries)
    : device_(std::move(device)) {
    record_.host = device_->nic().host;
    record_.capacity = entries;
}

sim_completion_queue::~sim_completion_queue() {
    const std::lock_guard lock(device_->in().mutex);
    device_->in().remove_completion_queue(record_);
}

result<std::size_t> sim_completion_queue::poll(std::span<completion> out) {
    auto& world = device_->in();
    const std::lock_guard lock(world.mutex);
    if (record_.overrun) {
        return failure(device_errc::resource,
                       device_->who() + ": completion queue of " +
                           std::to_string(record_.capacity) +
                           " entries overrun; size it for every posted work request");
    }
    if (!world.host_at(record_.host).alive) return std::size_t{0};
    auto& entries = record_.entries;
    const auto n = std::min(out.size(), entries.size());
    for (std::size_t i = 0; i < n; ++i) {
        const auto& entry = entries[entries.front()];
        out[i] = entry.what;
        if (auto* q = world.find(entry.what.queue_pair_number)) {
            (entry.of_receive ? q->receives_retired : q->retired) = entry.position + 1;
            if (device_->quirks().success_needs_state_query &&
                q->state == queue_pair_state::error && out[i].kind == operation::read &&
                out[i].status == completion_status::success) {
                out[i].status = completion_status::false_success;
            }
        }
        entries.pop_until(entries.front() + 1);
    }
    return n;
}

result<void> sim_completion_queue::arm() {
    const std::lock_guard lock(device_->in().mutex);
    record_.armed = true;
    return {};
}

int sim_completion_queue::event_descriptor() const noexcept {
    auto& world = device_->in();
    const std::lock_guard lock(world.mutex);
    return world.realtime() ? record_.flag.descriptor() : -1;
}

void sim_completion_queue::consume_events() noexcept {
    const std::lock_guard lock(device_->in().mutex);
    record_.flag.lower();
}

}  // namespace rvget::fabric::sim
