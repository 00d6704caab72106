#include "fabric/mlx5/completion_queue.hpp"

#include <algorithm>
#include <cerrno>

#include "base/log.hpp"
#include "fabric/verbs/text.hpp"

namespace rvget::fabric::mlx5 {

namespace {

operation kind_of(std::uint8_t code) noexcept {
    switch (code) {
        case layout::operation_read:
            return operation::read;
        case layout::operation_send:
        case layout::operation_send_immediate:
            return operation::send;
        default:
            return operation::other;
    }
}

std::string hexadecimal(std::span<const std::byte> bytes) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    for (const auto b : bytes) {
        text += digits[std::to_integer<unsigned>(b) >> 4];
        text += digits[std::to_integer<unsigned>(b) & 15];
    }
    return text;
}

}  // namespace

result<std::shared_ptr<completion_queue>> completion_queue::make(
    const library& direct, std::shared_ptr<const verbs::context> parent,
    std::shared_ptr<verbs::completion_queue> other, std::uint32_t entries) {
    std::shared_ptr<completion_queue> queue(
        new completion_queue(std::move(parent), std::move(other)));
    const auto& owner = *queue->parent_;
    errno = 0;
    queue->handle_.reset(ibv_create_cq(owner.handle.get(), static_cast<int>(entries), nullptr,
                                       queue->other_->channel(), 0));
    if (!queue->handle_) {
        return failure{device_errc::resource,
                       owner.device + ": completion queue of " + std::to_string(entries) +
                           " entries for direct sends: " + verbs::errno_text(errno)};
    }
    const auto memory = direct.take_over(queue->handle_.get());
    if (!memory) return memory.error();
    queue->ring_ = std::make_unique<completion_ring<>>(*memory);
    return queue;
}

completion_queue::~completion_queue() {
    // ibv_destroy_cq() waits until every event taken has been acknowledged.
    if (handle_ && events_ > 0) ibv_ack_cq_events(handle_.get(), events_);
}

taken_over* completion_queue::find(std::uint32_t number) noexcept {
    if (latest_ != nullptr && number == latest_number_) return latest_;
    const auto found = work_.find(number);
    if (found == work_.end()) return nullptr;
    latest_number_ = number;
    return latest_ = found->second.get();
}

template <class To>
result<void> completion_queue::drain(std::size_t want, To&& to) {
    ring_completion entry;
    completion c;
    auto got = ring_poll::empty;
    bool any = false;
    while (want > 0 && (got = ring_->poll(entry)) == ring_poll::taken) {
        any = true;
        if (!accept(entry, c)) continue;
        to(c);
        --want;
    }
    if (got == ring_poll::broken) {
        return failure{device_errc::resource,
                       parent_->device +
                           ": the completion queue is lost: an entry that a device must not "
                           "write: " +
                           hexadecimal(ring_->latest()) + "; RVGET_MLX5=off does without"};
    }
    if (any) ring_->publish();
    return {};
}

bool completion_queue::accept(const ring_completion& entry, completion& out) {
    auto* work = find(entry.queue_pair);
    if (work == nullptr || work->closed.load(std::memory_order_relaxed)) return false;
    const auto id = work->ring.complete(entry.counter);
    if (!id) return false;  // of an earlier queue pair with that number
    out = {.id = *id,
           .status = entry.status,
           .vendor_error = entry.vendor,
           .kind = kind_of(entry.operation),
           .queue_pair_number = entry.queue_pair};
    if (entry.status != completion_status::success) [[unlikely]] {
        if (entry.status != completion_status::flushed) tell(entry);
    } else if (out.kind == operation::read && entry.bytes != work->ring.read_bytes(entry.counter))
        [[unlikely]] {
        out.status = completion_status::bad_response;
        tell(entry);
    }
    return true;
}

void completion_queue::tell(const ring_completion& entry) const {
    log(log_level::info,
        "mlx5=error device=" + parent_->device + " queue_pair=" + std::to_string(entry.queue_pair) +
            " status=" + quoted(to_string(entry.status)) +
            " syndrome=" + std::to_string(entry.syndrome) +
            " vendor=" + std::to_string(entry.vendor) + " entry=" + hexadecimal(ring_->latest()));
}

result<std::size_t> completion_queue::poll(std::span<completion> out) {
    std::size_t filled = 0;
    if (!ready_.empty()) {
        while (filled < out.size() && ready_first_ < ready_.size()) {
            out[filled++] = ready_[ready_first_++];
        }
        if (ready_first_ == ready_.size()) {
            ready_.clear();
            ready_first_ = 0;
        }
    }
    const auto drained =
        drain(out.size() - filled, [&](const completion& c) { out[filled++] = c; });
    if (!drained) return drained.error();
    if (filled < out.size() && other_used_.load(std::memory_order_relaxed)) {
        auto more = other_->poll(out.subspan(filled));
        if (!more) return more;
        filled += *more;
    }
    return filled;
}

result<void> completion_queue::arm() {
    ring_->arm();
    other_->expect_event();
    return other_->arm();
}

void completion_queue::consume_events() noexcept {
    const auto taken = other_->take_events();
    for (auto n = taken; n > 0; --n) ring_->event_taken();
    events_ += taken;
    if (events_ >= acknowledge_at) {
        ibv_ack_cq_events(handle_.get(), events_);
        events_ = 0;
    }
}

result<void> completion_queue::admit(std::uint32_t number, std::shared_ptr<taken_over> work) {
    // An entry says which queue pair it is of, not which of those that had this number. An earlier
    // one is destroyed, so the device writes no more entries of it: whatever there is of it is in
    // the ring now, and leaves it before the new one can have any.
    auto drained = drain(~std::size_t{0}, [&](const completion& c) { ready_.push_back(c); });
    if (!drained) return drained;
    latest_ = nullptr;
    if (work_.size() >= purge_at_) {
        std::erase_if(work_, [](const auto& one) { return one.second->closed.load(); });
        purge_at_ = std::max<std::size_t>(64, work_.size() * 2);
    }
    work_.insert_or_assign(number, std::move(work));
    return {};
}

}  // namespace rvget::fabric::mlx5
