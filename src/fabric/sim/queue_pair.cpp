#include "fabric/sim/queue_pair.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace rvget::fabric::sim {
namespace {

constexpr std::array<std::uint32_t, 5> path_mtus{256, 512, 1024, 2048, 4096};

}  // namespace

sim_queue_pair::sim_queue_pair(std::shared_ptr<sim_device> device,
                               std::shared_ptr<sim_completion_queue> completions,
                               const route::port_facts& port, const queue_pair_options& options)
    : device_(std::move(device)), completions_(std::move(completions)) {
    record_.domain = device_->domain();
    record_.host = device_->nic().host;
    record_.nic = &device_->nic();
    record_.port = &port;
    record_.completions = &completions_->record();
    record_.options = options;
    device_->in().add_queue_pair(record_);
}

sim_queue_pair::~sim_queue_pair() {
    const std::lock_guard lock(device_->in().mutex);
    device_->in().remove_queue_pair(record_);
}

failure sim_queue_pair::refusal(device_errc code, std::string_view call, int error_number) const {
    return os_failure(code, device_->who() + " queue pair " + std::to_string(record_.number), call,
                      error_number);
}

// --- States ------------------------------------------------------------------------------------

result<void> sim_queue_pair::to_init(access remote_rights) {
    const std::lock_guard lock(device_->in().mutex);
    if (record_.state != queue_pair_state::reset) {
        return refusal(device_errc::transition_failed, "modify to INIT", EINVAL);
    }
    record_.state = queue_pair_state::init;
    record_.remote_rights = remote_rights;
    return {};
}

/// The errno of the kernel for each cause, as measured on rxe; 0 when all is well.
int sim_queue_pair::ready_to_receive_error(const receive_parameters& p) {
    auto& world = device_->in();
    auto& host = world.host_at(record_.host);
    if (host.ready_to_receive_failures != 0) {
        --host.ready_to_receive_failures;
        return host.ready_to_receive_error;
    }
    if (record_.state != queue_pair_state::init) return EINVAL;
    if (std::find(path_mtus.begin(), path_mtus.end(), p.path_mtu) == path_mtus.end()) return EINVAL;
    if (p.responder_depth > device_->facts().max_read_depth_responder) return EINVAL;
    const auto& gids = record_.port->gids;
    const auto own = std::find_if(gids.begin(), gids.end(),
                                  [&](const auto& g) { return g.index == p.gid_index; });
    if (own == gids.end()) return ENODATA;
    const route::gid peer{p.peer.gid};
    if (own->gid.is_ipv4_mapped() != peer.is_ipv4_mapped()) return EINVAL;
    if (!world.gid_in_use(p.peer.gid)) return ETIMEDOUT;
    record_.own_gid = own->gid.bytes;
    return 0;
}

result<void> sim_queue_pair::to_ready_to_receive(const receive_parameters& p) {
    const std::lock_guard lock(device_->in().mutex);
    if (const int error = ready_to_receive_error(p)) {
        return refusal(device_errc::transition_failed, "modify to RTR", error);
    }
    record_.receive = p;
    record_.state = queue_pair_state::ready_to_receive;
    device_->in().update_with_peer(record_);
    return {};
}

result<void> sim_queue_pair::to_ready_to_send(const send_parameters& p) {
    const std::lock_guard lock(device_->in().mutex);
    if (record_.state != queue_pair_state::ready_to_receive || p.retry.retry_count > 7 ||
        p.retry.rnr_retry_count > 7 ||
        p.initiator_depth > device_->facts().max_read_depth_initiator) {
        return refusal(device_errc::transition_failed, "modify to RTS", EINVAL);
    }
    record_.send = p;
    record_.state = queue_pair_state::ready_to_send;
    device_->in().update_with_peer(record_);
    return {};
}

result<void> sim_queue_pair::to_error() {
    const std::lock_guard lock(device_->in().mutex);
    device_->in().enter_error(record_, true);
    return {};
}

result<queue_pair_state> sim_queue_pair::state() const {
    const std::lock_guard lock(device_->in().mutex);
    return record_.state;
}

// --- Posting -----------------------------------------------------------------------------------

result<void> sim_queue_pair::room_for(std::size_t requests, std::string_view call) const {
    if (record_.state != queue_pair_state::ready_to_send &&
        record_.state != queue_pair_state::error) {
        return refusal(device_errc::post_failed, call, EINVAL);
    }
    const auto used = record_.sends.back() - record_.retired;
    if (requests > record_.options.send_requests -
                       std::min<std::uint64_t>(used, record_.options.send_requests)) {
        return refusal(device_errc::post_failed, call, ENOMEM);
    }
    return {};
}

