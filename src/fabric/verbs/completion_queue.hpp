#pragma once
// A completion queue with its channel, and what it must know of the queue pairs that complete
// there.

#include <atomic>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "fabric/verbs/context.hpp"
#include "fabric/verbs/work_queue.hpp"

namespace rvget::fabric::verbs {

/// The posted work of one queue pair, shared between it and its completion queue. Used on the
/// thread that posts and polls; only `closed` is set from elsewhere.
struct posted_work {
    posted_work(std::uint32_t send_room, std::uint32_t receive_room, std::uint32_t epoch)
        : sends(send_room, epoch, false), receives(receive_room, epoch, true) {}

    work_queue sends;
    work_queue receives;
    /// A successful READ that is not trusted yet.
    std::optional<completion> held;
    work_queue::first_byte held_byte;  ///< its
    bool confirming = false;           ///< a confirmation is posted and has not completed
    ibv_qp* queue_pair = nullptr;
    std::atomic<bool> closed = false;  ///< the queue pair is destroyed
};

/// Posts a READ of no bytes for a queue pair in the error state, where it is flushed. Never to be
/// sent: rxe of Linux 6.1 does not expect to find no memory (rxe_resp.c, read_reply()) where it can
/// make no packet for the reply, because its netdev went down or its GID was removed, and the
/// peer's kernel panics. Returns 0 or errno.
int post_empty_read(ibv_qp* queue_pair, std::uint64_t work_request_id) noexcept;

/// On a device whose successes cannot be trusted (quirks::success_needs_state_query) the kernel
/// shows the completion first and puts the queue pair in error afterwards, so that a look at the
/// state between the two, on another processor, would see nothing wrong. What is certain is that
/// one task completes the requests of a queue pair, in order, and flushes everything after a false
/// success. Hence a successful READ is held until a later request of the same queue pair has
/// completed: flushed means that the queue pair went to error in between, and the success becomes
/// `false_success`; anything else, that the READ was over with the queue pair in order. Where no
/// completion is due of what is posted behind it, its first byte is READ once more. Only there: a
/// request of the caller's that completes first would end the READ, its caller would take the
/// memory back and end the lease, and the first byte would then be written into memory of somebody
/// else, or ask for a key that is gone. This is one round trip instead of one system call, about
/// the same time there, and must not be saved by posting the two together: it also proves that a
/// repetition of the READ (its acknowledgement timer may run out on a host that is slow for a
/// moment) has reached the responder. Without, the lease ends first, the repetition meets a key
/// that is gone, and both queue pairs go to error. A true success just before the queue pair is
/// taken to error for another reason is reported as false too: nobody can tell the two apart.
class completion_queue final : public fabric::completion_queue {
public:
    static result<std::shared_ptr<fabric::completion_queue>> make(
        std::shared_ptr<const context> parent, std::uint32_t entries, std::uint32_t max_entries);
    ~completion_queue() override;

    result<std::size_t> poll(std::span<completion> out) override;
    result<void> arm() override;
    [[nodiscard]] int event_descriptor() const noexcept override { return channel_->fd; }
    void consume_events() noexcept override { (void)take_events(); }

    [[nodiscard]] ibv_cq* handle() const noexcept { return handle_.get(); }
    /// For another completion queue whose events are to come here.
    [[nodiscard]] ibv_comp_channel* channel() const noexcept { return channel_.get(); }
    /// The other queue was armed: one more event may come.
    void expect_event() noexcept { ++events_due_; }
    /// As consume_events(). The number of those that were the other queue's, which acknowledges
    /// them.
    unsigned take_events() noexcept;
    [[nodiscard]] const context& parent() const noexcept { return *parent_; }
    /// From now on completions of this queue pair number belong to `work`. Polling thread.
    void admit(std::uint32_t number, std::shared_ptr<posted_work> work);

private:
    completion_queue(std::shared_ptr<const context> parent, ibv_comp_channel* channel)
        : parent_(std::move(parent)), channel_(channel) {}

    class sink;
    [[nodiscard]] posted_work* find(std::uint32_t number) noexcept;
    result<void> drain(sink& out);
    void accept(const ibv_wc& raw, sink& out);
    void settle(posted_work& work, bool flushed, sink& out);
    bool confirm_suspects(sink& out);

    static constexpr unsigned acknowledge_at = 64;  ///< each acknowledgement takes a mutex

    std::shared_ptr<const context> parent_;
    owned<ibv_comp_channel, ibv_destroy_comp_channel> channel_;
    owned<ibv_cq, ibv_destroy_cq> handle_;
    std::unordered_map<std::uint32_t, std::shared_ptr<posted_work>> work_;
    std::size_t purge_at_ = 64;
    std::uint32_t latest_number_ = 0;      ///< the queue pair that completed last,
    posted_work* latest_ = nullptr;        ///< since bursts are common
    std::vector<std::uint32_t> suspects_;  ///< numbers of queue pairs that may hold a success
    std::vector<completion> ready_;        ///< did not fit the last poll
    std::size_t ready_first_ = 0;
    unsigned events_ = 0;      ///< taken, not yet acknowledged
    unsigned events_due_ = 0;  ///< at most this many are on their way or there
};

}  // namespace rvget::fabric::verbs
