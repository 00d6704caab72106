#include "fabric/verbs/completion_queue.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include <fcntl.h>

#include "fabric/verbs/text.hpp"

namespace rvget::fabric::verbs {

namespace {

completion_status status_of(ibv_wc_status status) noexcept {
    switch (status) {
        case IBV_WC_SUCCESS:
            return completion_status::success;
        case IBV_WC_LOC_LEN_ERR:
            return completion_status::local_length;
        case IBV_WC_LOC_QP_OP_ERR:
            return completion_status::local_queue_pair_operation;
        case IBV_WC_LOC_PROT_ERR:
            return completion_status::local_protection;
        case IBV_WC_WR_FLUSH_ERR:
            return completion_status::flushed;
        case IBV_WC_MW_BIND_ERR:
            return completion_status::memory_window_bind;
        case IBV_WC_BAD_RESP_ERR:
            return completion_status::bad_response;
        case IBV_WC_LOC_ACCESS_ERR:
            return completion_status::local_access;
        case IBV_WC_REM_INV_REQ_ERR:
            return completion_status::remote_invalid_request;
        case IBV_WC_REM_ACCESS_ERR:
            return completion_status::remote_access;
        case IBV_WC_REM_OP_ERR:
            return completion_status::remote_operation;
        case IBV_WC_RETRY_EXC_ERR:
            return completion_status::retry_exceeded;
        case IBV_WC_RNR_RETRY_EXC_ERR:
            return completion_status::rnr_retry_exceeded;
        default:
            return completion_status::other;
    }
}

failure resource_failure(const context& parent, std::uint32_t entries, int error) {
    return {device_errc::resource, parent.device + ": completion queue of " +
                                       std::to_string(entries) + " entries: " + errno_text(error) +
                                       "; see `ibv_devinfo -v` and `rdma link`"};
}

}  // namespace

int post_empty_read(ibv_qp* queue_pair, std::uint64_t work_request_id) noexcept {
    ibv_send_wr request{};
    request.wr_id = work_request_id;
    request.opcode = IBV_WR_RDMA_READ;
    request.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(queue_pair, &request, &bad);
}

namespace {

int post_first_byte(ibv_qp* queue_pair, std::uint64_t work_request_id,
                    const work_queue::first_byte& byte) noexcept {
    ibv_sge piece{.addr = byte.local, .length = 1, .lkey = byte.local_key};
    ibv_send_wr request{};
    request.wr_id = work_request_id;
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_READ;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma.remote_addr = byte.remote;
    request.wr.rdma.rkey = byte.remote_key;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(queue_pair, &request, &bad);
}

}  // namespace

/// Where completions go: to the caller while there is room, then to those kept for the next poll.
class completion_queue::sink {
public:
    sink(std::span<completion> out, completion_queue& queue) : out_(out), queue_(queue) {
        auto& first = queue.ready_first_;
        while (filled_ < out.size() && first < queue.ready_.size()) {
            out[filled_++] = queue.ready_[first++];
        }
        if (first == queue.ready_.size()) {
            queue.ready_.clear();
            first = 0;
        }
    }
    void add(const completion& c) {
        if (room() > 0) {
            out_[filled_++] = c;
        } else {
            queue_.ready_.push_back(c);
        }
    }
    [[nodiscard]] std::size_t room() const noexcept { return out_.size() - filled_; }
    [[nodiscard]] std::size_t filled() const noexcept { return filled_; }

private:
    std::span<completion> out_;
    completion_queue& queue_;
    std::size_t filled_ = 0;
};

result<std::shared_ptr<fabric::completion_queue>> completion_queue::make(
    std::shared_ptr<const context> parent, std::uint32_t entries, std::uint32_t max_entries) {
    // One more entry per queue pair for confirmations; each has at least one entry of its own.
    auto size = parent->quirks.success_needs_state_query ? entries * 2 : entries;
    if (entries == 0 || entries > max_entries) return resource_failure(*parent, entries, EINVAL);
    size = std::min(size, max_entries);

    errno = 0;
    auto* channel = ibv_create_comp_channel(parent->handle.get());
    if (channel == nullptr) return resource_failure(*parent, entries, errno);
    std::shared_ptr<completion_queue> queue(new completion_queue(std::move(parent), channel));
    const auto& owner = *queue->parent_;
    const int flags = ::fcntl(channel->fd, F_GETFL);
    if (flags < 0 || ::fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) < 0) {
        return resource_failure(owner, entries, errno);
    }
    errno = 0;
    queue->handle_.reset(
        ibv_create_cq(owner.handle.get(), static_cast<int>(size), nullptr, channel, 0));
    if (!queue->handle_) return resource_failure(owner, entries, errno);
    return std::shared_ptr<fabric::completion_queue>(std::move(queue));
}

completion_queue::~completion_queue() {
    // ibv_destroy_cq() waits until every event taken has been acknowledged.
    if (handle_ && events_ > 0) ibv_ack_cq_events(handle_.get(), events_);
}

