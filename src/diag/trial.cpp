#include "diag/trial.hpp"

#include "diag/rule.hpp"
#include "fabric/cm/cm_probe.hpp"
#include "fabric/probe_end.hpp"

namespace rvget::diag {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t probe_bytes = 64 << 10;

std::string text_of(const failure& f) { return f.detail.empty() ? f.code.message() : f.detail; }

const route::port_facts* port_of(const fabric::device& device, std::uint32_t number) {
    for (const auto& p : device.facts().ports) {
        if (p.number == number) return &p;
    }
    return nullptr;
}

/// Two queue pairs of one device towards each other, and READs of a byte and of many packets.
std::string loop(fabric::device& device, const route::port_facts& port,
                 const route::gid_entry& entry, fabric::inventory::trial& t) {
    auto one = fabric::probe_end::make(device, port.number, probe_bytes);
    if (!one) return text_of(one.error());
    auto other = fabric::probe_end::make(device, port.number, probe_bytes);
    if (!other) return text_of(other.error());
    (*other)->fill(1);
    for (const auto& [end, peer] :
         {std::pair(one->get(), other->get()), {other->get(), one->get()}}) {
        fabric::receive_parameters p;
        p.peer = {.number = peer->queue_pair_number(),
                  .starting_psn = 1,
                  .gid = entry.gid.bytes,
                  .lid = port.lid,
                  .path_mtu = port.active_mtu,
                  .read_depth = 1};
        p.path_mtu = port.active_mtu;
        p.responder_depth = 1;
        p.gid_index = entry.index;
        if (auto done = end->connect(p, 1); !done) return text_of(done.error());
    }
    for (const std::uint32_t bytes : {1U, static_cast<std::uint32_t>(probe_bytes)}) {
        const auto o = (*one)->read((*other)->address(), (*other)->remote_key(), bytes, 1, 1000ms);
        if (o.ok()) continue;
        const std::string what = o.status ? std::string(to_string(*o.status)) : "no completion";
        return "READ of " + std::to_string(bytes) + " bytes: " + what + ", " +
               std::to_string(o.wrong_bytes) + " bytes wrong";
    }
    const bool raised = (*one)->raises_event((*other)->address(), (*other)->remote_key(), 1000ms);
    t.event = raised ? "ok" : "no event within a second";
    return "ok";
}

/// What it takes to reach this very host by RDMA-CM, short of the handshake.
std::string connect_to_self(const std::string& address) {
    constexpr auto step = 2000ms;
    auto listener = fabric::cm_end::listen(address);
    if (!listener) return text_of(listener.error());
    auto client = fabric::cm_end::make();
    if (!client) return text_of(client.error());
    const auto resolved = (*client)->resolve(address, address, (*listener)->port(), step);
    return resolved ? "ok" : text_of(resolved.error());
}

void try_port(fabric::device& device, const inventory::facts& facts, const inventory::port& p,
              inventory::trial& t) {
    const auto* port = port_of(device, p.number);
    const auto all = ranked(facts, p);
    if (port == nullptr || all.empty() || all.front().rank <= 0) return;
    t.gid = all.front().entry->gid;
    std::vector<std::byte> memory(t.region_bytes);
    auto region = device.register_memory(memory, fabric::access::remote_read);
    t.allocate = region ? "ok" : text_of(region.error());
    if (!region) return;
    region->reset();
    for (const auto& entry : port->gids) {
        if (entry.gid.to_string() != t.gid || entry.index != all.front().entry->index) continue;
        t.loop = loop(device, *port, entry, t);
    }
    // A link-local address has no meaning without its link, which a GID does not name; and that
    // RDMA-CM is not there at all is env.rdma_cm's to say.
    if (!t.gid.starts_with("fe8")) {
        t.cm = connect_to_self(t.gid);
        if (t.cm.starts_with(fabric::cm_unavailable)) t.cm.clear();
    }
    for (const std::uint32_t bytes : {512U, 256U, 128U, 64U, 32U}) {
        auto queue = device.create_completion_queue(2);
        if (queue && device.create_queue_pair(*queue, port->number,
                                              {.send_requests = 1, .inline_bytes = bytes})) {
            t.inline_bytes = bytes;
            break;
        }
    }
    for (auto event = device.next_event(); event; event = device.next_event()) {
        // Creating and failing queue pairs raises events of their own; those of ports are news.
        if (event->kind == fabric::async_event_kind::port_error) t.async = "port error";
        if (event->kind == fabric::async_event_kind::device_fatal) t.async = "device error";
    }
    if (t.async.empty()) t.async = "ok";
}

}  // namespace

void try_devices(fabric::provider& provider, fabric::inventory::facts& facts) {
    for (auto& d : facts.devices) {
        if (!d.in_libibverbs || !d.uverbs_error.empty() || d.node_type == "RNIC") continue;
        auto device = provider.open(d.name);
        if (device) {
            auto path = (*device)->fast_path();
            d.fast_path = std::move(path.name);
            d.fast_path_detail = std::move(path.detail);
        }
        for (const auto& p : d.ports) {
            if (p.state != "ACTIVE") continue;
            inventory::trial t{.port = p.number, .region_bytes = 16U << 20};
            if (device) {
                try_port(**device, facts, p, t);
            } else {
                t.allocate = text_of(device.error());
            }
            d.trials.push_back(std::move(t));
        }
    }
}

}  // namespace rvget::diag
