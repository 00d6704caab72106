#pragma once
// A queue pair made by libibverbs, whose sends are written directly. Its states and receives stay
// with libibverbs; it takes no binds.

#include <memory>

#include "fabric/mlx5/completion_queue.hpp"
#include "fabric/mlx5/takeover.hpp"
#include "fabric/verbs/queue_pair.hpp"

namespace rvget::fabric::mlx5 {

class queue_pair final : public fabric::queue_pair {
public:
    /// The failure says why it cannot be had; a queue pair of libibverbs then may.
    static result<std::unique_ptr<fabric::queue_pair>> make(
        const library& direct, std::shared_ptr<const verbs::context> parent,
        std::shared_ptr<completion_queue> completions, const route::port_facts& port,
        const queue_pair_options& options);
    ~queue_pair() override;

    [[nodiscard]] std::uint32_t number() const noexcept override { return pair_->number(); }
    result<void> to_init(access remote_rights) override { return pair_->to_init(remote_rights); }
    result<void> to_ready_to_receive(const receive_parameters& p) override {
        return pair_->to_ready_to_receive(p);
    }
    result<void> to_ready_to_send(const send_parameters& p) override;
    result<void> to_error() override;
    [[nodiscard]] result<queue_pair_state> state() const override { return pair_->state(); }

    result<void> post_reads(std::span<const read_request> requests) override;
    result<void> post_send(const send_request& request) override;
    result<void> post_receive(const receive_request& request) override;
    result<void> post_marker(std::uint64_t id) override;
    result<void> post_bind(std::uint64_t id, memory_window& window, const memory_region& region,
                           std::span<const std::byte> range, access rights,
                           bool signalled) override;
    result<void> post_invalidate(std::uint64_t id, memory_window& window, bool signalled) override;

private:
    queue_pair(std::shared_ptr<const verbs::context> parent,
               std::shared_ptr<completion_queue> completions, const route::port_facts& port,
               const queue_pair_options& options)
        : parent_(std::move(parent)),
          completions_(std::move(completions)),
          max_message_bytes_(port.max_message_bytes),
          options_(options) {}

    // libibverbs' own is inline, and so another one in each file.
    static int release(ibv_td* thread) noexcept { return ibv_dealloc_td(thread); }

    [[nodiscard]] failure refused(std::string_view what, int error) const;
    [[nodiscard]] result<void> sendable(std::size_t count);
    result<void> ring(bool added);

    std::shared_ptr<const verbs::context> parent_;
    std::shared_ptr<completion_queue> completions_;
    // In this order: the queue pair goes before the domains that it was made in.
    verbs::owned<ibv_td, release> thread_;
    verbs::owned<ibv_pd, ibv_dealloc_pd> domain_;
    std::unique_ptr<verbs::queue_pair> pair_;
    std::shared_ptr<taken_over> work_;
    std::uint32_t max_message_bytes_;
    queue_pair_options options_;
    bool sends_ = false;  ///< it was taken to ready to send once
    bool admitted_ = false;
};

}  // namespace rvget::fabric::mlx5
