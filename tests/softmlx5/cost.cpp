// Posts READs and polls their completions, one at a time: by ibv_wr_* and ibv_poll_cq, by the
// direct path's rings, and through the fabric interface over both. cost_test.py counts the
// instructions of the functions below that are named measured_*, and of nothing else.

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fabric/fabric.hpp"
#include "fabric/mlx5/completion_ring.hpp"
#include "fabric/mlx5/send_queue.hpp"
#include "fabric/mlx5/takeover.hpp"
#include "softmlx5/verbs_pair.hpp"

namespace {

namespace direct = rvget::fabric::mlx5;
namespace fabric = rvget::fabric;
using softmlx5::testing::end;
using softmlx5::testing::opened;

constexpr std::uint32_t bytes = 4096;

struct place {
    std::byte* local = nullptr;
    std::uint32_t local_key = 0;
    std::uint64_t remote = 0;
    std::uint32_t remote_key = 0;
};

[[noreturn]] void stop(const char* why) {
    std::fprintf(stderr, "%s\n", why);
    std::exit(1);
}

// Each counted apart, so never inlined; with C linkage to have plain names.
extern "C" {

[[gnu::noinline]] int measured_libmlx5_post(ibv_qp_ex* pair, const place* at) {
    ibv_wr_start(pair);
    pair->wr_id = 7;
    pair->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_read(pair, at->remote_key, at->remote);
    ibv_wr_set_sge(pair, at->local_key, reinterpret_cast<std::uintptr_t>(at->local), bytes);
    return ibv_wr_complete(pair);
}
[[gnu::noinline]] int measured_libmlx5_poll(ibv_cq* queue, ibv_wc* out) {
    return ibv_poll_cq(queue, 1, out);
}

[[gnu::noinline]] bool measured_rings_post(direct::send_queue<>* sends, const place* at) {
    const direct::local_piece piece{reinterpret_cast<std::uintptr_t>(at->local), bytes,
                                    at->local_key};
    const bool added = sends->add_read(7, {&piece, 1}, {at->remote, at->remote_key}, {});
    sends->ring();
    return added;
}
[[gnu::noinline]] bool measured_rings_poll(direct::completion_ring<>* completions,
                                           direct::send_queue<>* sends) {
    direct::ring_completion done;
    if (completions->poll(done) != direct::ring_poll::taken) return false;
    completions->publish();
    return done.status == fabric::completion_status::success && sends->complete(done.counter) == 7;
}

[[gnu::noinline]] bool measured_body_post(fabric::queue_pair* pair, const place* at) {
    const fabric::read_request request{.id = 7,
                                       .local = at->local,
                                       .local_key = at->local_key,
                                       .remote_address = at->remote,
                                       .remote_key = at->remote_key,
                                       .bytes = bytes};
    return pair->post_reads({&request, 1}).has_value();
}
[[gnu::noinline]] bool measured_body_poll(fabric::completion_queue* queue) {
    fabric::completion done;
    const auto got = queue->poll({&done, 1});
    return got && *got == 1 && done.id == 7 && done.status == fabric::completion_status::success;
}

}  // extern "C"

/// The numbers that one path needs; everything else is the same.
void by_libmlx5(int count) {
    opened on;
    end left(on, {.new_api = true});
    end right(on);
    left.connect(right);
    right.connect(left);
    const place at{on.here.data(), on.here_region->lkey,
                   reinterpret_cast<std::uintptr_t>(on.there.data()), on.there_region->rkey};
    for (int i = 0; i < count; ++i) {
        if (measured_libmlx5_post(ibv_qp_to_qp_ex(left.pair.get()), &at) != 0) stop("post");
        opened::settle();
        ibv_wc done{};
        if (measured_libmlx5_poll(left.sends.get(), &done) != 1) stop("poll");
        if (done.status != IBV_WC_SUCCESS) stop("status");
    }
}

void by_rings(int count) {
    opened on;
    end left(on);
    end right(on);
    left.connect(right);
    right.connect(left);
    std::string why;
    const auto* library = direct::library::find(why);
    if (library == nullptr) stop(why.c_str());
    direct::send_queue<> sends(library->take_over(left.pair.get()).value());
    direct::completion_ring<> completions(library->take_over(left.sends.get()).value());
    const place at{on.here.data(), on.here_region->lkey,
                   reinterpret_cast<std::uintptr_t>(on.there.data()), on.there_region->rkey};
    for (int i = 0; i < count; ++i) {
        if (!measured_rings_post(&sends, &at)) stop("post");
        opened::settle();
        if (!measured_rings_poll(&completions, &sends)) stop("poll");
    }
}

void by_body(int count, rvget::mlx5_choice choice) {
    softmlx5::front::machine::present();
    auto nic = fabric::make_provider(choice)->open("mlx5_0").value();
    auto queue = nic->create_completion_queue(64).value();
    auto other = nic->create_completion_queue(64).value();
    auto reader = nic->create_queue_pair(queue, 1, {.send_requests = 16, .binds = false}).value();
    auto owner = nic->create_queue_pair(other, 1, {}).value();
    const auto& port = nic->facts().ports.front();
    const auto& gid = port.gids.back();
    const auto join = [&](fabric::queue_pair& own, const fabric::queue_pair& peer) {
        own.to_init(fabric::access::remote_read).value();
        fabric::receive_parameters receive;
        receive.peer = {.number = peer.number(),
                        .starting_psn = 7,
                        .gid = gid.gid.bytes,
                        .path_mtu = 1024,
                        .read_depth = 16};
        receive.path_mtu = 1024;
        receive.responder_depth = 16;
        receive.gid_index = gid.index;
        own.to_ready_to_receive(receive).value();
        own.to_ready_to_send({.starting_psn = 7, .initiator_depth = 16}).value();
    };
    join(*reader, *owner);
    join(*owner, *reader);
    alignas(4096) static std::byte memory[2 * bytes];
    const auto region =
        nic->register_memory(memory, fabric::access::local_write | fabric::access::remote_read)
            .value();
    const place at{memory, region->local_key(), reinterpret_cast<std::uintptr_t>(memory + bytes),
                   region->remote_key()};
    for (int i = 0; i < count; ++i) {
        if (!measured_body_post(reader.get(), &at)) stop("post");
        opened::settle();
        if (!measured_body_poll(queue.get())) stop("poll");
    }
}

}  // namespace

/// usage: cost libmlx5|rings|verbs|mlx5 COUNT
int main(int argc, char** argv) {
    if (argc != 3) return 2;
    const std::string_view path = argv[1];
    const int count = std::atoi(argv[2]);
    if (path == "libmlx5") by_libmlx5(count);
    if (path == "rings") by_rings(count);
    if (path == "verbs") by_body(count, rvget::mlx5_choice::off);
    if (path == "mlx5") by_body(count, rvget::mlx5_choice::verbs_qp);
    return softmlx5::front::machine::instance().nic().violations().all().empty() ? 0 : 1;
}