result<void> sim_queue_pair::post(const work_request& request, std::string_view call) {
    if (auto room = room_for(1, call); !room) return room;
    record_.sends.push(request);
    device_->in().update(record_);
    return {};
}

result<void> sim_queue_pair::post_reads(std::span<const read_request> requests) {
    const std::lock_guard lock(device_->in().mutex);
    if (auto room = room_for(requests.size(), "post READs"); !room) return room;
    for (const auto& r : requests) {
        work_request wr;
        wr.id = r.id;
        wr.kind = operation::read;
        wr.signalled = r.signalled;
        wr.local = r.local;
        wr.local_key = r.local_key;
        wr.remote_address = r.remote_address;
        wr.remote_key = r.remote_key;
        wr.bytes = r.bytes;
        record_.sends.push(wr);
    }
    device_->in().update(record_);
    return {};
}

result<void> sim_queue_pair::post_send(const send_request& request) {
    const std::lock_guard lock(device_->in().mutex);
    work_request wr;
    wr.id = request.id;
    wr.kind = operation::send;
    wr.signalled = request.signalled;
    wr.inline_data = request.inline_data;
    wr.local_key = request.local_key;
    wr.bytes = static_cast<std::uint32_t>(request.bytes.size());
    // The NIC only reads it; `local` is also a READ's sink.
    wr.local = const_cast<std::byte*>(request.bytes.data());  // NOLINT
    if (!request.inline_data) return post(wr, "post SEND");

    const std::size_t room = record_.options.inline_bytes;
    if (wr.bytes > room) return refusal(device_errc::post_failed, "post inline SEND", EINVAL);
    if (auto free = room_for(1, "post inline SEND"); !free) return free;
    auto& store = record_.inline_bytes;
    store.resize(room * record_.options.send_requests);
    wr.local = store.data() + record_.sends.back() % record_.options.send_requests * room;
    if (wr.bytes != 0) std::memcpy(wr.local, request.bytes.data(), wr.bytes);
    return post(wr, "post inline SEND");
}

result<void> sim_queue_pair::post_receive(const receive_request& request) {
    const std::lock_guard lock(device_->in().mutex);
    if (record_.state == queue_pair_state::reset) {
        return refusal(device_errc::post_failed, "post receive", EINVAL);
    }
    if (record_.receives.back() - record_.receives_retired >= record_.options.receive_requests) {
        return refusal(device_errc::post_failed, "post receive", ENOMEM);
    }
    record_.receives.push(
        {request.id, request.buffer, request.local_key, 0, completion_status::success});
    device_->in().update_with_peer(record_);
    return {};
}

result<void> sim_queue_pair::post_marker(std::uint64_t id) {
    const std::lock_guard lock(device_->in().mutex);
    work_request wr;
    wr.id = id;
    return post(wr, "post marker");
}

result<void> sim_queue_pair::post_bind(std::uint64_t id, memory_window& window,
                                       const memory_region& region,
                                       std::span<const std::byte> range, access rights,
                                       bool signalled) {
    auto* const w = dynamic_cast<sim_window*>(&window);
    const std::lock_guard lock(device_->in().mutex);
    if (w == nullptr || dynamic_cast<const sim_region*>(&region) == nullptr) {
        return refusal(device_errc::post_failed, "post bind", EINVAL);
    }
    if (auto room = room_for(1, "post bind"); !room) return room;
    auto& record = w->record();
    work_request wr;
    wr.id = id;
    wr.kind = operation::bind;
    wr.signalled = signalled;
    wr.window = record.index;
    wr.local_key = region.local_key();
    wr.remote_key = record.latest_key = device_->in().new_window_key(record);
    wr.range = range;
    wr.rights = rights;
    return post(wr, "post bind");
}

result<void> sim_queue_pair::post_invalidate(std::uint64_t id, memory_window& window,
                                             bool signalled) {
    auto* const w = dynamic_cast<sim_window*>(&window);
    const std::lock_guard lock(device_->in().mutex);
    if (w == nullptr) return refusal(device_errc::post_failed, "post invalidate", EINVAL);
    work_request wr;
    wr.id = id;
    wr.kind = operation::invalidate;
    wr.signalled = signalled;
    wr.window = w->record().index;
    wr.remote_key = w->record().latest_key;
    return post(wr, "post invalidate");
}

}  // namespace rvget::fabric::sim
