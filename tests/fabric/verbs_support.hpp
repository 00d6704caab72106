#pragma once
// What the tests on a real verbs device share: the device, two queue pairs joined to each other,
// and waiting for completions by events. Everything goes through fabric.hpp.

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <poll.h>

#include <boost/test/unit_test.hpp>

#include "fabric/fabric.hpp"
#include "route/choose.hpp"

namespace verbs_support {

using namespace rvget;
using namespace rvget::fabric;
using rvget::fabric::access;  // not unistd.h's

/// Takes the value out of a result; a failure ends the test with its text.
template <class T>
T need(result<T> r) {
    if (!r) BOOST_FAIL(r.error().message());
    if constexpr (!std::is_void_v<T>) return std::move(*r);
}

/// The device under test: RVGET_RDMA_DEVICE, else the first. Without any the test fails: a run that
/// met no device has shown nothing.
inline std::shared_ptr<device> open_device() {
    auto provider = make_provider(node_options::from_environment().mlx5);
    std::string name;
    if (const char* wanted = std::getenv("RVGET_RDMA_DEVICE")) {
        name = wanted;
    } else {
        auto all = need(provider->list());
        BOOST_REQUIRE_MESSAGE(!all.empty(), "no RDMA device: run this under ci/softroce");
        name = all.front().name;
    }
    return need(provider->open(name));
}

inline std::byte pattern(std::size_t i) {
    return static_cast<std::byte>((i * 31 + (i >> 8)) & 0xff);
}

/// Page-aligned memory with its registration.
struct buffer {
    buffer(device& d, std::size_t size, access rights) {
        size_ = size;
        memory_.reset(
            static_cast<std::byte*>(std::aligned_alloc(4096, (size + 4095) / 4096 * 4096)));
        std::memset(memory_.get(), 0, size);
        region = need(d.register_memory(bytes(), rights));
    }
    [[nodiscard]] std::span<std::byte> bytes() const { return {memory_.get(), size_}; }
    void fill() {
        for (std::size_t i = 0; i < size_; ++i) memory_.get()[i] = pattern(i);
    }

    struct freer {
        void operator()(std::byte* p) const { std::free(p); }
    };
    std::unique_ptr<std::byte, freer> memory_;
    std::size_t size_ = 0;
    std::unique_ptr<memory_region> region;
};

/// Everything that completes on `queue` until there are `count` completions, parked on the event
/// descriptor in between; a test that waits 20 s has failed.
inline std::vector<completion> wait(fabric::completion_queue& queue, std::size_t count) {
    std::vector<completion> all;
    completion some[16];
    while (all.size() < count) {
        need(queue.arm());
        for (;;) {
            const auto n = need(queue.poll(some));
            if (n == 0) break;
            all.insert(all.end(), some, some + n);
        }
        if (all.size() >= count) break;
        pollfd descriptor{queue.event_descriptor(), POLLIN, 0};
        const int ready = ::poll(&descriptor, 1, 20'000);
        if (ready != 1) BOOST_FAIL("no completion within 20 s; " << all.size() << " of " << count);
        queue.consume_events();
    }
    BOOST_REQUIRE_EQUAL(all.size(), count);
    return all;
}

inline completion wait_one(fabric::completion_queue& queue) { return wait(queue, 1).front(); }

/// The GID to use: what the route layer chooses for a peer on this host (or `own_address`).
inline route::candidate chosen(const device& d, const std::string& own = "127.0.0.1",
                               const std::string& peer = "127.0.0.1") {
    const std::vector facts{d.facts()};
    const auto choice = route::choose(facts, {own, peer});
    BOOST_REQUIRE_MESSAGE(choice.winner() != nullptr, choice.refusal);
    return *choice.winner();
}

inline wire::queue_pair_facts facts_of(const fabric::queue_pair& qp, const route::candidate& at,
                                       std::uint32_t psn) {
    return {.number = qp.number(),
            .starting_psn = psn,
            .gid = at.entry.gid.bytes,
            .lid = at.lid,
            .path_mtu = at.active_mtu,
            .read_depth = 16};
}

struct connect_options {
    access remote_rights = access::remote_read;
    std::uint32_t path_mtu = 0;  ///< 0: the port's
    retry_parameters retry{};
};

inline void connect(fabric::queue_pair& qp, const route::candidate& at, std::uint32_t own_psn,
                    const wire::queue_pair_facts& peer, const connect_options& o = {}) {
    need(qp.to_init(o.remote_rights));
    receive_parameters receive;
    receive.peer = peer;
    receive.path_mtu = o.path_mtu != 0 ? o.path_mtu : at.active_mtu;
    receive.responder_depth = 16;
    receive.gid_index = at.entry.index;
    need(qp.to_ready_to_receive(receive));
    need(qp.to_ready_to_send({.starting_psn = own_psn, .initiator_depth = 16, .retry = o.retry}));
}

inline queue_pair_options without_binds(queue_pair_options options) {
    options.binds = false;
    return options;
}

/// Two queue pairs of one device, joined: `reader` posts, `owner` answers, and may bind windows.
struct loopback {
    explicit loopback(queue_pair_options options = {}, connect_options how = {})
        : nic(open_device()),
          reader_queue(need(nic->create_completion_queue(256))),
          owner_queue(need(nic->create_completion_queue(256))),
          reader(need(nic->create_queue_pair(reader_queue, 1, without_binds(options)))),
          owner(need(nic->create_queue_pair(owner_queue, 1, options))),
          at(chosen(*nic)) {
        connect(*reader, at, 0x123456, facts_of(*owner, at, 0xabcdef), how);
        connect(*owner, at, 0xabcdef, facts_of(*reader, at, 0x123456), how);
    }

    std::shared_ptr<device> nic;
    std::shared_ptr<fabric::completion_queue> reader_queue;
    std::shared_ptr<fabric::completion_queue> owner_queue;
    std::unique_ptr<fabric::queue_pair> reader;
    std::unique_ptr<fabric::queue_pair> owner;
    route::candidate at;
};

inline read_request read_of(const buffer& to, const buffer& from, std::uint64_t id,
                            std::uint32_t bytes, bool signalled = true) {
    return {.id = id,
            .local = to.bytes().data(),
            .local_key = to.region->local_key(),
            .remote_address = reinterpret_cast<std::uintptr_t>(from.bytes().data()),
            .remote_key = from.region->remote_key(),
            .bytes = bytes,
            .signalled = signalled};
}

}  // namespace verbs_support
