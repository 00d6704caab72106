#include "engine/window_keys.hpp"

#include <algorithm>
#include <utility>

namespace rvget::engine {

/// Windows of one queue pair at once: leases of one consumer.
constexpr std::size_t most_windows = 4096;

struct window_keys::window {
    std::unique_ptr<fabric::memory_window> handle;
    std::shared_ptr<const slot_memory> memory;    ///< while a NIC could read it with this window
    lease_key_made made;                          ///< while it is being bound
    std::vector<unique_function<void()>> proven;  ///< some, once it is revoked
};

class window_keys::key final : public lease_key, public std::enable_shared_from_this<key> {
public:
    key(std::shared_ptr<window_keys> keys, std::shared_ptr<window> w)
        : keys_(std::move(keys)),
          window_(std::move(w)),
          remote_key_(window_->handle->remote_key()) {}

    [[nodiscard]] wire::lease_mode mode() const noexcept override {
        return wire::lease_mode::window;
    }
    [[nodiscard]] std::uint32_t remote_key() const noexcept override { return remote_key_; }
    void revoke(unique_function<void()> proven) override {
        if (!window_) return proven();
        // The window serves other leases later: this key lets go of it when the proof is there.
        keys_->revoke(window_, [self = shared_from_this(), f = std::move(proven)]() mutable {
            self->window_.reset();
            f();
        });
    }

private:
    std::shared_ptr<window_keys> keys_;
    std::shared_ptr<window> window_;
    std::uint32_t remote_key_;
};

result<window_keys::windows> window_keys::allocate(fabric::device& device, std::size_t count) {
    windows out;
    while (out.size() < count) {
        auto w = device.allocate_window();
        if (!w) return w.error();
        out.push_back(std::move(w.value()));
    }
    return out;
}

window_keys::window_keys(services& s, fabric::queue_pair& queue_pair, windows first,
                         unique_function<void(const failure&)> on_failed)
    : s_(s), queue_pair_(queue_pair), on_failed_(std::move(on_failed)) {
    add(std::move(first));
}

window_keys::~window_keys() = default;

void window_keys::add(windows more) {
    for (auto& handle : more) {
        auto w = std::make_shared<window>();
        w->handle = std::move(handle);
        all_.push_back(w);
        free_.push_back(std::move(w));
    }
}

void window_keys::make(std::shared_ptr<const slot_memory> memory, std::span<const std::byte> range,
                       lease_key_made done) {
    if (closed_) return done(why_closed_);
    waiting_.push_back({std::move(memory), range, std::move(done)});
    pump();
}

/// Invalidations first: they give back memory and windows.
void window_keys::pump() {
    const auto self = shared_from_this();
    while (!closed_ && posted_.size() < most_posted && !to_invalidate_.empty()) {
        const auto w = std::move(to_invalidate_.front());
        to_invalidate_.pop_front();
        if (!post_invalidate(w)) return;
    }
    while (!closed_ && posted_.size() < most_posted && !waiting_.empty() && !free_.empty()) {
        auto r = std::move(waiting_.front());
        waiting_.pop_front();
        if (!post_bind(std::move(r))) return;
    }
    if (!closed_ && !waiting_.empty() && free_.empty()) grow();
}

void window_keys::grow() {
    if (growing_ || posted_.size() + to_invalidate_.size() > all_.size() / 2) return;
    if (all_.size() >= most_windows) {
        for (auto& r : std::exchange(waiting_, {}))
            r.done(failure{device_errc::resource, "all " + std::to_string(all_.size()) +
                                                      " memory windows of this connection are in "
                                                      "use: too many leases at once"});
        return;
    }
    growing_ = true;
    auto more = std::make_shared<result<windows>>(windows{});
    s_.env.offload(
        blocking_work::make,
        [more, n = std::min(all_.size(), most_windows - all_.size()), device = s_.rdma.device()] {
            *more = allocate(*device, n);
        },
        [self = shared_from_this(), more] {
            self->growing_ = false;
            if (self->closed_) return;  // they die here, bound to nothing
            if (!*more) {
                for (auto& r : std::exchange(self->waiting_, {})) r.done(more->error());
                return;
            }
            self->add(std::move(more->value()));
            self->pump();
        });
}

bool window_keys::post_bind(request r) {
    auto w = std::move(free_.back());
    free_.pop_back();
    const auto id = next_id_++;
    if (auto posted = queue_pair_.post_bind(id, *w->handle, r.memory->registered(), r.range,
                                            fabric::access::remote_read, true);
        !posted) {
        r.done(posted.error());
        failed(posted.error());
        return false;
    }
    w->memory = std::move(r.memory);
    w->made = std::move(r.done);
    note_posted(id, std::move(w));
    return true;
}

bool window_keys::post_invalidate(const std::shared_ptr<window>& w) {
    const auto id = next_id_++;
    if (auto posted = queue_pair_.post_invalidate(id, *w->handle, true); !posted) {
        failed(posted.error());
        return false;
    }
    note_posted(id, w);
    return true;
}

void window_keys::note_posted(std::uint64_t id, std::shared_ptr<window> w) {
    posted_.push_back({id, std::move(w)});
    s_.rdma.posted(1);
    s_.env.expect_completions();
}

void window_keys::on_completion(const fabric::completion& c) {
    if (closed_) return;  // the marker settles the rest
    if (c.status != fabric::completion_status::success) {
        s_.stats.completion_failed(c.status);
        return failed(
            {connection_errc::queue_pair, "a memory window's request ended with \"" +
                                              std::string(to_string(c.status)) +
                                              "\"; its consumer makes another queue pair"});
    }
    while (!closed_ && !posted_.empty() && posted_.front().id <= c.id) {
        const auto w = std::move(posted_.front().on);
        posted_.pop_front();
        s_.rdma.retired(1);
        if (auto made = std::exchange(w->made, nullptr)) {
            made(std::shared_ptr<lease_key>(std::make_shared<key>(shared_from_this(), w)));
            continue;
        }
        w->memory.reset();
        free_.push_back(w);
        for (auto& f : std::exchange(w->proven, {})) f();
    }
    pump();
}

void window_keys::revoke(const std::shared_ptr<window>& w, unique_function<void()> proven) {
    if (!w->memory) return proven();  // gone() was first
    const bool first = w->proven.empty();
    w->proven.push_back(std::move(proven));
    if (!first || closed_) return;
    to_invalidate_.push_back(w);
    pump();
}

void window_keys::failed(const failure& why) {
    if (auto f = std::exchange(on_failed_, nullptr)) f(why);
}

void window_keys::close(const failure& why) {
    if (std::exchange(closed_, true)) return;
    why_closed_ = why.code ? why : failure{connection_errc::queue_pair, "the queue pair is going"};
    to_invalidate_.clear();
    for (auto& r : std::exchange(waiting_, {})) r.done(why_closed_);
    for (auto& p : posted_)
        if (auto made = std::exchange(p.on->made, nullptr)) made(why_closed_);
}

window_keys::windows window_keys::take_windows() {
    s_.rdma.retired(posted());
    posted_.clear();
    free_.clear();
    windows out;
    for (auto& w : all_) out.push_back(std::move(w->handle));
    return out;
}

void window_keys::gone() {
    for (auto& w : std::exchange(all_, {})) {
        w->memory.reset();
        for (auto& f : std::exchange(w->proven, {})) f();
    }
}

}  // namespace rvget::engine
