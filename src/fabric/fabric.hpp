#pragma once
// The seam between the rendezvous and a NIC. Everything above it speaks only this; beneath it stand
// the bodies: verbs (libibverbs), mlx5, the simulated NIC, and a fault decorator over any of them.
//
// Ownership: a child keeps its parents alive (queue pair -> completion queue -> device), so
// destroying in any order is safe. Threads: a completion queue and its queue pairs' posting calls
// are used from one thread at a time (the reactor's strand); making, modifying and destroying may
// run on a worker thread as long as nobody posts to that object meanwhile.
// Errors: every call returns a failure that names the device, the call and errno; nothing throws.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rvget/config.hpp>
#include <rvget/error.hpp>

#include "fabric/connection.hpp"
#include "route/facts.hpp"
#include "wire/queue_pair_facts.hpp"

namespace rvget::fabric {

/// Rights of a memory region, a window or the remote side of a queue pair; combine with |.
enum class access : std::uint32_t {
    none = 0,
    local_write = 1,
    remote_read = 2,
    window_bind = 4,
    remote_write = 8,  ///< only ever on the reading side of iWARP, where a READ's sink needs it
};
constexpr access operator|(access a, access b) noexcept {
    return static_cast<access>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}
constexpr bool has(access set, access right) noexcept {
    return (static_cast<std::uint32_t>(set) & static_cast<std::uint32_t>(right)) != 0;
}

/// The outcome of one work request, in the order of the InfiniBand specification's names
/// (o1-11.6.2); `to_string` gives the usual text ("transport retry counter exceeded").
enum class completion_status : std::uint8_t {
    success,
    local_length,
    local_queue_pair_operation,
    local_protection,
    flushed,  ///< the queue pair went to error before this request ran
    memory_window_bind,
    bad_response,
    local_access,
    remote_invalid_request,
    remote_access,  ///< the key, the range or the right was refused by the peer's NIC
    remote_operation,
    retry_exceeded,  ///< no answer within the retry window
    rnr_retry_exceeded,
    false_success,  ///< the device reported success with the queue pair in error (quirk)
    other,
};
std::string_view to_string(completion_status status) noexcept;

enum class operation : std::uint8_t { read, send, receive, bind, invalidate, other };

struct completion {
    std::uint64_t id = 0;  ///< as given when posted
    completion_status status = completion_status::success;
    std::uint32_t vendor_error = 0;
    operation kind = operation::other;  ///< meaningful only on success
    std::uint32_t bytes = 0;            ///< receive: bytes that arrived
    std::uint32_t queue_pair_number = 0;
};

/// Known misbehaviour of a device, each with its proof beside the table in quirks.cpp.
struct quirks {
    /// A READ may complete with SUCCESS and have written nothing, the queue pair left in error
    /// (rxe). The body then checks the queue pair's state before it hands out a success.
    bool success_needs_state_query = false;
    /// Destroying a queue pair with a window bound blocks for 50 s (rxe).
    bool destroy_blocks_on_bound_window = false;
    /// retry_cnt or rnr_retry of 7 retries for ever (rxe); never ask for it anywhere.
    bool retry_seven_is_for_ever = false;
    /// What is posted in the error state is not flushed (iWARP): that a queue pair is done with its
    /// memory is known once it is destroyed, and not before.
    bool drains_by_destruction = false;
    /// A READ response under way goes on reading memory whose key was taken away (siw): only the
    /// end of the queue pair is a proof.
    bool response_outlives_its_key = false;
};

/// Memory known to a device. Destroying it deregisters; the memory itself stays the caller's.
class memory_region {
public:
    virtual ~memory_region() = default;
    [[nodiscard]] virtual std::uint32_t local_key() const noexcept = 0;
    [[nodiscard]] virtual std::uint32_t remote_key() const noexcept = 0;
    [[nodiscard]] virtual std::span<std::byte> bytes() const noexcept = 0;
};

/// A type-2 memory window: a key over part of a region, usable on one queue pair only.
class memory_window {
public:
    virtual ~memory_window() = default;
    /// The key of the latest bind.
    [[nodiscard]] virtual std::uint32_t remote_key() const noexcept = 0;
};

enum class queue_pair_state : std::uint8_t { reset, init, ready_to_receive, ready_to_send, error };

/// One RDMA READ of at most the port's max_message_bytes.
struct read_request {
    std::uint64_t id = 0;
    std::byte* local = nullptr;
    std::uint32_t local_key = 0;
    std::uint64_t remote_address = 0;
    std::uint32_t remote_key = 0;
    std::uint32_t bytes = 0;
    bool signalled = true;  ///< unsignalled: completes silently unless it fails
};

struct send_request {
    std::uint64_t id = 0;
    std::span<const std::byte> bytes;
    std::uint32_t local_key = 0;
    bool inline_data = false;
    bool signalled = true;
};

struct receive_request {
    std::uint64_t id = 0;
    std::span<std::byte> buffer;
    std::uint32_t local_key = 0;
};

/// Retry behaviour: the window is 4.096 us x 2^timeout x (retry_count + 1).
struct retry_parameters {
    std::uint8_t timeout_exponent = 14;
    std::uint8_t retry_count = 6;      ///< at most 6: 7 can mean for ever
    std::uint8_t rnr_retry_count = 6;  ///< likewise
    std::uint8_t min_rnr_timer = 12;
};

struct receive_parameters {
    wire::queue_pair_facts peer;
    std::uint32_t path_mtu = 0;        ///< bytes, the smaller of both ends
    std::uint8_t responder_depth = 0;  ///< READs of the peer that this end answers at once
    std::uint32_t gid_index = 0;       ///< of this end, looked up by value just before
    std::uint8_t hop_limit = 64;
    std::uint8_t traffic_class = 0;
    std::uint8_t min_rnr_timer = 12;
};

struct send_parameters {
    std::uint32_t starting_psn = 0;
    std::uint8_t initiator_depth = 0;  ///< READs that this end has outstanding
    retry_parameters retry;
};

/// A Reliable Connection queue pair.
/// Never destroy one with work posted: take it to error and drain it first, except where
/// quirks::drains_by_destruction says that nothing else is a proof.
class queue_pair {
public:
    virtual ~queue_pair() = default;  ///< may block in the kernel; run it on a worker thread

