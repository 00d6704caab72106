#include "fabric/verbs/device.hpp"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>

#include "fabric/cm/connection.hpp"
#include "fabric/quirks.hpp"
#include "fabric/verbs/completion_queue.hpp"
#include "fabric/verbs/inventory.hpp"
#include "fabric/verbs/memory.hpp"
#include "fabric/verbs/queue_pair.hpp"
#include "fabric/verbs/text.hpp"

namespace rvget::fabric::verbs {

namespace {

async_event translate(const ibv_async_event& raw) {
    async_event event;
    switch (raw.event_type) {
        case IBV_EVENT_PORT_ACTIVE:
            event.kind = async_event_kind::port_active;
            event.port = static_cast<std::uint8_t>(raw.element.port_num);
            break;
        case IBV_EVENT_PORT_ERR:
            event.kind = async_event_kind::port_error;
            event.port = static_cast<std::uint8_t>(raw.element.port_num);
            break;
        case IBV_EVENT_GID_CHANGE:
            event.kind = async_event_kind::gid_change;
            event.port = static_cast<std::uint8_t>(raw.element.port_num);
            break;
        case IBV_EVENT_LID_CHANGE:
        case IBV_EVENT_PKEY_CHANGE:
        case IBV_EVENT_SM_CHANGE:
        case IBV_EVENT_CLIENT_REREGISTER:
            event.port = static_cast<std::uint8_t>(raw.element.port_num);
            break;
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
            event.kind = async_event_kind::queue_pair_fatal;
            event.queue_pair_number = raw.element.qp->qp_num;
            break;
        case IBV_EVENT_COMM_EST:
        case IBV_EVENT_SQ_DRAINED:
        case IBV_EVENT_PATH_MIG:
        case IBV_EVENT_PATH_MIG_ERR:
        case IBV_EVENT_QP_LAST_WQE_REACHED:
            event.queue_pair_number = raw.element.qp->qp_num;
            break;
        // An overrun completion queue takes with it everything that completes there.
        case IBV_EVENT_CQ_ERR:
        case IBV_EVENT_DEVICE_FATAL:
            event.kind = async_event_kind::device_fatal;
            break;
        default:
            break;
    }
    return event;
}

}  // namespace

result<std::shared_ptr<fabric::device>> device::open(ibv_device* found) {
    auto opened = std::make_shared<context>();
    opened->device = ibv_get_device_name(found);
    errno = 0;
    opened->handle.reset(ibv_open_device(found));
    if (!opened->handle) return open_failure(opened->device, errno);
    const int descriptor = opened->handle->async_fd;
    const int flags = ::fcntl(descriptor, F_GETFL);
    if (flags < 0 || ::fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) < 0) {
        return open_failure(opened->device, errno);
    }
    errno = 0;
    opened->domain.reset(ibv_alloc_pd(opened->handle.get()));
    if (!opened->domain) {
        return failure{device_errc::resource,
                       opened->device + ": protection domain: " + errno_text(errno)};
    }
    auto facts = facts_of(opened->handle.get());
    if (!facts) return facts.error();
    opened->quirks = quirks_of(*facts);
    return std::shared_ptr<fabric::device>(new device(std::move(opened), std::move(*facts)));
}

result<void> device::refresh() {
    auto* handle = context_->handle.get();
    auto ports = ports_of(handle, handle->device->node_type == IBV_NODE_RNIC,
                          static_cast<unsigned>(facts_.ports.size()), facts_.ports);
    if (!ports) return ports.error();
    facts_.ports = std::move(*ports);
    return {};
}

result<std::unique_ptr<memory_region>> device::register_memory(std::span<std::byte> memory,
                                                               access rights) {
    return region::make(context_, memory, rights);
}

result<std::unique_ptr<memory_region>> device::register_dmabuf(int descriptor, std::uint64_t offset,
                                                               std::span<std::byte> mapped,
                                                               access rights) {
    return region::make_of_dmabuf(context_, descriptor, offset, mapped, rights);
}

result<std::shared_ptr<fabric::completion_queue>> device::create_completion_queue(
    std::uint32_t entries) {
    return verbs::completion_queue::make(context_, entries, facts_.max_completion_entries);
}

result<std::unique_ptr<fabric::queue_pair>> device::create_queue_pair(
    std::shared_ptr<fabric::completion_queue> completions, std::uint8_t port,
    const queue_pair_options& options) {
    const auto found = std::find_if(facts_.ports.begin(), facts_.ports.end(),
                                    [&](const auto& p) { return p.number == port; });
    if (found == facts_.ports.end()) {
        return failure{request_errc::invalid_argument,
                       context_->device + " has no port " + std::to_string(port)};
    }
    return verbs::queue_pair::make(context_, std::move(completions), *found, options);
}

result<std::unique_ptr<memory_window>> device::allocate_window() { return window::make(context_); }

result<std::unique_ptr<connection_listener>> device::listen(const std::string& address) {
    return cm::listen(context_->device, address);
}

result<std::unique_ptr<connection>> device::connect(const connection_target& target,
                                                    const connection_terms& terms,
                                                    std::chrono::milliseconds limit) {
    return cm::connect(context_->device, target, terms, limit);
}

std::optional<async_event> device::next_event() {
    ibv_async_event raw{};
    if (ibv_get_async_event(context_->handle.get(), &raw) != 0) return std::nullopt;
    // Translated before it is acknowledged: until then the queue pair it names cannot go away.
    const auto event = translate(raw);
    ibv_ack_async_event(&raw);
    return event;
}

}  // namespace rvget::fabric::verbs
