#pragma once
// A consumer on the bare fabric that ignores the protocol: it takes leases and READs with their
// keys whenever it likes, also after their end and over other queue pairs.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "api/raw_peer.hpp"
#include "fabric/fabric.hpp"
#include "wire/descriptor.hpp"
#include "wire/frames.hpp"

namespace rvget::test {

class rogue_consumer {
public:
    /// Opens the first device of `provider` and greets the owner at `port` of loopback, or on
    /// `socket`.
    rogue_consumer(fabric::provider& provider, raw_socket socket, std::size_t sink_bytes)
        : socket_(std::move(socket)), sink_(sink_bytes) {
        const auto devices = provider.list().value();
        device_ = provider.open(devices.at(0).name).value();
        completions_ = device_->create_completion_queue(256).value();
        region_ = device_->register_memory(sink_, fabric::access::local_write).value();
        for (const auto& p : device_->facts().ports)
            for (const auto& g : p.gids)
                if (g.gid.to_string().find('.') != std::string::npos) {
                    port_ = p.number;
                    gid_ = g;
                    mtu_ = p.active_mtu;
                }
        socket_.write(wire::frame{0, wire::hello{.node = node_id{0x70617e}}});
        if (!socket_.read_frame()) throw std::runtime_error("the owner does not greet");
    }
    ~rogue_consumer() { drop_lane(); }
    rogue_consumer(const rogue_consumer&) = delete;
    rogue_consumer& operator=(const rogue_consumer&) = delete;

    /// Takes a lease of a whole slot over RDMA, wiring a lane first where there is none.
    wire::descriptor lease(std::uint64_t slot) {
        wire::acquire a;
        a.slot = slot;
        a.deadline_ms = 60'000;
        a.force = true;
        const bool fresh = !queue_pair_;
        if (fresh) make_queue_pair();
        a.offer = wire::lane_offer{.generation = generation_};
        if (!connected_) a.offer->facts = facts();
        const auto reply = ask<wire::acquire_reply>(a);
        if (reply.answer != wire::answer::rdma || !reply.descriptor)
            throw std::runtime_error("no RDMA answer: " + std::string(to_string(reply.why)) + " " +
                                     reply.detail);
        if (!connected_) connect(reply.lane_facts.value());
        return wire::decode_descriptor(*reply.descriptor).value();
    }
    /// Another queue pair for what follows; the owner is told as a well-behaved consumer would.
    void drop_lane() {
        if (!queue_pair_) return;
        static_cast<void>(queue_pair_->to_error());
        const auto id = next_id_++;
        if (queue_pair_->post_marker(id)) static_cast<void>(await(id));
        queue_pair_.reset();
        connected_ = false;
        socket_.write(wire::frame{0, wire::lane_down{generation_, reason::get_failed}});
    }
    /// READs with `key` through whatever lane there is, into a sink that was zeroed before.
    fabric::completion_status read(std::uint64_t address, std::uint32_t key, std::size_t size) {
        std::fill(sink_.begin(), sink_.end(), std::byte{0});
        const auto id = next_id_++;
        const fabric::read_request r{.id = id,
                                     .local = sink_.data(),
                                     .local_key = region_->local_key(),
                                     .remote_address = address,
                                     .remote_key = key,
                                     .bytes = static_cast<std::uint32_t>(size)};
        if (auto posted = queue_pair_->post_reads({&r, 1}); !posted)
            throw std::runtime_error(posted.error().message());
        return await(id);
    }
    [[nodiscard]] std::span<const std::byte> sink() const noexcept { return sink_; }
    [[nodiscard]] bool sink_untouched() const {
        return std::all_of(sink_.begin(), sink_.end(),
                           [](std::byte b) { return b == std::byte{0}; });
    }
    wire::metadata_reply metadata(std::uint64_t slot) {
        return ask<wire::metadata_reply>(wire::metadata_request{slot});
    }

private:
    template <class Reply>
    Reply ask(const wire::body& what) {
        const auto id = next_request_++;
        socket_.write(wire::frame{id, what});
        while (auto f = socket_.read_frame())
            if (f->frame.id == id)
                if (auto* r = std::get_if<Reply>(&f->frame.body)) return *r;
        throw std::runtime_error("the owner closed the connection");
    }
    wire::queue_pair_facts facts() const {
        wire::queue_pair_facts f;
        f.number = queue_pair_->number();
        f.starting_psn = 0x123;
        f.gid = gid_.gid.bytes;
        f.path_mtu = mtu_;
        f.read_depth = 1;
        return f;
    }
    void make_queue_pair() {
        ++generation_;
        queue_pair_ =
            device_->create_queue_pair(completions_, port_, {.send_requests = 4, .binds = false})
                .value();
        queue_pair_->to_init(fabric::access::none).value();
    }
    void connect(const wire::queue_pair_facts& owner) {
        fabric::receive_parameters rp;
        rp.peer = owner;
        rp.path_mtu = std::min<std::uint32_t>(owner.path_mtu, mtu_);
        rp.gid_index = gid_.index;
        queue_pair_->to_ready_to_receive(rp).value();
        fabric::send_parameters sp;
        sp.starting_psn = 0x123;
        sp.initiator_depth = 1;
        queue_pair_->to_ready_to_send(sp).value();
        connected_ = true;
    }
    fabric::completion_status await(std::uint64_t id) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        std::array<fabric::completion, 16> batch;
        while (std::chrono::steady_clock::now() < end) {
            const auto n = completions_->poll(batch).value();
            for (std::size_t i = 0; i < n; ++i)
                if (batch[i].id == id) return batch[i].status;
            if (n == 0) std::this_thread::yield();
        }
        throw std::runtime_error("no completion in 20 s");
    }

    raw_socket socket_;
    std::vector<std::byte> sink_;
    std::shared_ptr<fabric::device> device_;
    std::shared_ptr<fabric::completion_queue> completions_;
    std::unique_ptr<fabric::memory_region> region_;
    std::unique_ptr<fabric::queue_pair> queue_pair_;
    std::uint8_t port_ = 1;
    route::gid_entry gid_;
    std::uint32_t mtu_ = 1024;
    std::uint32_t generation_ = 0;
    bool connected_ = false;
    std::uint64_t next_id_ = 1;
    std::uint64_t next_request_ = 1;
};

}  // namespace rvget::test
