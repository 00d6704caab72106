#include "fabric/sim/network.hpp"

#include <algorithm>
#include <random>

#include "fabric/sim/device.hpp"
#include "fabric/sim/world.hpp"

namespace rvget::fabric::sim {

// --- What a host looks like --------------------------------------------------------------------

route::gid ipv4_gid(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
    return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d}};
}

device_options roce_device(std::string name, const std::vector<route::gid>& gids) {
    route::port_facts port;
    port.state = route::port_state::active;
    port.active_mtu = 1024;
    port.max_mtu = 4096;
    port.max_message_bytes = std::uint32_t{1} << 30;
    port.netdev = "eth_" + name;
    for (const auto& gid : gids) {
        const auto index = static_cast<std::uint32_t>(port.gids.size() + 1);
        port.gids.push_back({index, gid, route::gid_type::roce_v2, port.netdev});
    }
    device_options options;
    auto& facts = options.facts;
    facts.name = std::move(name);
    facts.driver = "sim";
    facts.max_read_depth_initiator = 16;
    facts.max_read_depth_responder = 16;
    facts.max_queue_pairs = 1 << 16;
    facts.max_send_requests = 1 << 14;
    facts.max_completion_entries = 1 << 20;
    facts.max_sge = 1;
    facts.memory_windows_type2 = true;
    facts.ports.push_back(std::move(port));
    return options;
}

host_options roce_host(std::string name, const route::gid& gid) {
    host_options options;
    options.name = std::move(name);
    options.devices.push_back(roce_device("sim0", {gid}));
    return options;
}

std::string_view to_string(step_kind kind) noexcept {
    switch (kind) {
        case step_kind::read_piece:
            return "READ piece";
        case step_kind::late_piece:
            return "late READ piece";
        case step_kind::send:
            return "SEND";
        case step_kind::bind:
            return "bind";
        case step_kind::invalidate:
            return "invalidate";
        case step_kind::marker:
            return "marker";
        case step_kind::request_lost:
            return "request lost";
        case step_kind::retry_timeout:
            return "retry timeout";
        case step_kind::local_failure:
            return "local failure";
        case step_kind::flush:
            return "flush";
        case step_kind::completion:
            return "completion";
        case step_kind::receive_completion:
            return "receive completion";
        case step_kind::receive_flush:
            return "receive flush";
    }
    return "?";
}

// --- Driving -----------------------------------------------------------------------------------

network::network(const network_options& options) : world_(std::make_shared<world>(options)) {}

network::~network() { world_->stop_background(); }

std::unique_ptr<provider> network::attach(host_options options) {
    const std::lock_guard lock(world_->mutex);
    return std::make_unique<sim_provider>(world_, world_->add_host(std::move(options)));
}

std::size_t network::runnable() const {
    const std::lock_guard lock(world_->mutex);
    return world_->runnable();
}

step_info network::at(std::size_t index) const {
    const std::lock_guard lock(world_->mutex);
    return world_->at(index);
}

std::string network::describe(std::size_t index) const {
    const std::lock_guard lock(world_->mutex);
    const auto info = world_->at(index);
    std::string text = world_->host_at(info.host).name + " qp " +
                       std::to_string(info.queue_pair_number) + ": " +
                       std::string(to_string(info.kind)) + " id " + std::to_string(info.id);
    if (info.bytes != 0) {
        text += " bytes " + std::to_string(info.offset) + "+" + std::to_string(info.bytes);
    }
    return text;
}

void network::step(std::size_t index) {
    const std::lock_guard lock(world_->mutex);
    world_->step(index);
}

std::size_t network::run(std::size_t limit) {
    const std::lock_guard lock(world_->mutex);
    std::size_t ran = 0;
    for (; ran < limit && world_->runnable() != 0; ++ran) world_->step(0);
    return ran;
}

void network::set_piece_bytes(std::uint32_t bytes) {
    const std::lock_guard lock(world_->mutex);
    world_->options_.piece_bytes = std::max(bytes, std::uint32_t{1});
}

// --- Background --------------------------------------------------------------------------------

void network::run_in_background(bool on, std::uint64_t seed) {
    world_->stop_background();
    if (on) world_->start_background(seed);
}

void world::start_background(std::uint64_t seed) {
    const std::lock_guard lock(mutex);
    realtime_ = true;
    stopping_ = false;
    background_ = std::thread([this, seed] { background_loop(seed); });
}

void world::stop_background() {
    std::thread ending;
    {
        const std::lock_guard lock(mutex);
        stopping_ = true;
        ending.swap(background_);
        changed_.notify_one();
    }
    if (ending.joinable()) ending.join();
}

