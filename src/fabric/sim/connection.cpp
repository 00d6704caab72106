// Connections of the simulated NIC, as RDMA-CM makes them: in real time, between threads that wait
// for each other. Nothing of them is a step.

#include <algorithm>

#include "fabric/sim/device.hpp"

namespace rvget::fabric::sim {

void world::add_listener(listener_record& listener) {
    listener.port = ++last_port_;
    listeners_.push_back(&listener);
}

void world::remove_listener(const listener_record& listener) {
    std::erase(listeners_, &listener);
    for (const auto& r : listener.requests) r->now = connection_record::state::rejected;
    connections_changed.notify_all();
}

listener_record* world::listener_at(std::size_t host, const route::gid& address,
                                    std::uint16_t port) const {
    for (auto* l : listeners_) {
        const auto at = l->nic->host;
        if (l->port != port || l->address != address || !host_at(at).alive || dropped(host, at))
            continue;
        for (const auto& p : l->nic->options.facts.ports) {
            const bool here =
                std::ranges::any_of(p.gids, [&](const auto& g) { return g.gid == address; });
            if (here && p.state == route::port_state::active) return l;
        }
    }
    return nullptr;
}

namespace {

using state = connection_record::state;

failure failed(const sim_device& device, const std::string& what) {
    return {connection_errc::connect_failed, device.who() + ": " + what};
}

class sim_connection final : public connection {
public:
    /// The caller holds the world's mutex.
    sim_connection(std::shared_ptr<sim_device> device, std::shared_ptr<connection_record> record,
                   bool requested)
        : device_(std::move(device)), record_(std::move(record)), requested_(requested) {
        const auto& peer = requested ? record_->active : record_->passive;
        const auto& own = requested ? record_->passive : record_->active;
        data_ = peer.data;
        psn_ = own.psn;
        receive_parameters r;
        r.peer = {.number = peer.queue_pair_number,
                  .starting_psn = peer.psn,
                  .gid = peer.gid.bytes,
                  .path_mtu = record_->path_mtu};
        r.path_mtu = record_->path_mtu;
        for (const auto& p : device_->nic().options.facts.ports)
            for (const auto& g : p.gids)
                if (g.gid == own.gid) r.gid_index = g.index;
        receive_ = r;
    }
    ~sim_connection() override { reject({}); }

    [[nodiscard]] std::span<const std::byte> private_data() const noexcept override {
        return data_;
    }
    [[nodiscard]] const std::optional<receive_parameters>& receive() const noexcept override {
        return receive_;
    }
    [[nodiscard]] std::uint32_t starting_psn() const noexcept override { return psn_; }

    result<void> establish(const connection_terms& terms) override {
        if (!requested_) return {};
        const std::lock_guard lock(device_->in().mutex);
        if (record_->now != state::waiting) return failed(*device_, "accept: nobody waits");
        record_->passive.queue_pair_number = terms.queue_pair_number;
        record_->passive.data.assign(terms.private_data.begin(), terms.private_data.end());
        record_->now = state::accepted;
        device_->in().connections_changed.notify_all();
        return {};
    }
    void reject(std::span<const std::byte> data) noexcept override {
        const std::lock_guard lock(device_->in().mutex);
        if (!requested_ || record_->now != state::waiting) return;
        record_->passive.data.assign(data.begin(), data.end());
        record_->now = state::rejected;
        device_->in().connections_changed.notify_all();
    }

private:
    std::shared_ptr<sim_device> device_;
    std::shared_ptr<connection_record> record_;
    bool requested_;
    std::vector<std::byte> data_;
    std::optional<receive_parameters> receive_;
    std::uint32_t psn_ = 0;
};

class sim_listener final : public connection_listener {
public:
    sim_listener(std::shared_ptr<sim_device> device, const route::gid& address)
        : device_(std::move(device)) {
        const std::lock_guard lock(device_->in().mutex);
        record_.nic = &device_->nic();
        record_.address = address;
        device_->in().add_listener(record_);
    }
    ~sim_listener() override {
        const std::lock_guard lock(device_->in().mutex);
        device_->in().remove_listener(record_);
    }
    [[nodiscard]] std::uint16_t port() const noexcept override { return record_.port; }
    result<std::unique_ptr<connection>> next() override {
        std::unique_lock lock(device_->in().mutex);
        device_->in().connections_changed.wait(
            lock, [&] { return record_.stopped || !record_.requests.empty(); });
        if (record_.stopped) return std::unique_ptr<connection>();
        auto taken = std::move(record_.requests.front());
        record_.requests.pop_front();
        return std::unique_ptr<connection>(
            std::make_unique<sim_connection>(device_, std::move(taken), true));
    }
    void stop() noexcept override {
        const std::lock_guard lock(device_->in().mutex);
        record_.stopped = true;
        device_->in().connections_changed.notify_all();
    }

private:
    std::shared_ptr<sim_device> device_;
    listener_record record_;
};

}  // namespace

result<std::unique_ptr<connection_listener>> sim_device::listen(const std::string& address) {
    const auto own = route::parse_gid(address);
    if (!own) return failure{request_errc::invalid_argument, who_ + ": listen: no numeric address"};
    return std::unique_ptr<connection_listener>(
        std::make_unique<sim_listener>(shared_from_this(), *own));
}

result<std::unique_ptr<connection>> sim_device::connect(const connection_target& target,
                                                        const connection_terms& terms,
                                                        std::chrono::milliseconds limit) {
    const auto own = route::parse_gid(target.own_address);
    const auto peer = route::parse_gid(target.peer_address);
    if (!own || !peer)
        return failure{request_errc::invalid_argument, who_ + ": connect: no numeric address"};
    auto record = std::make_shared<connection_record>();
    std::unique_lock lock(world_->mutex);
    for (const auto& p : nic_.options.facts.ports)
        for (const auto& g : p.gids)
            if (g.gid == *own) record->path_mtu = p.active_mtu;
    if (record->path_mtu == 0) return failed(*this, "connect: no such address here");
    record->active = {nic_.host,
                      *own,
                      terms.queue_pair_number,
                      terms.queue_pair_number & 0xffffffU,
                      {terms.private_data.begin(), terms.private_data.end()}};
    auto* listener = world_->listener_at(nic_.host, *peer, target.port);
    if (listener != nullptr) {
        record->passive.host = listener->nic->host;
        record->passive.gid = *peer;
        record->passive.psn = ~terms.queue_pair_number & 0xffffffU;
        listener->requests.push_back(record);
        world_->connections_changed.notify_all();
    }
    const bool answered = world_->connections_changed.wait_for(
        lock, limit, [&] { return record->now != state::waiting; });
    if (!answered) {
        record->now = state::abandoned;
        return failed(*this, "connect: no event in " + std::to_string(limit.count()) + " ms");
    }
    if (record->now == state::rejected) {
        const auto& said = record->passive.data;
        return failed(
            *this, "connect: rejected by the peer, which says \"" +
                       std::string(reinterpret_cast<const char*>(said.data()), said.size()) + "\"");
    }
    return std::unique_ptr<connection>(
        std::make_unique<sim_connection>(shared_from_this(), std::move(record), false));
}

}  // namespace rvget::fabric::sim
