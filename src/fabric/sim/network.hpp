#pragma once
// A simulated RDMA network for tests: hosts with NICs in one process, deterministic, with late DMA.
//
// Nothing moves by itself. Posted work becomes pending *steps*; whoever drives the network asks how
// many there are and runs them one at a time, in any order it likes:
//
//     sim::network net;
//     auto a = net.attach(sim::roce_host("a", sim::ipv4_gid(10, 0, 0, 1)));
//     auto b = net.attach(sim::roce_host("b", sim::ipv4_gid(10, 0, 0, 2)));
//     ... open devices, connect queue pairs, post READs ...
//     while (auto n = net.runnable()) net.step(pick(n));
//     BOOST_TEST(net.violations().empty());
//
// Order within one queue pair is that of Reliable Connection; between queue pairs there is none.
// Keys, rights, ranges, protection domains and the states of both ends are judged at each piece, as
// a NIC judges each packet. A queue pair that enters the error state may still move pieces of READs
// that were in flight until each is flushed (requester) or it is destroyed (responder).
//
// Threads: every call here and on every object behind the seam may come from any thread.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/fabric.hpp"

namespace rvget::fabric::sim {

class world;

/// One NIC of a host. `facts` is what list() and facts() report; the limits in it are enforced.
struct device_options {
    route::device_facts facts;
    fabric::quirks quirks;
    /// register_memory fails ("memlock") once this many bytes would be registered at a time.
    std::size_t registration_limit_bytes = std::numeric_limits<std::size_t>::max();
};

/// One host: one process with its own memory, as far as the network is concerned.
struct host_options {
    std::string name;  ///< unique in the network
    std::vector<device_options> devices;
};

/// The IPv4-mapped GID of a.b.c.d.
[[nodiscard]] route::gid ipv4_gid(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d);

/// A RoCE v2 NIC with one active port, MTU 1024, READ depth 16, type-2 windows, messages of up to
/// 1 GiB. Its GID table has a hole at 0; `gids` stand at indices 1, 2, ...
[[nodiscard]] device_options roce_device(std::string name, const std::vector<route::gid>& gids);
/// A host with one such NIC, "sim0".
[[nodiscard]] host_options roce_host(std::string name, const route::gid& gid);

struct network_options {
    /// READs move and become visible in pieces of at most this size.
    std::uint32_t piece_bytes = 4096;
};

enum class step_kind : std::uint8_t {
    read_piece,  ///< move one piece of the oldest READ
    late_piece,  ///< the same although one end is in error already
    send,        ///< move a SEND into the peer's oldest posted receive
    bind,
    invalidate,
    marker,
    request_lost,        ///< the oldest request finds no peer (or no receive) and begins to retry
    retry_timeout,       ///< its retries are used up
    local_failure,       ///< it fails at once: own link down, or own GID gone
    flush,               ///< flush one request of a send queue in error
    completion,          ///< deliver one send-side completion to its completion queue
    receive_completion,  ///< deliver one receive completion
    receive_flush,       ///< flush one posted receive in error
};
[[nodiscard]] std::string_view to_string(step_kind kind) noexcept;

/// What one step would do now.
struct step_info {
    step_kind kind = step_kind::marker;
    std::size_t host = 0;  ///< in order of attach()
    std::uint32_t queue_pair_number = 0;
    std::uint64_t id = 0;      ///< of the work request
    std::uint32_t offset = 0;  ///< pieces: where the piece begins within the READ
    std::uint32_t bytes = 0;   ///< pieces and SENDs: how much it moves
};

class network {
public:
    explicit network(const network_options& options = {});
    ~network();  ///< stops the background thread; objects of the seam may outlive the network
    network(const network&) = delete;
    network& operator=(const network&) = delete;

    /// Adds a host and returns its access to the network. Throws std::invalid_argument for a name
    /// that is taken.
    std::unique_ptr<provider> attach(host_options options);

    // --- Driving -------------------------------------------------------------------------------

    /// How many steps could run now.
    [[nodiscard]] std::size_t runnable() const;
    /// What step `index` would do; `describe` says it for people. `index` < runnable().
    [[nodiscard]] step_info at(std::size_t index) const;
    [[nodiscard]] std::string describe(std::size_t index) const;
    /// Runs step `index`. Indices are renumbered by every step, post and state change, the same way
    /// in every run. Throws std::out_of_range when there is no such step.
    void step(std::size_t index);
    /// Runs the first step until none is left or `limit` ran; returns how many ran.
    std::size_t run(std::size_t limit = std::numeric_limits<std::size_t>::max());

    void set_piece_bytes(std::uint32_t bytes);

    /// Starts or stops a thread that runs steps in an order drawn from `seed`. From the first start
    /// on, completion queues and devices have event descriptors, and retries take their real time.
    void run_in_background(bool on, std::uint64_t seed = 1);

    // --- Scripted faults -----------------------------------------------------------------------

    /// Drops everything between two hosts, or no longer.
    void drop_between(std::string_view host_a, std::string_view host_b, bool dropped = true);
    /// The host's process is gone: its queue pairs answer and complete nothing, ever again. Its
    /// objects may then be destroyed in any state without violation; another host may take its GID.
    void kill_host(std::string_view host);
    /// A port goes down or comes back (port_error, port_active). Own requests fail at once with
    /// local_queue_pair_operation, the peer's with retry_exceeded.
    void set_link(std::string_view host, std::string_view device, std::uint8_t port, bool up);
    /// Replaces a port's GID table (gid_change). A queue pair whose GID is not at its index any
    /// more fails as with a link that is down.
    void set_gids(std::string_view host, std::string_view device, std::uint8_t port,
                  std::vector<route::gid_entry> gids);
    /// Changes a port's active MTU; there is no event, as on Linux. Seen after refresh().
    void set_active_mtu(std::string_view host, std::string_view device, std::uint8_t port,
                        std::uint32_t mtu);
    /// The next `reads` READs of `host` complete with success, move nothing and leave their queue
    /// pair in error. With the quirk `success_needs_state_query` poll() says false_success.
    void false_success(std::string_view host, unsigned reads = 1);
    /// The next `reads` READs of `host` are refused by their peer's NIC, as if their keys were
    /// revoked: both queue pairs go to error.
    void refuse_reads(std::string_view host, unsigned reads = 1);
    /// The next `times` to_ready_to_receive of `host` fail with `error_number`.
    void fail_ready_to_receive(std::string_view host, int error_number, unsigned times = 1);

    // --- Oracles -------------------------------------------------------------------------------

    /// What the users of the seam did that it forbids, in order. Empty for a correct program.
    [[nodiscard]] std::vector<std::string> violations() const;
    /// Whether a NIC may still write into `memory`, or whether its user cannot know yet that it
    /// will not: READs whose completion was not delivered, and posted receives.
    [[nodiscard]] bool dma_pending_into(std::span<const std::byte> memory) const;
    /// Whether a NIC may still read from `memory`: READs that are posted and would be served as
    /// things stand (key, right, queue pairs), and SENDs whose completion was not delivered.
    [[nodiscard]] bool dma_pending_from(std::span<const std::byte> memory) const;

    /// Called at each piece of DMA, just before it, with the memory that is written (READ sink,
    /// receive buffer) or read (READ source, SEND source). Must not call into the network or the
    /// seam. Set before work is posted.
    using dma_hook = std::function<void(std::span<const std::byte>)>;
    void on_write(dma_hook hook);
    void on_read(dma_hook hook);

private:
    std::shared_ptr<world> world_;
};

}  // namespace rvget::fabric::sim