void world::background_loop(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::unique_lock lock(mutex);
    while (!stopping_) {
        std::optional<std::chrono::steady_clock::time_point> wake;
        if (const auto index = pick(random(), wake)) {
            step(*index);
            lock.unlock();  // posting and polling threads come in between steps
            lock.lock();
            continue;
        }
        idle_ = true;
        if (wake) {
            changed_.wait_until(lock, *wake);
        } else {
            changed_.wait(lock);
        }
        idle_ = false;
    }
}

/// A step to run now: any but a retry timeout whose time has not come; `wake` is then the first.
std::optional<std::size_t> world::pick(
    std::uint64_t random, std::optional<std::chrono::steady_clock::time_point>& wake) const {
    const auto n = runnable_.size();
    for (std::size_t i = 0; i < n; ++i) {
        const auto index = (random + i) % n;
        const auto& a = runnable_[index];
        if (a.which != lane::send || kind_of(a) != step_kind::retry_timeout) return index;
        const auto due = a.queue_pair->retry_until;
        if (due <= std::chrono::steady_clock::now()) return index;
        wake = wake ? std::min(*wake, due) : due;
    }
    return std::nullopt;
}

// --- Scripted faults ---------------------------------------------------------------------------

void network::drop_between(std::string_view host_a, std::string_view host_b, bool dropped) {
    const std::lock_guard lock(world_->mutex);
    world_->set_dropped(world_->host_named(host_a), world_->host_named(host_b), dropped);
}

void world::set_dropped(std::size_t a, std::size_t b, bool dropped) {
    const std::pair pair{std::min(a, b), std::max(a, b)};
    std::erase(drops_, pair);
    if (dropped) drops_.push_back(pair);
    update_all();
}

void network::kill_host(std::string_view host) {
    const std::lock_guard lock(world_->mutex);
    world_->host_at(world_->host_named(host)).alive = false;
    world_->update_all();
}

void network::set_link(std::string_view host, std::string_view device, std::uint8_t port, bool up) {
    const std::lock_guard lock(world_->mutex);
    auto [nic, facts] = world_->port_of(host, device, port);
    facts.state = up ? route::port_state::active : route::port_state::down;
    world::raise(nic, {up ? async_event_kind::port_active : async_event_kind::port_error, port, 0});
    world_->update_all();
}

void network::set_gids(std::string_view host, std::string_view device, std::uint8_t port,
                       std::vector<route::gid_entry> gids) {
    const std::lock_guard lock(world_->mutex);
    auto [nic, facts] = world_->port_of(host, device, port);
    facts.gids = std::move(gids);
    world_->check_gids(facts);
    world::raise(nic, {async_event_kind::gid_change, port, 0});
}

void world::check_gids(const route::port_facts& port) {
    for (auto* q : live_) {
        if (q->port != &port) continue;
        q->own_gid_gone = q->receive.peer.number != 0 &&
                          std::none_of(port.gids.begin(), port.gids.end(), [&](const auto& g) {
                              return g.index == q->receive.gid_index && g.gid.bytes == q->own_gid;
                          });
    }
    update_all();
}

void network::set_active_mtu(std::string_view host, std::string_view device, std::uint8_t port,
                             std::uint32_t mtu) {
    const std::lock_guard lock(world_->mutex);
    world_->port_of(host, device, port).second.active_mtu = mtu;
    world_->update_all();
}

void network::false_success(std::string_view host, unsigned reads) {
    const std::lock_guard lock(world_->mutex);
    world_->host_at(world_->host_named(host)).false_successes = reads;
}

void network::refuse_reads(std::string_view host, unsigned reads) {
    const std::lock_guard lock(world_->mutex);
    world_->host_at(world_->host_named(host)).refused_reads = reads;
}

void network::fail_ready_to_receive(std::string_view host, int error_number, unsigned times) {
    const std::lock_guard lock(world_->mutex);
    auto& record = world_->host_at(world_->host_named(host));
    record.ready_to_receive_error = error_number;
    record.ready_to_receive_failures = times;
}

// --- Oracles -----------------------------------------------------------------------------------

std::vector<std::string> network::violations() const {
    const std::lock_guard lock(world_->mutex);
    return world_->violations_;
}

bool network::dma_pending_into(std::span<const std::byte> memory) const {
    const std::lock_guard lock(world_->mutex);
    return world_->pending_into(memory);
}

bool network::dma_pending_from(std::span<const std::byte> memory) const {
    const std::lock_guard lock(world_->mutex);
    return world_->pending_from(memory);
}

void network::on_write(dma_hook hook) {
    const std::lock_guard lock(world_->mutex);
    world_->on_write_ = std::move(hook);
}

void network::on_read(dma_hook hook) {
    const std::lock_guard lock(world_->mutex);
    world_->on_read_ = std::move(hook);
}

}  // namespace rvget::fabric::sim
