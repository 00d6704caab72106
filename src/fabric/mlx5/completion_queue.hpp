#pragma once
// A completion queue in two parts behind one face: a ring that is read directly, for sends of queue
// pairs that were taken over, and one of libibverbs for everything else.

#include <atomic>
#include <memory>
#include <unordered_map>
#include <vector>

#include "fabric/mlx5/completion_ring.hpp"
#include "fabric/mlx5/takeover.hpp"
#include "fabric/verbs/completion_queue.hpp"

namespace rvget::fabric::mlx5 {

/// The send side of one queue pair, shared between it and its completion queue. Used on the thread
/// that posts and polls; only `closed` is set from elsewhere.
struct taken_over {
    explicit taken_over(const send_queue_memory& m) : ring(m) {}

    send_queue<> ring;
    std::atomic<bool> closed = false;  ///< the queue pair is destroyed
};

class completion_queue final : public fabric::completion_queue {
public:
    /// `other` is of the device of `parent`, and has room for as many entries.
    static result<std::shared_ptr<completion_queue>> make(
        const library& direct, std::shared_ptr<const verbs::context> parent,
        std::shared_ptr<verbs::completion_queue> other, std::uint32_t entries);
    ~completion_queue() override;

    result<std::size_t> poll(std::span<completion> out) override;
    result<void> arm() override;
    [[nodiscard]] int event_descriptor() const noexcept override {
        return other_->event_descriptor();
    }
    void consume_events() noexcept override;

    /// Where sends of a queue pair that is to be taken over go.
    [[nodiscard]] ibv_cq* handle() const noexcept { return handle_.get(); }
    [[nodiscard]] const std::shared_ptr<verbs::completion_queue>& other() const noexcept {
        return other_;
    }
    /// From now on the other part is polled too. Any thread, before anything is posted that
    /// completes there.
    void use_other() noexcept { other_used_ = true; }
    /// From now on completions of this queue pair number belong to `work`, to which nothing was
    /// posted yet. Polling thread.
    result<void> admit(std::uint32_t number, std::shared_ptr<taken_over> work);

private:
    completion_queue(std::shared_ptr<const verbs::context> parent,
                     std::shared_ptr<verbs::completion_queue> other)
        : parent_(std::move(parent)), other_(std::move(other)) {}

    [[nodiscard]] taken_over* find(std::uint32_t number) noexcept;
    /// Takes entries off the ring until `want` of them were for somebody, which go to `to(entry)`.
    template <class To>
    result<void> drain(std::size_t want, To&& to);
    bool accept(const ring_completion& entry, completion& out);
    void tell(const ring_completion& entry) const;

    static constexpr unsigned acknowledge_at = 64;  ///< each acknowledgement takes a mutex

    std::shared_ptr<const verbs::context> parent_;
    std::shared_ptr<verbs::completion_queue> other_;
    verbs::owned<ibv_cq, ibv_destroy_cq> handle_;  ///< its events come through the other's channel
    std::unique_ptr<completion_ring<>> ring_;
    std::unordered_map<std::uint32_t, std::shared_ptr<taken_over>> work_;
    std::size_t purge_at_ = 64;
    std::uint32_t latest_number_ = 0;  ///< the queue pair that completed last,
    taken_over* latest_ = nullptr;     ///< since bursts are common
    std::vector<completion> ready_;    ///< found when a queue pair was admitted
    std::size_t ready_first_ = 0;
    unsigned events_ = 0;  ///< taken, not yet acknowledged
    std::atomic<bool> other_used_ = false;
};

}  // namespace rvget::fabric::mlx5