    [[nodiscard]] virtual std::uint32_t number() const noexcept = 0;
    virtual result<void> to_init(access remote_rights) = 0;
    /// May block for 1 s while the peer's address is resolved: never on the reactor.
    virtual result<void> to_ready_to_receive(const receive_parameters& p) = 0;
    virtual result<void> to_ready_to_send(const send_parameters& p) = 0;
    virtual result<void> to_error() = 0;
    [[nodiscard]] virtual result<queue_pair_state> state() const = 0;

    /// Posts all of `requests` with one doorbell, or none of them.
    virtual result<void> post_reads(std::span<const read_request> requests) = 0;
    virtual result<void> post_send(const send_request& request) = 0;
    virtual result<void> post_receive(const receive_request& request) = 0;
    /// A signalled request that does nothing. Posted in the error state, its flushed completion
    /// proves that every earlier request of the *send* side is done with its memory.
    virtual result<void> post_marker(std::uint64_t id) = 0;
    /// Binds `window` over part of `region`; the new key is in window.remote_key() afterwards.
    virtual result<void> post_bind(std::uint64_t id, memory_window& window,
                                   const memory_region& region, std::span<const std::byte> range,
                                   access rights, bool signalled) = 0;
    virtual result<void> post_invalidate(std::uint64_t id, memory_window& window,
                                         bool signalled) = 0;
};

class completion_queue {
public:
    virtual ~completion_queue() = default;
    /// Takes up to out.size() completions and returns how many. Applies the device's quirks.
    /// A failure means that the completion queue is lost (overrun, device gone).
    virtual result<std::size_t> poll(std::span<completion> out) = 0;
    /// Asks for one event at the next completion. Poll once more afterwards: what arrived before
    /// the call raises no event.
    virtual result<void> arm() = 0;
    /// Becomes readable when an event is pending; -1 where the body has none. Borrowed.
    [[nodiscard]] virtual int event_descriptor() const noexcept = 0;
    /// Takes pending events off the descriptor; never blocks.
    virtual void consume_events() noexcept = 0;
};

struct queue_pair_options {
    std::uint32_t send_requests = 64;  ///< room in the send queue, signalled or not
    std::uint32_t receive_requests = 1;
    std::uint32_t inline_bytes = 0;
    bool binds = true;  ///< without, it takes no binds and invalidations, and may be a faster one
};

/// What this end of a lane is, once a device and a port are chosen.
struct port_identity {
    std::uint8_t port = 1;
    route::gid gid;
    route::gid_type gid_type =
        route::gid_type::roce_v2;  ///< the same address may stand there twice
    std::uint32_t gid_index = 0;
    std::uint16_t lid = 0;
    std::uint32_t active_mtu = 0;
};

enum class async_event_kind : std::uint8_t {
    port_active,
    port_error,
    gid_change,
    queue_pair_fatal,
    device_fatal,
    other,
};
struct async_event {
    async_event_kind kind = async_event_kind::other;
    std::uint8_t port = 0;
    std::uint32_t queue_pair_number = 0;
};

/// How requests of queue pairs without binds reach the device.
struct fast_path {
    std::string name = "verbs";  ///< or "mlx5": written into its rings by this library
    std::string detail;          ///< why not the one that was asked for
};

/// An opened device with one protection domain.
class device {
public:
    virtual ~device() = default;
    /// Facts as of opening; ports and GIDs as of the last refresh().
    [[nodiscard]] virtual const route::device_facts& facts() const noexcept = 0;
    [[nodiscard]] virtual const fabric::quirks& quirks() const noexcept = 0;
    [[nodiscard]] virtual fabric::fast_path fast_path() const { return {}; }
    /// Queries ports and GID tables anew (they change live, MTU without any event).
    virtual result<void> refresh() = 0;