result<std::size_t> completion_queue::poll(std::span<completion> out) {
    sink results(out, *this);
    if (auto drained = drain(results); !drained) return drained.error();
    // A confirmation may complete at once (a peer on this host): then its READ need not wait for
    // the next call.
    while (!suspects_.empty() && confirm_suspects(results)) {
        if (auto drained = drain(results); !drained) return drained.error();
    }
    return results.filled();
}

result<void> completion_queue::drain(sink& out) {
    std::array<ibv_wc, 32> raw;
    while (out.room() > 0) {
        const auto asked = static_cast<int>(std::min(raw.size(), out.room()));
        const int count = ibv_poll_cq(handle_.get(), asked, raw.data());
        if (count < 0) {
            return failure{device_errc::resource,
                           parent_->device + ": the completion queue is lost: " +
                               errno_text(count) + ": it overran or the device is gone"};
        }
        for (int i = 0; i < count; ++i) accept(raw[static_cast<std::size_t>(i)], out);
        if (count < asked) break;
    }
    return {};
}

posted_work* completion_queue::find(std::uint32_t number) noexcept {
    if (latest_ != nullptr && number == latest_number_) return latest_;
    const auto found = work_.find(number);
    if (found == work_.end()) return nullptr;
    latest_number_ = number;
    return latest_ = found->second.get();
}

void completion_queue::accept(const ibv_wc& raw, sink& out) {
    auto* work = find(raw.qp_num);
    if (work == nullptr) return;  // of a queue pair that was destroyed: nobody waits for it
    const bool receive = work_queue::is_receive(raw.wr_id);
    completion c;
    c.status = status_of(raw.status);
    c.vendor_error = raw.vendor_err;
    c.queue_pair_number = raw.qp_num;
    const bool flushed = c.status == completion_status::flushed;
    if (!receive) settle(*work, flushed, out);

    auto& queue = receive ? work->receives : work->sends;
    const auto* request = queue.complete(raw.wr_id, [&](const work_queue::entry& phantom) {
        out.add({.id = phantom.id,
                 .status = completion_status::flushed,
                 .kind = phantom.kind,
                 .queue_pair_number = raw.qp_num});
    });
    if (request == nullptr) return;
    if (request->purpose == work_queue::purpose::confirmation) {
        work->confirming = false;
        return;
    }
    if (request->purpose != work_queue::purpose::caller) return;
    c.id = request->id;
    c.kind = request->kind;
    const bool success = c.status == completion_status::success;
    if (success && receive) c.bytes = raw.byte_len;
    const bool suspect = c.kind == operation::read && request->first_byte.local != 0 &&
                         parent_->quirks.success_needs_state_query;
    if (success && suspect) {
        work->held = c;
        work->held_byte = request->first_byte;
        suspects_.push_back(raw.qp_num);
    } else {
        out.add(c);
    }
}

void completion_queue::settle(posted_work& work, bool flushed, sink& out) {
    if (!work.held) return;
    if (flushed) work.held->status = completion_status::false_success;
    out.add(*work.held);
    work.held.reset();
}

/// Sees to it that every held success has a completion behind it. Whether any request was posted
/// for that.
bool completion_queue::confirm_suspects(sink& out) {
    bool posted = false;
    for (const auto number : suspects_) {
        auto* work = find(number);
        if (work == nullptr || work->closed || !work->held || work->sends.completion_due())
            continue;
        const auto id = work->sends.add({.id = 0, .purpose = work_queue::purpose::confirmation});
        if (post_first_byte(work->queue_pair, id, work->held_byte) == 0) {
            work->confirming = posted = true;
        } else {
            work->sends.take_back(1);
            settle(*work, true, out);
        }
    }
    suspects_.clear();
    return posted;
}

result<void> completion_queue::arm() {
    ++events_due_;
    if (const int error = ibv_req_notify_cq(handle_.get(), 0)) {
        return failure{device_errc::resource,
                       parent_->device + ": arming the completion queue: " + errno_text(error)};
    }
    return {};
}

unsigned completion_queue::take_events() noexcept {
    unsigned of_other = 0;
    ibv_cq* queue = nullptr;
    void* unused = nullptr;
    // Each arming raises one event at most, so that the last one expected ends the search, without
    // a system call that finds nothing.
    while (events_due_ > 0 && ibv_get_cq_event(channel_.get(), &queue, &unused) == 0) {
        --events_due_;
        ++(queue == handle_.get() ? events_ : of_other);
    }
    if (events_ >= acknowledge_at) {
        ibv_ack_cq_events(handle_.get(), events_);
        events_ = 0;
    }
    return of_other;
}

void completion_queue::admit(std::uint32_t number, std::shared_ptr<posted_work> work) {
    if (work_.size() >= purge_at_) {
        latest_ = nullptr;
        std::erase_if(work_, [](const auto& one) { return one.second->closed.load(); });
        purge_at_ = std::max<std::size_t>(64, work_.size() * 2);
    }
    latest_ = nullptr;
    work_.insert_or_assign(number, std::move(work));
}

}  // namespace rvget::fabric::verbs
