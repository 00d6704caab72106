#pragma once
// The state of a simulated network, all of it under one mutex: hosts, NICs, keys, windows,
// completion queues, queue pairs, and the set of steps that could run. The classes of the seam are
// thin handles over these records (device.hpp, completion_queue.hpp, queue_pair.hpp).

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "fabric/fabric.hpp"
#include "fabric/sim/event_flag.hpp"
#include "fabric/sim/network.hpp"
#include "fabric/sim/ring.hpp"

namespace rvget::fabric::sim {

/// Asynchronous events of one opened device.
struct event_queue {
    std::deque<async_event> events;
    event_flag flag;
};

/// One NIC of one host. `options.facts` are the current ones.
struct nic {
    std::size_t host = 0;
    device_options options;
    std::size_t registered_bytes = 0;
    std::vector<event_queue*> opened;
};

struct host_record {
    std::string name;
    bool alive = true;
    std::vector<std::unique_ptr<nic>> nics;
    unsigned false_successes = 0;
    unsigned refused_reads = 0;
    unsigned ready_to_receive_failures = 0;
    int ready_to_receive_error = 0;
};

/// One attempt to connect, shared by both ends.
struct connection_record {
    enum class state : std::uint8_t { waiting, accepted, rejected, abandoned };
    struct end {
        std::size_t host = 0;
        route::gid gid;
        std::uint32_t queue_pair_number = 0;
        std::uint32_t psn = 0;
        std::vector<std::byte> data;
    };
    state now = state::waiting;
    std::uint32_t path_mtu = 0;  ///< of who connects: RDMA-CM gives it to both ends
    end active;
    end passive;
};

/// Takes requests at one address of a NIC.
struct listener_record {
    sim::nic* nic = nullptr;
    route::gid address;
    std::uint16_t port = 0;
    bool stopped = false;
    std::deque<std::shared_ptr<connection_record>> requests;
};

/// A protection domain is one opened device.
using domain_id = std::uint32_t;

struct region_record {
    domain_id domain = 0;
    sim::nic* nic = nullptr;
    std::span<std::byte> bytes;
    access rights = access::none;
    std::uint32_t local_key = 0;
    std::uint32_t remote_key = 0;
};

struct window_record {
    domain_id domain = 0;
    std::size_t host = 0;
    std::uint32_t index = 0;
    std::uint32_t latest_key = 0;  ///< as posted; valid once its bind has run
    bool bound = false;
    std::uint32_t key = 0;
    std::uint32_t queue_pair_number = 0;
    std::uint32_t region_key = 0;  ///< local key of the region beneath
    std::span<const std::byte> range;
    access rights = access::none;
};

/// What a key names: a region's local or remote side, or a window.
struct key_record {
    enum class kind : std::uint8_t { dead, local, remote, window };
    kind what = kind::dead;
    std::uint32_t window = 0;
    region_record* region = nullptr;
};

struct work_request {
    std::uint64_t id = 0;
    operation kind = operation::other;  ///< other: a marker
    completion_status status = completion_status::success;
    bool signalled = true;
    bool inline_data = false;
    bool beyond_depth = false;  ///< issued beyond the READs that the responder can hold
    access rights = access::none;
    std::uint32_t local_key = 0;
    std::uint32_t remote_key = 0;
    std::uint32_t bytes = 0;  ///< READs and SENDs are bounded far below 4 GiB by the port
    std::uint32_t done = 0;
    std::uint32_t window = 0;
    std::byte* local = nullptr;
    std::uint64_t remote_address = 0;
    std::span<const std::byte> range;  ///< of a bind
};

struct receive_slot {
    std::uint64_t id = 0;
    std::span<std::byte> buffer;
    std::uint32_t local_key = 0;
    std::uint32_t bytes = 0;
    completion_status status = completion_status::success;
};

struct completion_entry {
    completion what;
    std::uint64_t position = 0;  ///< of the request in its queue
    bool of_receive = false;
};

struct completion_queue_record {
    std::size_t host = 0;
    std::uint32_t capacity = 0;
    ring<completion_entry> entries;
    bool armed = false;
    bool overrun = false;
    event_flag flag;
};

/// The independent activities of a queue pair: at most one step of each can run at a time.
enum class lane : std::uint8_t { send, completion, receive, late };
inline constexpr std::size_t lane_count = 4;
inline constexpr std::size_t not_runnable = static_cast<std::size_t>(-1);

struct queue_pair_record {
    std::uint32_t number = 0;
    domain_id domain = 0;
    std::size_t host = 0;
    sim::nic* nic = nullptr;
    const route::port_facts* port = nullptr;
    completion_queue_record* completions = nullptr;
    queue_pair_options options;
    queue_pair_state state = queue_pair_state::reset;
    access remote_rights = access::none;
    receive_parameters receive;
    send_parameters send;
    std::array<std::uint8_t, 16> own_gid{};
    bool own_gid_gone = false;