    /// Registers `memory`, which the caller keeps alive and unmapped no earlier than the region.
    /// May take milliseconds per 100 MiB: run large ones on a worker thread. `registration` errors
    /// carry "memlock" in the detail where the limit is the cause.
    virtual result<std::unique_ptr<memory_region>> register_memory(std::span<std::byte> memory,
                                                                   access rights) = 0;
    /// Registers the part of a dma-buf that begins at `offset` and is mapped at `mapped`, whose
    /// addresses are those of work requests. The caller keeps the mapping as he would memory.
    /// `request_errc::not_supported` where the device cannot, which is what a body says that does
    /// not know how.
    virtual result<std::unique_ptr<memory_region>> register_dmabuf(int descriptor,
                                                                   std::uint64_t offset,
                                                                   std::span<std::byte> mapped,
                                                                   access rights) {
        static_cast<void>(descriptor), static_cast<void>(offset), static_cast<void>(mapped),
            static_cast<void>(rights);
        return failure{request_errc::not_supported,
                       facts().name + " cannot register a dma-buf; copy into registered memory"};
    }
    virtual result<std::shared_ptr<completion_queue>> create_completion_queue(
        std::uint32_t entries) = 0;
    virtual result<std::unique_ptr<queue_pair>> create_queue_pair(
        std::shared_ptr<completion_queue> completions, std::uint8_t port,
        const queue_pair_options& options) = 0;
    virtual result<std::unique_ptr<memory_window>> allocate_window() = 0;

    /// Wire-up by RDMA-CM: listens for requests at one of the device's addresses, and sends one.
    /// connect() returns when the peer has answered; a failure names the step that did not come to
    /// an end within `limit`, or what the peer said. Blocking. `request_errc::not_supported` where
    /// the body knows no RDMA-CM.
    virtual result<std::unique_ptr<connection_listener>> listen(const std::string& address) {
        static_cast<void>(address);
        return no_connections();
    }
    virtual result<std::unique_ptr<connection>> connect(const connection_target& target,
                                                        const connection_terms& terms,
                                                        std::chrono::milliseconds limit) {
        static_cast<void>(target), static_cast<void>(terms), static_cast<void>(limit);
        return no_connections();
    }

    /// Readable when an asynchronous event is pending; -1 where the body has none.
    [[nodiscard]] virtual int event_descriptor() const noexcept = 0;
    /// The next asynchronous event, or nothing; never blocks.
    virtual std::optional<async_event> next_event() = 0;

private:
    [[nodiscard]] failure no_connections() const {
        return {request_errc::not_supported, facts().name + " knows no RDMA-CM"};
    }
};

/// One kind of NIC access: lists and opens devices.
class provider {
public:
    virtual ~provider() = default;
    [[nodiscard]] virtual std::string_view name() const noexcept = 0;  ///< "verbs", "sim", ...
    /// An empty list is not an error; "no RDMA in this kernel" (ENOSYS) is `none` with that detail.
    [[nodiscard]] virtual result<std::vector<route::device_facts>> list() = 0;
    virtual result<std::shared_ptr<device>> open(std::string_view device_name) = 0;
};

/// The libibverbs body.
std::unique_ptr<provider> make_verbs_provider();
/// The same, with the direct path on the devices where `choice` asks for it and it can be had.
std::unique_ptr<provider> make_provider(mlx5_choice choice);

}  // namespace rvget::fabric
