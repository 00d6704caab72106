#pragma once
// Two hosts on a simulated network, a queue pair each, ready to READ: "a" consumes, "b" owns.

#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "fabric/fabric.hpp"
#include "fabric/sim/network.hpp"

namespace rvget::fabric {

inline std::ostream& operator<<(std::ostream& out, completion_status s) {
    return out << "status " << static_cast<int>(s);
}
inline std::ostream& operator<<(std::ostream& out, queue_pair_state s) {
    return out << "state " << static_cast<int>(s);
}
inline std::ostream& operator<<(std::ostream& out, operation o) {
    return out << "operation " << static_cast<int>(o);
}

namespace sim {

inline std::ostream& operator<<(std::ostream& out, step_kind kind) {
    return out << to_string(kind);
}

/// One host's end of a connection. Members are destroyed last to first: queue pair before windows
/// and regions, all of them before the memory.
struct end {
    std::vector<std::byte> memory = std::vector<std::byte>(64 * 1024);
    std::unique_ptr<provider> nics;
    std::shared_ptr<fabric::device> device;
    std::shared_ptr<completion_queue> completions;
    std::unique_ptr<memory_region> region;
    std::unique_ptr<queue_pair> qp;
    route::gid gid;

    void open(std::unique_ptr<provider> from, const route::gid& own,
              std::uint32_t completion_entries = 256) {
        nics = std::move(from);
        gid = own;
        device = nics->open("sim0").value();
        completions = device->create_completion_queue(completion_entries).value();
        region = device->register_memory(memory, access::local_write | access::remote_read).value();
    }
    [[nodiscard]] std::unique_ptr<queue_pair> make(const queue_pair_options& options = {}) const {
        auto made = device->create_queue_pair(completions, 1, options).value();
        made->to_init(access::remote_read).value();
        return made;
    }
    [[nodiscard]] std::span<std::byte> part(std::size_t offset, std::size_t bytes) {
        return std::span(memory).subspan(offset, bytes);
    }
    void fill(unsigned char value) { std::memset(memory.data(), value, memory.size()); }
    /// The next completion, if one was delivered.
    [[nodiscard]] std::optional<completion> poll() const {
        completion c;
        return completions->poll({&c, 1}).value() == 1 ? std::optional(c) : std::nullopt;
    }
};

struct connection_options {
    std::uint8_t initiator_depth = 16;
    std::uint8_t responder_depth = 16;
    std::uint32_t mtu_a = 1024;
    std::uint32_t mtu_b = 1024;
    retry_parameters retry{};
};

/// Parameters for the end that talks to `peer`; each end's starting PSN is its number.
inline receive_parameters towards(const queue_pair& peer, const route::gid& gid) {
    receive_parameters p;
    p.peer.number = peer.number();
    p.peer.starting_psn = peer.number();
    p.peer.gid = gid.bytes;
    p.path_mtu = 1024;
    p.responder_depth = 16;
    p.gid_index = 1;
    return p;
}

inline void connect(const end& a, queue_pair& qa, const end& b, queue_pair& qb,
                    const connection_options& options = {}) {
    auto to_b = towards(qb, b.gid);
    auto to_a = towards(qa, a.gid);
    to_b.path_mtu = options.mtu_a;
    to_a.path_mtu = options.mtu_b;
    to_b.responder_depth = to_a.responder_depth = options.responder_depth;
    qa.to_ready_to_receive(to_b).value();
    qb.to_ready_to_receive(to_a).value();
    qa.to_ready_to_send({qa.number(), options.initiator_depth, options.retry}).value();
    qb.to_ready_to_send({qb.number(), options.initiator_depth, options.retry}).value();
}

struct two_hosts {
    network net;
    end a;
    end b;

    explicit two_hosts(const network_options& options = {1024}) : net(options) {
        a.open(net.attach(roce_host("a", ipv4_gid(10, 0, 0, 1))), ipv4_gid(10, 0, 0, 1));
        b.open(net.attach(roce_host("b", ipv4_gid(10, 0, 0, 2))), ipv4_gid(10, 0, 0, 2));
        b.fill(0xbb);
    }
    void connect_ends(const connection_options& options = {},
                      const queue_pair_options& queue_pairs = {}) {
        a.qp = a.make(queue_pairs);
        b.qp = b.make(queue_pairs);
        connect(a, *a.qp, b, *b.qp, options);
    }
    /// A READ of `bytes` from b's memory into a's, the same offset on both sides.
    [[nodiscard]] read_request read(std::uint64_t id, std::size_t offset, std::uint32_t bytes,
                                    bool signalled = true) {
        return {id,
                a.memory.data() + offset,
                a.region->local_key(),
                reinterpret_cast<std::uint64_t>(b.memory.data() + offset),
                b.region->remote_key(),
                bytes,
                signalled};
    }
    void post(const read_request& request) { a.qp->post_reads({&request, 1}).value(); }
    /// Runs the first step of `kind`; false when there is none.
    bool step(step_kind kind) {
        for (std::size_t i = 0; i < net.runnable(); ++i) {
            if (net.at(i).kind != kind) continue;
            net.step(i);
            return true;
        }
        return false;
    }
    [[nodiscard]] std::size_t arrived(std::size_t offset, std::size_t bytes) const {
        std::size_t n = 0;
        while (n < bytes && a.memory[offset + n] == std::byte{0xbb}) ++n;
        return n;
    }
    /// Takes both ends to error and polls until nothing is outstanding.
    void drain() {
        for (auto* e : {&a, &b}) {
            if (e->qp) e->qp->to_error().value();
        }
        net.run();
        while (a.poll() || b.poll()) {
        }
    }
};

}  // namespace sim
}  // namespace rvget::fabric
