#include "engine/reactor.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>
#include <utility>

#include <fcntl.h>

#include <rvget/error.hpp>

#include "base/log.hpp"

namespace rvget::engine {
namespace {

/// Where a source has no descriptor, or none can be had, it is polled this often while it expects
/// completions.
constexpr duration tick = std::chrono::milliseconds(1);

/// A turn costs about a microsecond in the loop (one epoll_wait without waiting), a poll of an
/// empty completion queue some ten nanoseconds: poll several times a turn.
constexpr int rounds_per_turn = 16;

}  // namespace

/// A source is polling (looked at in every turn) or parked. `armed`, in either state: an event was
/// asked for and is being waited for, so nothing can be missed by parking. A source that expects
/// nothing is parked without: to arm for what may have completed by the end of the turn that posts
/// it would be a system call for nothing.
struct reactor::watched final : readiness_listener, std::enable_shared_from_this<watched> {
    watched(std::shared_ptr<reactor> o, std::shared_ptr<completion_source> s)
        : owner(std::move(o)), source(std::move(s)) {}

    void readable() override {
        armed = false;
        if (!gone) {
            owner->on_event(*this);
        }
    }
    void writable() override {}

    std::shared_ptr<reactor> owner;
    std::shared_ptr<completion_source> source;
    std::unique_ptr<descriptor> event;  ///< a duplicate of the source's, so that ours is closed
    time_point spin_until;
    environment::timer_id tick_timer = 0;
    bool polling = true;
    bool armed = false;
    bool gone = false;
};

void reactor::watch(std::shared_ptr<completion_source> source) {
    auto w = std::make_shared<watched>(shared_from_this(), std::move(source));
    if (const int fd = w->source->event_descriptor(); fd >= 0) {
        const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
        const error_code why(errno, boost::system::system_category());
        w->event = copy >= 0 ? loop_.adopt(copy) : nullptr;
        if (!w->event) {
            log(log_level::warning,
                "event=completion_channel_unwatched cause=" + quoted(why.message()) +
                    " effect=\"completions are polled for every millisecond\"");
        }
    }
    w->spin_until = end_of_spin();
    watched_.push_back(std::move(w));
    schedule();
}

void reactor::unwatch(const completion_source& source) {
    const auto at =
        std::ranges::find_if(watched_, [&](const auto& w) { return w->source.get() == &source; });
    if (at == watched_.end()) {
        return;
    }
    const std::shared_ptr<watched> w = std::move(*at);
    watched_.erase(at);
    w->gone = true;
    w->event.reset();
    loop_.cancel(w->tick_timer);
}

void reactor::clear() {
    while (!watched_.empty()) {
        unwatch(*watched_.back()->source);
    }
}

void reactor::expect_completions() {
    for (const auto& w : watched_) {
        if (!w->source->expects_completions()) {
            continue;
        }
        if (spin_ == duration::zero() && w->armed) {
            continue;  // its event will come, and looking earlier is what spinning is
        }
        w->polling = true;
        w->spin_until = end_of_spin();
    }
    schedule();
}

time_point reactor::end_of_spin() const {
    return spin_ == duration::zero() ? time_point{} : loop_.now() + spin_;
}

bool reactor::any_polling() const {
    return std::ranges::any_of(watched_, [](const auto& w) { return w->polling; });
}

/// The first look is at the end of the turn that posted, which may find what completed meanwhile.
void reactor::schedule() {
    if (!scheduled_ && any_polling()) {
        scheduled_ = true;
        loop_.at_turn_end(shared_from_this());
    }
}

void reactor::resume() {
    bool worked = false;
    for (int round = 0; round < rounds_per_turn && !worked; ++round) {
        loop_.time_passed();
        // By index: handling a completion may watch and unwatch.
        for (std::size_t i = 0; i < watched_.size(); ++i) {
            const std::shared_ptr<watched> w = watched_[i];
            worked |= w->polling && look(*w);
        }
    }
    // What was posted from here is looked at in the next turn: completions that keep coming must
    // not keep sockets, timers and stop() waiting.
    scheduled_ = any_polling();
    if (scheduled_) {
        loop_.next_turn(shared_from_this());
    }
}

/// Polls, and parks what has no reason to be looked at again. Whether anything had completed.
bool reactor::look(watched& w) {
    bool worked = false;
    if (w.source->poll() > 0) {
        w.spin_until = end_of_spin();
        if (spin_ != duration::zero() || w.gone || w.source->poll() > 0) {
            return true;
        }
        worked = true;  // and the queue is empty: nothing to spin for
    }
    const bool spins =
        spin_ != duration::zero() && w.source->expects_completions() && loop_.now() < w.spin_until;
    if (!w.gone && !spins) {
        worked |= park(w);
    }
    return worked;
}

/// Whether anything had completed after all: then it is not parked.
bool reactor::park(watched& w) {
    if (!w.source->expects_completions()) {
        w.polling = false;  // nothing can complete; what is posted next says so
        return false;
    }
    if (w.event && !w.armed) {
        // A completion between the last poll and arming raises no event (InfiniBand 11.4.2.2): it
        // is found by the poll that follows. One after arming does raise it.
        w.source->arm();
        if (w.gone) {
            return false;
        }
        w.event->await_readable(w.shared_from_this());
        w.armed = true;
        if (w.source->poll() > 0) {
            w.spin_until = end_of_spin();
            return true;
        }
        if (w.gone) {
            return false;
        }
    }
    w.polling = false;
    if (!w.event && w.tick_timer == 0) {
        w.tick_timer = loop_.at(loop_.now() + tick, [this, &w] {
            w.tick_timer = 0;
            w.polling = true;
            schedule();
        });
    }
    return false;
}

void reactor::on_event(watched& w) {
    w.source->consume_events();
    w.polling = true;
    w.spin_until = end_of_spin();
    look(w);
    schedule();
}

}  // namespace rvget::engine