    // Send queue: [completed, executed) wait for their completions, [executed, back) for the NIC;
    // what the user has not polled since `retired` still takes room.
    ring<work_request> sends;
    std::uint64_t executed = 0;
    std::uint64_t retired = 0;
    enum class wait : std::uint8_t { none, retry, receiver_not_ready };
    wait waiting = wait::none;
    std::chrono::steady_clock::time_point retry_until{};  ///< background mode only
    std::uint64_t late_until = 0;  ///< READs before it were in flight when an end went to error
    std::vector<std::byte> inline_bytes;

    ring<receive_slot> receives;  ///< [front, received) wait for completions
    std::uint64_t received = 0;
    std::uint64_t receives_retired = 0;

    std::array<std::size_t, lane_count> position{not_runnable, not_runnable, not_runnable,
                                                 not_runnable};
    std::size_t live_position = 0;

    [[nodiscard]] bool sends_idle() const noexcept { return executed == sends.back(); }
    [[nodiscard]] work_request& head() noexcept { return sends[executed]; }
    [[nodiscard]] const work_request& head() const noexcept { return sends[executed]; }
    [[nodiscard]] bool has_receive() const noexcept { return received != receives.back(); }
};

/// Every member expects the caller to hold `mutex`, except where it says otherwise.
class world {
public:
    explicit world(const network_options& options) : options_(options) {}
    ~world() { stop_background(); }
    world(const world&) = delete;
    world& operator=(const world&) = delete;

    mutable std::mutex mutex;

    // Hosts and what is attached to them (world.cpp).
    std::size_t add_host(host_options options);
    [[nodiscard]] host_record& host_at(std::size_t index) { return *hosts_[index]; }
    [[nodiscard]] const host_record& host_at(std::size_t index) const { return *hosts_[index]; }
    [[nodiscard]] std::size_t host_named(std::string_view name) const;  ///< throws out_of_range
    [[nodiscard]] std::pair<nic&, route::port_facts&> port_of(std::string_view host,
                                                              std::string_view device,
                                                              std::uint8_t port);
    [[nodiscard]] bool gid_in_use(const std::array<std::uint8_t, 16>& gid) const;
    [[nodiscard]] domain_id new_domain() { return ++domains_; }
    static void raise(nic& at, const async_event& event);

    void add_region(region_record& region);
    void remove_region(region_record& region);
    void add_window(window_record& window);
    void remove_window(window_record& window);
    std::uint32_t new_window_key(const window_record& window);
    void remove_completion_queue(const completion_queue_record& queue);
    void add_queue_pair(queue_pair_record& queue_pair);
    void remove_queue_pair(queue_pair_record& queue_pair);
    [[nodiscard]] queue_pair_record* find(std::uint32_t number) const noexcept;
    /// The other end as this end knows it, if it exists.
    [[nodiscard]] queue_pair_record* peer_of(const queue_pair_record& q) const noexcept;

    void violation(std::string what) { violations_.push_back(std::move(what)); }
    [[nodiscard]] std::string name_of(const queue_pair_record& q) const;

    // Connections (connection.cpp), which wait for each other on `connections_changed`.
    void add_listener(listener_record& listener);
    void remove_listener(const listener_record& listener);
    /// Who listens there, where its packets get through from `host`.
    [[nodiscard]] listener_record* listener_at(std::size_t host, const route::gid& address,
                                               std::uint16_t port) const;
    std::condition_variable connections_changed;

    // The set of steps and their execution (transport.cpp).
    /// Recomputes what of `q` could run; to be called after any change to it.
    void update(queue_pair_record& q);
    /// ... and of its peer, whose requests may depend on this end.
    void update_with_peer(queue_pair_record& q);
    void update_all();
    void step(std::size_t index);
    [[nodiscard]] step_info at(std::size_t index) const;
    [[nodiscard]] std::size_t runnable() const noexcept { return runnable_.size(); }
    /// `in_flight_goes_on`: READs on the wire may still move pieces (a modify call, not a refusal).
    void enter_error(queue_pair_record& q, bool in_flight_goes_on);

