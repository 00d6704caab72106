#include "engine/lease_key_proof.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>

#include "engine/page_mapping.hpp"
#include "engine/rdma_context.hpp"

namespace rvget::engine {
namespace {

using fabric::access;
using steady = std::chrono::steady_clock;

/// A device that does not answer a READ to itself in this time is of no use.
constexpr auto patience = std::chrono::seconds(3);
constexpr std::size_t range_bytes = 4096;

/// One try. What it makes goes in an order that no device minds: windows before their queue pair,
/// queue pairs in error and drained.
class proof {
public:
    explicit proof(rdma_context& rdma) : rdma_(rdma) {}
    ~proof();
    proof(const proof&) = delete;
    proof& operator=(const proof&) = delete;

    result<void> run(wire::lease_mode mode);

private:
    result<void> connect();
    result<void> grant(wire::lease_mode mode);
    result<void> take_away(wire::lease_mode mode);
    result<fabric::completion_status> read();
    /// The completion of what was posted on `qp` with `id`; others are dropped.
    result<fabric::completion> await(const fabric::queue_pair& qp, std::uint64_t id);
    result<void> expect(const fabric::queue_pair& qp, std::uint64_t id, const char* step);

    rdma_context& rdma_;
    std::unique_ptr<fabric::queue_pair> reader_;
    std::unique_ptr<fabric::queue_pair> owner_;
    page_mapping source_;
    page_mapping sink_;
    std::unique_ptr<fabric::memory_region> source_region_;
    std::unique_ptr<fabric::memory_region> sink_region_;
    std::unique_ptr<fabric::memory_region> exact_;
    std::unique_ptr<fabric::memory_window> window_;
    std::uint32_t key_ = 0;
    std::uint64_t next_id_ = 1;
};

failure step_failed(const std::string& step, const failure& why) {
    return {why.code, step + ": " + why.message()};
}

/// Drained first: neither is destroyed with work posted. What cannot be drained is leaked.
proof::~proof() {
    for (auto* qp : {&reader_, &owner_}) {
        if (!*qp) continue;
        const auto id = next_id_++;
        const bool quiet = (*qp)->to_error() && (*qp)->post_marker(id) && await(**qp, id);
        if (qp == &owner_ && quiet) window_.reset();
        if (!quiet) {
            static_cast<void>(qp->release());
            static_cast<void>(window_.release());
            static_cast<void>(exact_.release());
            static_cast<void>(sink_region_.release());
            static_cast<void>(source_region_.release());
            static_cast<void>(new page_mapping(std::move(sink_)));
            static_cast<void>(new page_mapping(std::move(source_)));
        }
        qp->reset();
    }
}

result<fabric::completion> proof::await(const fabric::queue_pair& qp, std::uint64_t id) {
    std::array<fabric::completion, 16> batch;
    const auto end = steady::now() + patience;
    while (steady::now() < end) {
        auto n = rdma_.reading_queue()->poll(batch);
        if (!n) return n.error();
        for (std::size_t i = 0; i < n.value(); ++i)
            if (batch[i].queue_pair_number == qp.number() && batch[i].id == id) return batch[i];
        if (n.value() == 0) std::this_thread::yield();
    }
    return failure{device_errc::query_failed, "no completion in 3 s"};
}

result<void> proof::expect(const fabric::queue_pair& qp, std::uint64_t id, const char* step) {
    auto c = await(qp, id);
    if (!c) return step_failed(step, c.error());
    if (c->status == fabric::completion_status::success) return {};
    return failure{device_errc::query_failed,
                   std::string(step) + " ended with \"" + std::string(to_string(c->status)) + "\""};
}

result<void> proof::connect() {
    auto port = rdma_.own_port();
    if (!port) return port.error();
    const auto& identity = port.value().identity;
    for (auto* qp : {&reader_, &owner_}) {
        auto made = rdma_.create_queue_pair(rdma_.reading_queue(), identity.port, 4);
        if (!made) return made.error();
        *qp = std::move(made.value());
        if (auto r = (*qp)->to_init(qp == &owner_ ? access::remote_read : access::none); !r)
            return r;
    }
    for (auto* qp : {&reader_, &owner_}) {
        fabric::receive_parameters rp;
        rp.peer.number = (qp == &reader_ ? owner_ : reader_)->number();
        rp.peer.gid = identity.gid.bytes;
        rp.peer.lid = identity.lid;
        rp.peer.path_mtu = identity.active_mtu;
        rp.path_mtu = identity.active_mtu;
        rp.responder_depth = qp == &owner_ ? 1 : 0;
        rp.gid_index = identity.gid_index;
        rp.min_rnr_timer = rdma_.retry().min_rnr_timer;
        fabric::send_parameters sp;
        sp.initiator_depth = qp == &reader_ ? 1 : 0;
        sp.retry = rdma_.retry();
        if (auto r = (*qp)->to_ready_to_receive(rp); !r) return r;
        if (auto r = (*qp)->to_ready_to_send(sp); !r) return r;
    }
    return {};
}

result<void> proof::grant(wire::lease_mode mode) {
    const auto range = source_.bytes().first(range_bytes);
    if (mode == wire::lease_mode::exact) {
        auto exact = rdma_.device()->register_memory(range, access::remote_read);
        if (!exact) return step_failed("registering a range for reading alone", exact.error());
        exact_ = std::move(exact.value());
        key_ = exact_->remote_key();
        return {};
    }
    auto region =
        rdma_.device()->register_memory(source_.bytes(), access::local_write | access::window_bind);
    if (!region) return step_failed("registering memory for windows", region.error());
    source_region_ = std::move(region.value());
    auto window = rdma_.device()->allocate_window();
    if (!window) return step_failed("allocating a memory window", window.error());
    window_ = std::move(window.value());
    const auto id = next_id_++;
    if (auto r = owner_->post_bind(id, *window_, *source_region_, range, access::remote_read, true);
        !r)
        return step_failed("binding a memory window", r.error());
    key_ = window_->remote_key();
    return expect(*owner_, id, "binding a memory window");
}

result<void> proof::take_away(wire::lease_mode mode) {
    if (mode == wire::lease_mode::exact) {
        exact_.reset();
        return {};
    }
    const auto id = next_id_++;
    if (auto r = owner_->post_invalidate(id, *window_, true); !r)
        return step_failed("invalidating a memory window", r.error());
    return expect(*owner_, id, "invalidating a memory window");
}

result<fabric::completion_status> proof::read() {
    const auto id = next_id_++;
    const fabric::read_request r{
        .id = id,
        .local = sink_.bytes().data(),
        .local_key = sink_region_->local_key(),
        .remote_address = reinterpret_cast<std::uintptr_t>(source_.bytes().data()),
        .remote_key = key_,
        .bytes = range_bytes};
    if (auto posted = reader_->post_reads({&r, 1}); !posted) return posted.error();
    auto c = await(*reader_, id);
    if (!c) return c.error();
    return c->status;
}

result<void> proof::run(wire::lease_mode mode) {
    for (auto* m : {&source_, &sink_}) {
        auto mapped = page_mapping::map(std::max(page_mapping::page_bytes(), range_bytes));
        if (!mapped) return mapped.error();
        *m = std::move(mapped.value());
    }
    const auto from = source_.bytes().first(range_bytes);
    const auto into = sink_.bytes().first(range_bytes);
    for (std::size_t i = 0; i < range_bytes; ++i)
        from[i] = static_cast<std::byte>((i * 31 + (i >> 8)) & 0xff);
    auto sink = rdma_.device()->register_memory(sink_.bytes(), access::local_write);
    if (!sink) return sink.error();
    sink_region_ = std::move(sink.value());
    if (auto r = connect(); !r)
        return step_failed("connecting two queue pairs of its own", r.error());
    if (auto r = grant(mode); !r) return r;

    auto first = read();
    if (!first) return step_failed("a READ with the key", first.error());
    if (first.value() != fabric::completion_status::success)
        return failure{device_errc::query_failed, "a READ with the key ended with \"" +
                                                      std::string(to_string(first.value())) + "\""};
    if (!std::ranges::equal(from, into))
        return failure{device_errc::query_failed, "a READ with the key brought other bytes"};
    if (auto r = take_away(mode); !r) return r;
    std::ranges::fill(into, std::byte{0});
    auto late = read();
    if (!late) return step_failed("a READ after the key was taken away", late.error());
    const bool touched = std::ranges::any_of(into, [](std::byte b) { return b != std::byte{0}; });
    if (late.value() == fabric::completion_status::success || touched)
        return failure{device_errc::query_failed,
                       "a READ after the key was taken away was not refused"};
    return {};
}

}  // namespace

result<void> prove_lease_key(rdma_context& rdma, wire::lease_mode mode) {
    if (mode == wire::lease_mode::window && !rdma.device()->facts().memory_windows_type2)
        return failure{device_errc::none, "the device has no type-2 memory windows"};
    return proof(rdma).run(mode);
}

}  // namespace rvget::engine
