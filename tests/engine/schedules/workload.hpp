#pragma once
// What the users of the nodes do: they stage, get, cancel and release, and watch over their memory:
// what they were given back must be theirs, and hold what it should.

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/schedules/pattern.hpp"
#include "engine/schedules/world.hpp"

namespace rvget::test {

enum class operation_kind : std::uint8_t {
    stage,
    release,
    get,
    batch,  ///< several gets under one call, from the slots that follow each other
    cancel,
    connect,  ///< without a deadline of its own
    metadata,
    reference,   ///< a consumer adds a reference, and gives it back with the next one
    unregister,  ///< a buffer is no longer a region
    take_back,   ///< nor is the region that a slot was staged in
    cut,         ///< the control connections between two nodes break
    pause,       ///< a consumer is stopped (SIGSTOP), its NIC is not
    resume,
    drop,  ///< the RDMA network between two nodes loses everything
    undrop,
    link_down,
    link_up,
    fail_wiring,    ///< the next modify to RTR of a node fails
    false_success,  ///< the next READ of a node says success and has moved nothing (rxe)
    refuse_read,    ///< the next READ of a node is refused: its queue pair takes others along
    lose_gid,       ///< a node's address goes away, and with it its GID
    regain_gid,
    refuse_connects,  ///< an owner's port is closed for new connections
    accept_connects,
    shut_down,
};

/// One wish, as plain numbers: what does not fit the moment does nothing.
struct operation {
    operation_kind kind = operation_kind::get;
    std::uint8_t node = 0;
    std::uint8_t peer = 0;
    std::uint8_t slot = 0;
    std::uint8_t buffer = 0;
    engine::destination_kind destination = engine::destination_kind::owned;
    path_policy policy = path_policy::prefer;
    bool pinned = false;
    bool region = false;      ///< stage: in memory of the owner's user
    std::uint32_t bytes = 0;  ///< stage: of the slot; get into: of the destination
    std::uint32_t offset = 0;
    std::uint32_t length = 0;  ///< 0: to the end
    std::uint32_t number = 0;  ///< cancel: which call, counted back from the newest; batch: of gets
    std::uint32_t milliseconds = 0;
};
[[nodiscard]] std::string describe(const operation& o);

class workload {
public:
    static constexpr std::size_t buffers = 3;  ///< of each consumer; the last is no region
    static constexpr std::size_t buffer_bytes = std::size_t{16} << 10;
    static constexpr std::size_t slots = 6;

    explicit workload(world& w);
    ~workload();
    workload(const workload&) = delete;
    workload& operator=(const workload&) = delete;

    void run(const operation& o);
    /// Slots lose their last reference, everybody goes on, faults end.
    void release_all();
    void end_disturbances();

    /// Whether nobody waits for an answer on nodes that run.
    void check_answered();
    /// Every buffer is back and holds what it should.
    void check_buffers();
    void check_deadlines();
    /// Somebody injects faults: errors need no other explanation.
    void expect_faults() { disturbed_ = slowed_ = true; }
    /// From now on everything happens in its natural order.
    void nature_begins() { natural_since_ = world_.now(); }

    [[nodiscard]] std::size_t calls() const noexcept { return calls_.size(); }
    [[nodiscard]] std::size_t answers(path p) const noexcept {
        return paths_[static_cast<std::size_t>(p)];
    }

private:
    enum class buffer_state : std::uint8_t { free, filling, parked };
    struct buffer_record {
        std::span<std::byte> bytes;
        buffer_state state = buffer_state::free;
        std::weak_ptr<fabric::memory_region> region;
        bool unregistered = false;
    };
    struct slot_record {
        std::size_t owner = 0;
        std::uint64_t id = 0;
        std::uint32_t salt = 0;
        std::uint64_t bytes = 0;
        bool pinned = false;
        bool released = false;
        std::weak_ptr<fabric::memory_region> region{};
    };
    struct source {  ///< the memory of a slot that is not freed yet
        std::span<const std::byte> bytes;
        bool pinned = false;
    };
    struct call {
        operation what;
        std::size_t slot = 0;  ///< in all_slots_
        std::span<std::byte> into;
        time_point begun;
        time_point deadline;
        std::uint64_t batch = 0;  ///< the operation that it is part of, if it is part of one
        bool launched = false;
        bool expects_busy = false;
        bool cancelled = false;
        unsigned answers = 0;
    };
    struct held_data {
        pinned_buffer data;
        std::uint32_t salt = 0;
        std::size_t offset = 0;
    };
    struct asked {  ///< something else than bytes
        std::size_t node = 0;
        std::shared_ptr<const unsigned> answers;
    };
    struct user {
        std::vector<std::byte> memory;
        std::array<buffer_record, buffers> parts;
        std::deque<held_data> held;
    };

    void stage(const operation& o);
    void release(std::uint8_t slot);
    [[nodiscard]] std::span<std::byte> stage_in_region(const operation& o,
                                                       engine::slot_memory& memory, slot_record& s);
    void get(const operation& o);
    void launch(std::size_t index);
    void batch(const operation& o);
    [[nodiscard]] engine::transfer_request request_of(const call& c) const;
    void unregister(std::size_t node, const std::weak_ptr<fabric::memory_region>& region,
                    std::uint32_t milliseconds);
    void cancel(const operation& o);
    void connect(const operation& o);
    void ask(const operation& o);
    void disturb(const operation& o);

    void answered(std::size_t index, engine::transfer_answer a);
    void check_success(const call& c, const engine::transfer_answer& a);
    void check_error(const call& c, const failure& f);
    [[nodiscard]] bool allowed(const call& c, const error_code& e) const;
    void given_back(std::size_t node, std::size_t buffer);
    void drop_held(user& u);
    void slot_freed(std::span<const std::byte> bytes, bool pinned);

    void nic_reads(std::span<const std::byte> bytes);
    void nic_writes(std::span<const std::byte> bytes);
    void wrote(std::span<const std::byte> bytes, bool by_nic);
    void fail(std::string what) { world_.outcome().fail(std::move(what)); }

    world& world_;
    prng random_{1};
    std::vector<slot_record> all_slots_;
    std::array<std::optional<std::size_t>, slots> current_;  ///< what a slot's number means now
    std::vector<source> sources_;
    std::vector<call> calls_;
    std::deque<std::vector<std::byte>> shelves_;  ///< what was staged where it is
    std::vector<std::unique_ptr<user>> users_;
    std::vector<node_id> ids_;
    std::array<std::size_t, 3> paths_{};
    bool disturbed_ = false;
    bool slowed_ = false;  ///< so that a get may reach its deadline
    std::optional<time_point> natural_since_;
    std::vector<asked> asked_;
    std::uint64_t next_ask_ = ~std::uint64_t{0};  ///< operations count from 1
    std::uint32_t staged_ = 0;
};

}  // namespace rvget::test