    // Oracles (world.cpp).
    [[nodiscard]] bool pending_into(std::span<const std::byte> memory) const;
    [[nodiscard]] bool pending_from(std::span<const std::byte> memory) const;

    // Scripted faults and background mode (network.cpp).
    void set_dropped(std::size_t a, std::size_t b, bool dropped);
    void check_gids(const route::port_facts& port);
    void start_background(std::uint64_t seed);  ///< without the mutex
    void stop_background();                     ///< without the mutex
    [[nodiscard]] bool realtime() const noexcept { return realtime_; }

    network_options options_;
    network::dma_hook on_write_;
    network::dma_hook on_read_;
    std::vector<std::string> violations_;

private:
    struct actor {
        queue_pair_record* queue_pair = nullptr;
        lane which = lane::send;
    };
    using wait = queue_pair_record::wait;

    [[nodiscard]] const key_record* key(std::uint32_t value) const noexcept;
    std::uint32_t new_key(const key_record& record);
    void kill_key(std::uint32_t value) noexcept;
    [[nodiscard]] bool local_allowed(const queue_pair_record& q, std::uint32_t local_key,
                                     std::span<const std::byte> memory,
                                     access needed) const noexcept;
    [[nodiscard]] bool remote_read_allowed(const queue_pair_record& responder,
                                           const work_request& read) const noexcept;

    void set_runnable(queue_pair_record& q, lane which, bool on);
    [[nodiscard]] bool send_runnable(const queue_pair_record& q) const noexcept;
    [[nodiscard]] bool late_runnable(const queue_pair_record& q) const noexcept;
    [[nodiscard]] bool dropped(std::size_t a, std::size_t b) const noexcept;
    [[nodiscard]] bool linked(const queue_pair_record& q,
                              const queue_pair_record& peer) const noexcept;
    [[nodiscard]] bool reachable(const queue_pair_record& q) const noexcept;
    [[nodiscard]] bool can_proceed(const queue_pair_record& q) const noexcept;
    [[nodiscard]] bool servable(const queue_pair_record& q, std::uint64_t position) const noexcept;
    [[nodiscard]] static std::uint64_t in_flight_end(const queue_pair_record& q) noexcept;
    [[nodiscard]] step_kind kind_of_send(const queue_pair_record& q) const noexcept;
    [[nodiscard]] step_kind kind_of(const actor& a) const noexcept;

    void step_send(queue_pair_record& q);
    void lose(queue_pair_record& q);
    void time_out(queue_pair_record& q);
    void read_piece(queue_pair_record& q);
    void late_piece(queue_pair_record& q);
    void move_piece(work_request& read);
    void move_send(queue_pair_record& q);
    void run_bind(queue_pair_record& q);
    void run_invalidate(queue_pair_record& q);
    void finish(queue_pair_record& q, completion_status status);
    void fail(queue_pair_record& q, completion_status status);
    void refuse(queue_pair_record& q, queue_pair_record& responder, completion_status status);
    void deliver_send(queue_pair_record& q);
    void step_receive(queue_pair_record& q);
    void deliver(completion_queue_record& queue, const completion_entry& entry);

    void background_loop(std::uint64_t seed);
    [[nodiscard]] std::optional<std::size_t> pick(
        std::uint64_t random, std::optional<std::chrono::steady_clock::time_point>& wake) const;

    std::vector<std::unique_ptr<host_record>> hosts_;
    std::vector<listener_record*> listeners_;
    std::uint16_t last_port_ = 1023;
    std::vector<std::pair<std::size_t, std::size_t>> drops_;
    domain_id domains_ = 0;
    std::vector<key_record> keys_;  // never reused; a dead one costs its 16 bytes
    std::vector<window_record*> windows_;
    std::vector<queue_pair_record*> by_number_;  // never reused, null once destroyed
    std::vector<queue_pair_record*> live_;
    std::vector<actor> runnable_;

    std::thread background_;
    std::condition_variable changed_;
    bool stopping_ = false;
    bool idle_ = false;      // the background thread waits for a change
    bool realtime_ = false;  // the background thread was started at least once
};

}  // namespace rvget::fabric::sim
