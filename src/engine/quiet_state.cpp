#include "engine/quiet_state.hpp"

#include <utility>

namespace rvget {

void quiet::state::resolve() {
    std::vector<detail::unique_function<void()>> waiting;
    {
        const std::lock_guard lock(mutex_);
        resolved_ = true;
        waiting.swap(waiting_);
    }
    changed_.notify_all();
    for (auto& f : waiting) f();
}

bool quiet::state::resolved() const {
    const std::lock_guard lock(mutex_);
    return resolved_;
}

void quiet::state::on_resolved(detail::unique_function<void()> f) {
    {
        const std::lock_guard lock(mutex_);
        if (!resolved_) {
            waiting_.push_back(std::move(f));
            return;
        }
    }
    f();
}

bool quiet::state::wait_for(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [this] { return resolved_; });
}

bool quiet::resolved() const noexcept { return !state_ || state_->resolved(); }

void quiet::on_resolved(detail::unique_function<void()> f) const {
    if (state_)
        state_->on_resolved(std::move(f));
    else
        f();
}

bool quiet::wait_for(std::chrono::milliseconds timeout) const {
    return !state_ || state_->wait_for(timeout);
}

}  // namespace rvget
