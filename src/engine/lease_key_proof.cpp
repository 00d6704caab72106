#include "engine/lease_key_proof.hpp"

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <system_error>
#include <thread>

#include "base/random.hpp"
#include "engine/rdma_context.hpp"
#include "engine/worker_pool.hpp"
#include "fabric/probe_end.hpp"
#include "wire/connect_data.hpp"

namespace rvget::engine {
namespace {

using fabric::access;

/// A device that does not answer a READ to itself in this time is of no use.
constexpr std::chrono::seconds patience(3);
constexpr std::uint32_t range_bytes = 4096;

failure step_failed(const std::string& step, const failure& why) {
    return {why.code, step + ": " + why.message()};
}

/// Two ends of one port, towards each other.
result<void> connect(const rdma_context& rdma, const fabric::port_identity& identity,
                     fabric::probe_end& reader, fabric::probe_end& owner) {
    for (const auto& [end, peer] : {std::pair(&reader, &owner), std::pair(&owner, &reader)}) {
        fabric::receive_parameters rp;
        rp.peer.number = peer->queue_pair_number();
        rp.peer.starting_psn = 1;
        rp.peer.gid = identity.gid.bytes;
        rp.peer.lid = identity.lid;
        rp.peer.path_mtu = identity.active_mtu;
        rp.path_mtu = identity.active_mtu;
        rp.responder_depth = 1;
        rp.gid_index = identity.gid_index;
        rp.min_rnr_timer = rdma.retry().min_rnr_timer;
        if (auto r = end->connect(rp, 1, rdma.retry()); !r) return r;
    }
    return {};
}

using connections = std::array<std::unique_ptr<fabric::connection>, 2>;

/// The same by RDMA-CM, where there is no other way.
result<connections> connect_by_cm(fabric::device& device, const std::string& address,
                                  fabric::probe_end& reader, fabric::probe_end& owner) {
    auto listener = device.listen(address);
    if (!listener) return listener.error();
    // Anybody may knock there meanwhile.
    wire::connect_nonce nonce{};
    fill_random(std::as_writable_bytes(std::span(nonce)));
    const auto word = wire::encode_connect_data(nonce);
    const auto terms = [&](const fabric::probe_end& end) {
        return fabric::connection_terms{.queue_pair_number = end.queue_pair_number(),
                                        .initiator_depth = 1,
                                        .responder_depth = 1,
                                        .private_data = word};
    };
    result<std::unique_ptr<fabric::connection>> connected = failure{device_errc::resource};
    std::thread connecting;
    try {
        connecting = start_thread("rvget-cm", [&] {
            connected =
                device.connect({address, address, (*listener)->port()}, terms(reader), patience);
            if (!connected) (*listener)->stop();
        });
    } catch (const std::system_error& e) {
        return failure{device_errc::resource,
                       std::string("no thread to connect with: ") + e.what()};
    }
    auto request = (*listener)->next();
    while (request && *request && wire::decode_connect_data((*request)->private_data()) != nonce)
        request = (*listener)->next();
    if (request && *request)
        if (const auto accepted = (*request)->establish(terms(owner)); !accepted)
            request = accepted.error();
    connecting.join();
    if (!connected) return connected.error();
    if (!request) return request.error();
    for (auto* end : {&reader, &owner})
        if (auto r = end->connect({}, 0); !r) return r.error();
    return connections{std::move(*connected), std::move(*request)};
}

}  // namespace

result<void> prove_lease_key(rdma_context& rdma, wire::lease_mode mode) {
    auto& device = *rdma.device();
    const bool windows = mode == wire::lease_mode::window;
    if (windows && !device.facts().memory_windows_type2)
        return failure{device_errc::none, "the device has no type-2 memory windows"};
    const auto port = rdma.own_port();
    if (!port) return port.error();
    const auto& identity = port.value().identity;
    // As arenas are registered: no key but the lease's opens anything.
    const auto rights = windows ? access::local_write | access::window_bind : access::local_write;
    auto reader = fabric::probe_end::make(device, identity.port, range_bytes, access::local_write);
    if (!reader) return reader.error();
    auto owner = fabric::probe_end::make(device, identity.port, range_bytes, rights);
    if (!owner) return owner.error();
    auto& served = **owner;
    connections connected;
    if (rdma.needs_cm()) {
        auto made = connect_by_cm(device, port->address, **reader, served);
        if (!made) return step_failed("connecting two queue pairs of its own", made.error());
        connected = std::move(*made);
    } else if (auto r = connect(rdma, identity, **reader, served); !r) {
        return step_failed("connecting two queue pairs of its own", r.error());
    }
    served.fill(1);

    std::uint32_t key = 0;
    std::unique_ptr<fabric::memory_region> exact;
    if (windows) {
        auto bound = served.bind_window(device, patience);
        if (!bound) return bound.error();
        key = bound.value();
    } else {
        auto registered = device.register_memory(served.served(), access::remote_read);
        if (!registered)
            return step_failed("registering a range for reading alone", registered.error());
        exact = std::move(registered.value());
        key = exact->remote_key();
    }
    const auto read = [&] {
        return (*reader)->read(served.address(), key, range_bytes, 1, patience);
    };
    if (const auto first = read(); !first.ok())
        return failure{
            device_errc::query_failed,
            "a READ with the key: " +
                (first.status ? std::string(to_string(*first.status)) : "no completion") + ", " +
                std::to_string(first.wrong_bytes) + " bytes wrong"};
    if (windows) {
        if (auto taken = served.invalidate_window(patience); !taken) return taken;
    } else {
        exact.reset();
    }
    const auto late = read();
    if (!late.posted || !late.status)
        return failure{device_errc::query_failed,
                       "a READ after the key was taken away could not be tried"};
    if (*late.status == fabric::completion_status::success || late.touched != 0)
        return failure{device_errc::query_failed,
                       "a READ after the key was taken away was not refused"};
    return {};
}

}  // namespace rvget::engine
