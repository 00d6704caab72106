#include "fabric/sim/device.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "fabric/sim/completion_queue.hpp"
#include "fabric/sim/queue_pair.hpp"

namespace rvget::fabric::sim {

failure os_failure(device_errc code, const std::string& who, std::string_view call,
                   int error_number) {
    return {code, who + ": " + std::string(call) + ": " +
                      std::generic_category().message(error_number) + " (errno " +
                      std::to_string(error_number) + ")"};
}

// --- Provider ----------------------------------------------------------------------------------

result<std::vector<route::device_facts>> sim_provider::list() {
    const std::lock_guard lock(world_->mutex);
    std::vector<route::device_facts> found;
    for (const auto& n : world_->host_at(host_).nics) found.push_back(n->options.facts);
    return found;
}

result<std::shared_ptr<fabric::device>> sim_provider::open(std::string_view device_name) {
    const std::lock_guard lock(world_->mutex);
    auto& host = world_->host_at(host_);
    for (auto& n : host.nics) {
        if (n->options.facts.name == device_name) {
            return std::shared_ptr<fabric::device>(std::make_shared<sim_device>(world_, *n));
        }
    }
    return failure(device_errc::none, "sim " + host.name + ": no device named " +
                                          std::string(device_name) + "; see `rvget doctor`");
}

// --- Device ------------------------------------------------------------------------------------

sim_device::sim_device(std::shared_ptr<world> w, sim::nic& nic)
    : world_(std::move(w)),
      nic_(nic),
      domain_(world_->new_domain()),
      who_("sim " + world_->host_at(nic.host).name + "/" + nic.options.facts.name),
      facts_(nic.options.facts),
      quirks_(nic.options.quirks) {
    nic_.opened.push_back(&events_);
}

sim_device::~sim_device() {
    const std::lock_guard lock(world_->mutex);
    std::erase(nic_.opened, &events_);
}

result<void> sim_device::refresh() {
    const std::lock_guard lock(world_->mutex);
    facts_.ports = nic_.options.facts.ports;
    return {};
}

result<std::unique_ptr<memory_region>> sim_device::register_memory(std::span<std::byte> memory,
                                                                   access rights) {
    const std::lock_guard lock(world_->mutex);
    const bool writes_need_local =
        has(rights, access::remote_write) && !has(rights, access::local_write);
    const bool needs_windows =
        has(rights, access::window_bind) && !nic_.options.facts.memory_windows_type2;
    if (memory.empty() || writes_need_local || needs_windows) {
        return os_failure(device_errc::registration, who_, "register memory", EINVAL);
    }
    const auto limit = nic_.options.registration_limit_bytes;
    if (nic_.registered_bytes > limit || memory.size() > limit - nic_.registered_bytes) {
        auto f = os_failure(device_errc::registration, who_, "register memory", ENOMEM);
        f.detail += ": memlock limit of " + std::to_string(limit) + " bytes; see `ulimit -l`";
        return f;
    }
    return std::unique_ptr<memory_region>(
        std::make_unique<sim_region>(shared_from_this(), memory, rights));
}

result<std::shared_ptr<completion_queue>> sim_device::create_completion_queue(
    std::uint32_t entries) {
    if (entries == 0 || entries > facts_.max_completion_entries) {
        return os_failure(device_errc::resource, who_, "create completion queue", EINVAL);
    }
    return std::shared_ptr<completion_queue>(
        std::make_shared<sim_completion_queue>(shared_from_this(), entries));
}

result<std::unique_ptr<queue_pair>> sim_device::create_queue_pair(
    std::shared_ptr<completion_queue> completions, std::uint8_t port,
    const queue_pair_options& options) {
    auto queue = std::dynamic_pointer_cast<sim_completion_queue>(std::move(completions));
    const auto& ports = nic_.options.facts.ports;
    const auto at =
        std::find_if(ports.begin(), ports.end(), [&](const auto& p) { return p.number == port; });
    if (queue == nullptr || &queue->device() != this || at == ports.end() ||
        options.send_requests > facts_.max_send_requests) {
        return os_failure(device_errc::resource, who_, "create queue pair", EINVAL);
    }
    const std::lock_guard lock(world_->mutex);
    return std::unique_ptr<queue_pair>(
        std::make_unique<sim_queue_pair>(shared_from_this(), std::move(queue), *at, options));
}

result<std::unique_ptr<memory_window>> sim_device::allocate_window() {
    const std::lock_guard lock(world_->mutex);
    if (!nic_.options.facts.memory_windows_type2) {
        return os_failure(device_errc::resource, who_, "allocate memory window", EOPNOTSUPP);
    }
    return std::unique_ptr<memory_window>(std::make_unique<sim_window>(shared_from_this()));
}

int sim_device::event_descriptor() const noexcept {
    const std::lock_guard lock(world_->mutex);
    return world_->realtime() ? events_.flag.descriptor() : -1;
}

std::optional<async_event> sim_device::next_event() {
    const std::lock_guard lock(world_->mutex);
    if (events_.events.empty()) {
        events_.flag.lower();
        return std::nullopt;
    }
    const auto event = events_.events.front();
    events_.events.pop_front();
    return event;
}

// --- Region and window -------------------------------------------------------------------------

sim_region::sim_region(std::shared_ptr<sim_device> device, std::span<std::byte> bytes,
                       access rights)
    : device_(std::move(device)), record_{device_->domain(), &device_->nic(), bytes, rights, 0, 0} {
    device_->in().add_region(record_);
}

sim_region::~sim_region() {
    const std::lock_guard lock(device_->in().mutex);
    device_->in().remove_region(record_);
}

sim_window::sim_window(std::shared_ptr<sim_device> device) : device_(std::move(device)) {
    record_.domain = device_->domain();
    record_.host = device_->nic().host;
    device_->in().add_window(record_);
}

sim_window::~sim_window() {
    const std::lock_guard lock(device_->in().mutex);
    device_->in().remove_window(record_);
}

}  // namespace rvget::fabric::sim
