#include "fabric/mlx5/queue_pair.hpp"

#include <cerrno>

#include "fabric/verbs/text.hpp"

namespace rvget::fabric::mlx5 {

result<std::unique_ptr<fabric::queue_pair>> queue_pair::make(
    const library& direct, std::shared_ptr<const verbs::context> parent,
    std::shared_ptr<completion_queue> completions, const route::port_facts& port,
    const queue_pair_options& options) {
    std::unique_ptr<queue_pair> made(
        new queue_pair(std::move(parent), std::move(completions), port, options));
    const auto& owner = *made->parent_;
    const auto failed = [&](const char* what) {
        return failure{device_errc::resource,
                       owner.device + ": " + what +
                           " for a queue pair with direct sends: " + verbs::errno_text(errno)};
    };
    // Each in a thread domain of its own: nothing else says that nobody shares its register, whose
    // halves alternate from doorbell to doorbell.
    ibv_td_init_attr thread{};
    errno = 0;
    made->thread_.reset(ibv_alloc_td(owner.handle.get(), &thread));
    if (!made->thread_) return failed("thread domain");
    ibv_parent_domain_init_attr domain{};
    domain.pd = owner.domain.get();
    domain.td = made->thread_.get();
    made->domain_.reset(ibv_alloc_parent_domain(owner.handle.get(), &domain));
    if (!made->domain_) return failed("parent domain");

    ibv_qp_init_attr_ex attr{};
    attr.send_cq = made->completions_->handle();
    attr.recv_cq = made->completions_->other()->handle();
    attr.qp_type = IBV_QPT_RC;
    attr.cap.max_send_wr = options.send_requests;
    attr.cap.max_recv_wr = options.receive_requests;
    attr.cap.max_send_sge = 1;
    attr.cap.max_recv_sge = 1;
    attr.cap.max_inline_data = options.inline_bytes;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    attr.pd = made->domain_.get();
    const auto pair = direct.create_queue_pair(owner.handle.get(), attr);
    if (!pair) return pair.error();
    made->pair_ =
        verbs::queue_pair::adopt(made->parent_, made->completions_->other(), port, options, *pair);
    const auto memory = direct.take_over(*pair);
    if (!memory) return memory.error();
    made->work_ = std::make_shared<taken_over>(*memory);
    return std::unique_ptr<fabric::queue_pair>(std::move(made));
}

queue_pair::~queue_pair() {
    if (work_) work_->closed = true;
}

failure queue_pair::refused(std::string_view what, int error) const {
    return {device_errc::post_failed, parent_->device + ": posting " + std::string(what) +
                                          " to queue pair " + std::to_string(number()) + ": " +
                                          verbs::errno_text(error)};
}

result<void> queue_pair::to_ready_to_send(const send_parameters& p) {
    auto done = pair_->to_ready_to_send(p);
    if (done) sends_ = true;
    return done;
}

result<void> queue_pair::to_error() {
    auto done = pair_->to_error();
    if (done) sends_ = true;  // and is flushed
    return done;
}

result<void> queue_pair::sendable(std::size_t count) {
    if (!sends_) return refused("a request before it is ready to send", EINVAL);
    const std::size_t out = work_->ring.requests_out();
    if (out + count > options_.send_requests) {
        return refused(std::to_string(count) + " requests with " + std::to_string(out) + " of " +
                           std::to_string(options_.send_requests) + " outstanding",
                       ENOMEM);
    }
    if (admitted_) return {};
    if (auto done = completions_->admit(number(), work_); !done) return done;
    admitted_ = true;
    return {};
}

/// Hands over what was added; nothing of it where something did not fit.
result<void> queue_pair::ring(bool added) {
    if (!added) {
        work_->ring.drop_added();
        return refused("more than its ring holds", ENOMEM);
    }
    work_->ring.ring();
    return {};
}

result<void> queue_pair::post_reads(std::span<const read_request> requests) {
    for (const auto& r : requests) {
        if (r.bytes > max_message_bytes_) {
            return refused("a READ of " + std::to_string(r.bytes) + " bytes, over the port's " +
                               std::to_string(max_message_bytes_),
                           EMSGSIZE);
        }
    }
    if (auto ready = sendable(requests.size()); !ready) return ready;
    bool added = true;
    for (const auto& r : requests) {
        const local_piece piece{reinterpret_cast<std::uintptr_t>(r.local), r.bytes, r.local_key};
        added = added && work_->ring.add_read(r.id, {&piece, 1}, {r.remote_address, r.remote_key},
                                              {.signalled = r.signalled});
    }
    return ring(added);
}

result<void> queue_pair::post_send(const send_request& request) {
    if (request.inline_data && request.bytes.size() > options_.inline_bytes) {
        return refused("an inline send of " + std::to_string(request.bytes.size()) +
                           " bytes where " + std::to_string(options_.inline_bytes) + " fit",
                       EMSGSIZE);
    }
    if (auto ready = sendable(1); !ready) return ready;
    const request_modes modes{.signalled = request.signalled};
    if (request.inline_data) {
        return ring(work_->ring.add_inline_send(request.id, request.bytes, modes));
    }
    const local_piece piece{reinterpret_cast<std::uintptr_t>(request.bytes.data()),
                            static_cast<std::uint32_t>(request.bytes.size()), request.local_key};
    return ring(work_->ring.add_send(request.id, {&piece, 1}, modes));
}

result<void> queue_pair::post_receive(const receive_request& request) {
    completions_->use_other();
    return pair_->post_receive(request);
}

result<void> queue_pair::post_marker(std::uint64_t id) {
    if (auto ready = sendable(1); !ready) return ready;
    return ring(work_->ring.add_nop(id, {}));
}

result<void> queue_pair::post_bind(std::uint64_t /*id*/, memory_window& /*window*/,
                                   const memory_region& /*region*/,
                                   std::span<const std::byte> /*range*/, access /*rights*/,
                                   bool /*signalled*/) {
    return refused("a window's binding, which it was made without,", EOPNOTSUPP);
}

result<void> queue_pair::post_invalidate(std::uint64_t /*id*/, memory_window& /*window*/,
                                         bool /*signalled*/) {
    return refused("a window's invalidation, which it was made without,", EOPNOTSUPP);
}

}  // namespace rvget::fabric::mlx5
