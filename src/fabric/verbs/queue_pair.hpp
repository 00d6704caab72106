#pragma once
// A Reliable Connection queue pair.

#include <memory>

#include "fabric/verbs/completion_queue.hpp"

namespace rvget::fabric::verbs {

class queue_pair final : public fabric::queue_pair {
public:
    /// `completions` must be of the same device and of this body.
    static result<std::unique_ptr<fabric::queue_pair>> make(
        std::shared_ptr<const context> parent,
        std::shared_ptr<fabric::completion_queue> completions, const route::port_facts& port,
        const queue_pair_options& options);
    /// One that was made elsewhere, with its receives going to `completions`. Its user posts sends
    /// in another way, and none through this object.
    static std::unique_ptr<queue_pair> adopt(std::shared_ptr<const context> parent,
                                             std::shared_ptr<completion_queue> completions,
                                             const route::port_facts& port,
                                             const queue_pair_options& options, ibv_qp* made);
    ~queue_pair() override;

    [[nodiscard]] std::uint32_t number() const noexcept override { return handle_->qp_num; }
    result<void> to_init(access remote_rights) override;
    result<void> to_ready_to_receive(const receive_parameters& p) override;
    result<void> to_ready_to_send(const send_parameters& p) override;
    result<void> to_error() override;
    [[nodiscard]] result<queue_pair_state> state() const override;

    result<void> post_reads(std::span<const read_request> requests) override;
    result<void> post_send(const send_request& request) override;
    result<void> post_receive(const receive_request& request) override;
    result<void> post_marker(std::uint64_t id) override;
    result<void> post_bind(std::uint64_t id, memory_window& window, const memory_region& region,
                           std::span<const std::byte> range, access rights,
                           bool signalled) override;
    result<void> post_invalidate(std::uint64_t id, memory_window& window, bool signalled) override;

private:
    queue_pair(std::shared_ptr<const context> parent, std::shared_ptr<completion_queue> completions,
               std::shared_ptr<posted_work> work, const route::port_facts& port,
               const queue_pair_options& options)
        : parent_(std::move(parent)),
          completions_(std::move(completions)),
          work_(std::move(work)),
          port_(port.number),
          link_(port.link_layer),
          max_message_bytes_(port.max_message_bytes),
          options_(options) {}

    result<void> modify(ibv_qp_attr& attr, int mask, queue_pair_state target,
                        std::string_view target_name);
    bool moved_by_kernel(queue_pair_state target) noexcept;
    [[nodiscard]] result<void> sendable(std::size_t count);
    [[nodiscard]] failure post_failure(std::string_view what, int error) const;
    result<void> post(ibv_send_wr* first, std::uint32_t count, std::string_view what);
    void admit();

    std::shared_ptr<const context> parent_;
    std::shared_ptr<completion_queue> completions_;
    std::shared_ptr<posted_work> work_;
    owned<ibv_qp, ibv_destroy_qp> handle_;
    std::uint8_t port_;
    route::link_layer link_;
    std::uint32_t max_message_bytes_;
    queue_pair_options options_;
    bool admitted_ = false;
    /// As last asked for; the device may have gone to error by itself since.
    queue_pair_state asked_ = queue_pair_state::reset;
    route::gid peer_;
    std::uint32_t gid_index_ = 0;
    std::uint32_t path_mtu_ = 0;
};

}  // namespace rvget::fabric::verbs
