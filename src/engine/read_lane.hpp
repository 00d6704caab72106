#pragma once
// The consumer's end of a bulk queue pair: wires it, feeds it READs within the READ depth and the
// leases, and proves that its NIC is done before anything is given back.

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include <rvget/error.hpp>
#include <rvget/path.hpp>

#include "engine/services.hpp"
#include "wire/frames.hpp"

namespace rvget::engine {

/// One leased range on its way into local memory. Made by a transfer, run by a lane.
struct read_job {
    enum class outcome {
        done,     ///< all bytes arrived
        stopped,  ///< stop() was called; some bytes may have arrived, none will any more
        failed,   ///< the lane went to error and is drained
        /// As `failed`, but for another's READ: over a new lane this one may well succeed.
        bystander,
    };

    std::byte* local = nullptr;
    std::uint32_t local_key = 0;
    std::uint64_t remote_address = 0;
    std::uint32_t remote_key = 0;
    std::uint64_t bytes = 0;
    /// No READ is posted unless its whole retry window fits before this.
    time_point lease_end;
    /// Called once, when the NIC is done with `local`; the failure where the lane failed.
    unique_function<void(outcome, const failure&)> finished;

private:
    friend class read_lane;
    std::uint64_t posted = 0;
    std::uint64_t arrived = 0;
    std::uint32_t outstanding = 0;
    bool stopping = false;
    bool over = false;
};

/// Lives on the strand; keeps itself alive until its queue pair is drained and destroyed.
class read_lane final : public completion_sink, public std::enable_shared_from_this<read_lane> {
public:
    enum class state : std::uint8_t { making, offered, connecting, up, draining, closed };
    /// The lane can take no more work: called once, with the reason for the gets and the sentence.
    using failed_handler = unique_function<void(reason, const failure&)>;

    read_lane(services& s, std::uint32_t generation, bool by_cm, failed_handler on_failed);
    ~read_lane();
    read_lane(const read_lane&) = delete;
    read_lane& operator=(const read_lane&) = delete;

    /// Chooses a port for the peer, makes the queue pair and takes it to INIT, on a worker thread.
    /// `ready` runs when facts() can be offered, or not at all where the lane fails.
    void make(const std::string& own_address, const std::string& peer_address,
              unique_function<void()> ready);
    /// The owner's end is known: RTR and RTS, on a worker thread. `up` runs when READs can be
    /// posted, or not at all where the lane fails. Later calls are ignored.
    void connect(const wire::queue_pair_facts& owner, unique_function<void()> up);
    /// The same by RDMA-CM: the owner awaits the connection at `point`.
    void connect(const wire::queue_pair_facts& owner, const wire::connect_point& point,
                 unique_function<void()> up);

    [[nodiscard]] std::uint32_t generation() const noexcept { return generation_; }
    [[nodiscard]] state current() const noexcept { return state_; }
    [[nodiscard]] bool by_cm() const noexcept { return by_cm_; }
    /// Can be offered to the owner for a get, or is beyond that and well. By RDMA-CM both ends come
    /// up first.
    [[nodiscard]] bool offerable() const noexcept {
        return state_ == state::up ||
               (!by_cm_ && (state_ == state::offered || state_ == state::connecting));
    }
    /// READs could be posted at some time.
    [[nodiscard]] bool was_up() const noexcept { return was_up_; }
    /// It failed, and over a new one READs may well succeed.
    [[nodiscard]] bool down_for_another() const noexcept { return scope_ == scope::read; }
    [[nodiscard]] bool owner_known() const noexcept { return owner_known_; }
    /// What a request says of it; our end only until the owner's is known.
    [[nodiscard]] wire::lane_offer offer() const;
    [[nodiscard]] const local_port& port() const noexcept { return port_; }
    [[nodiscard]] std::uint32_t path_mtu() const noexcept { return path_mtu_; }

    /// Queues a job; it starts when the lane is up. On a failed lane it ends `failed` at once
    /// (through the strand).
    void submit(std::shared_ptr<read_job> job);
    /// The job's lease lives longer now.
    void extend(read_job& job, time_point lease_end);
    /// Post no more of this job; it ends when what is posted is done.
    void stop(const std::shared_ptr<read_job>& job);

    /// What a failure says of the READs that did not cause it.
    enum class scope : std::uint8_t {
        path,  ///< no READ gets through
        read,  ///< one was refused, or the owner took the lane down; the others are bystanders
    };
    /// Takes the queue pair to error and drains it, which ends every job.
    void fail(reason why, const failure& f, scope s = scope::path);
    /// No more work is coming: drains and destroys once the last job ended.
    void retire();

    void on_completion(const fabric::completion& c) override;
    void on_lost(const failure& why) override;

private:
    struct posted_request {
        std::uint64_t id;
        std::shared_ptr<read_job> job;
        std::uint32_t bytes;
    };
    /// What the worker thread makes and hands back; shared because neither side knows who is last.
    struct wiring;

    bool begin_connecting(const wire::queue_pair_facts& owner, unique_function<void()> up);
    void run_connecting(const std::shared_ptr<wiring>& w);
    void made(const std::shared_ptr<wiring>& w, unique_function<void()> ready);
    void connected(wiring& w);
    void pump();
    bool post_batch();
    void watch_progress();
    void settle(read_job& job);
    void end(const std::shared_ptr<read_job>& job, read_job::outcome o, const failure& f);
    void credit_through(std::uint64_t id);
    /// The READ that the owner's NIC refused is no bystander.
    void note_refused(const fabric::completion& c);
    [[nodiscard]] read_job::outcome outcome_of(const std::shared_ptr<read_job>& job) const;
    void start_draining();
    void drained();
    void destroy();
    void end_queue_pair(environment::task then);
    [[nodiscard]] std::string describe() const;

    services& s_;
    const std::uint32_t generation_;
    const bool by_cm_;
    bool was_up_ = false;
    failed_handler on_failed_;
    unique_function<void()> on_up_;
    state state_ = state::making;
    time_point begun_;  ///< the making of the queue pair, then its connecting
    duration spent_making_{0};
    bool busy_on_worker_ = false;  ///< a worker thread is using the queue pair
    bool retiring_ = false;
    bool owner_known_ = false;
    bool marker_posted_ = false;
    failure failure_;
    scope scope_ = scope::path;
    std::shared_ptr<read_job> refused_;
    local_port port_;
    wire::queue_pair_facts facts_;
    wire::queue_pair_facts owner_;
    std::uint32_t path_mtu_ = 0;
    std::uint32_t depth_ = 1;  ///< READs posted at once
    std::uint32_t reserved_entries_ = 0;
    std::uint64_t next_id_ = 1;
    std::uint64_t marker_id_ = 0;
    std::unique_ptr<fabric::queue_pair> queue_pair_;
    std::unique_ptr<fabric::connection> connection_;  ///< of a queue pair wired up by RDMA-CM
    std::list<std::shared_ptr<read_job>> waiting_;    ///< jobs with bytes still to post, in turn
    std::deque<posted_request> posted_;
    time_point progress_{};  ///< of what is posted: the last completion, or the first post
    environment::timer_id progress_timer_ = 0;
    std::shared_ptr<read_lane> self_;  ///< while the queue pair lives
};

}  // namespace rvget::engine
