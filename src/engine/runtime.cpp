#include "engine/runtime.hpp"

#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include <sched.h>
#include <unistd.h>

#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/basic_stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>

#include "base/random.hpp"
#include "engine/event_loop.hpp"
#include "engine/reactor.hpp"
#include "engine/tcp_network.hpp"
#include "engine/timer_queue.hpp"
#include "engine/worker_pool.hpp"

namespace rvget::engine {
namespace {

namespace asio = boost::asio;

using strand = asio::strand<asio::io_context::executor_type>;
using steady_clock = std::chrono::steady_clock;

bool may_use_one_cpu_only() noexcept {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    // Fails with EINVAL on machines of more than 1024 CPUs, where the answer is no.
    return ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) == 1;
}

/// The event loop. Handlers queued in the io_context keep it alive; after stop() it holds no Asio
/// object any more, so that links which outlive their runtime, or its io_context, are harmless.
class asio_loop final : public event_loop, public std::enable_shared_from_this<asio_loop> {
public:
    asio_loop(asio::io_context& context, const runtime_options& options)
        : strand_(asio::make_strand(context)),
          timer_(std::in_place, *strand_),
          reactor_(std::make_shared<reactor>(
              *this, may_use_one_cpu_only() ? duration::zero() : duration(options.spin))),
          makers_(std::max<std::size_t>(options.worker_threads, 1)),
          destroyers_(1) {}

    time_point now() const override;
    void time_passed() override { turn_time_.reset(); }
    timer_id at(time_point when, task f) override;
    void cancel(timer_id id) override { timers_.cancel(id); }
    void post(task f) override;
    void offload(blocking_work kind, task work, task done) override;
    std::uint64_t random() override { return random_u64(); }
    void watch(std::shared_ptr<completion_source> source) override {
        if (!stopping_) {
            reactor_->watch(std::move(source));
        }
    }
    void unwatch(const completion_source& source) override { reactor_->unwatch(source); }
    void expect_completions() override { reactor_->expect_completions(); }

    std::unique_ptr<descriptor> adopt(int fd) override;
    void at_turn_end(std::shared_ptr<continuation> c) override {
        turn_end_.push_back(std::move(c));
    }
    void next_turn(std::shared_ptr<continuation> c) override;
    void take_turn(task f) override {
        turn([&] { f(); });
    }
    void take_posted() override {
        if (inbox_waits_) drain_inbox();
    }
    void tell_stopping(stop_listener& l) override { stop_listeners_.insert(&l); }
    void forget(stop_listener& l) noexcept override { stop_listeners_.erase(&l); }

    /// Every handler of the strand goes through here. The strand orders the turns; the lock, which
    /// nobody else contends for, lets stop() wait for the running one and shut the rest out even
    /// when nobody runs the embedder's io_context any more.
    template <class F>
    void turn(F&& f) {
        const std::lock_guard hold(turn_mutex_);
        if (stopping_) {
            return;
        }
        const runner here(*this);
        time_passed();
        f();
        end_turn();
    }

    /// The strand, for Asio objects whose handlers go through take_turn(). Precondition: not
    /// stopped.
    asio::any_io_executor executor() const { return *strand_; }

    void stop();

private:
    /// Marks the thread that holds the strand.
    struct runner {
        explicit runner(asio_loop& l) noexcept : loop(l) {
            loop.runner_ = std::this_thread::get_id();
        }
        ~runner() { loop.runner_ = std::thread::id(); }
        runner(const runner&) = delete;
        runner& operator=(const runner&) = delete;
        asio_loop& loop;
    };

    bool in_turn() const noexcept { return runner_ == std::this_thread::get_id(); }
    void end_turn();
    void run(std::vector<task>& batch);
    void shut_down();
    [[nodiscard]] bool timer_is_armed() const;
    void arm_timer();
    void arm_timer_later();
    void fire_timers();
    void drain_inbox();

    std::mutex turn_mutex_;
    std::atomic<std::thread::id> runner_{};
    bool stopping_ = false;
    mutable std::optional<time_point> turn_time_;
    std::vector<task> turn_posts_;  ///< posted in the running turn
    std::vector<std::shared_ptr<continuation>> turn_end_;
    std::unordered_set<stop_listener*> stop_listeners_;

    std::optional<strand> strand_;
    std::optional<asio::basic_waitable_timer<steady_clock, asio::wait_traits<steady_clock>, strand>>
        timer_;
    std::optional<time_point> timer_armed_for_;
    bool arming_ = false;  ///< the next turn arms
    timer_queue timers_;

    std::mutex inbox_mutex_;  ///< over the two below, and over strand_ against stop()
    std::vector<task> inbox_;
    std::atomic<bool> inbox_waits_ = false;  ///< there is something in it
    bool inbox_closed_ = false;

    std::shared_ptr<reactor> reactor_;
    worker_pool makers_;
    worker_pool destroyers_;
};

class asio_descriptor final : public descriptor {
public:
    asio_descriptor(std::shared_ptr<asio_loop> loop, const strand& on)
        : loop_(std::move(loop)), stream_(on) {}

    error_code assign(int fd) {
        error_code ec;
        stream_.assign(fd, ec);
        if (!ec) {
            stream_.native_non_blocking(true, ec);
        }
        return ec;
    }

    int native() const noexcept override {
        return const_cast<stream&>(stream_).native_handle();  // not const in Asio
    }
    void await_readable(std::shared_ptr<readiness_listener> listener) override {
        await(stream::wait_read, std::move(listener), &readiness_listener::readable);
    }
    void await_writable(std::shared_ptr<readiness_listener> listener) override {
        await(stream::wait_write, std::move(listener), &readiness_listener::writable);
    }

private:
    using stream = asio::posix::basic_stream_descriptor<strand>;

    void await(stream::wait_type what, std::shared_ptr<readiness_listener> listener,
               void (readiness_listener::*ready)()) {
        stream_.async_wait(what,
                           [loop = loop_, l = std::move(listener), ready](error_code ec) mutable {
                               loop->turn([&] {
                                   // Let go of inside the turn: this may be the last to hold it.
                                   const auto held = std::move(l);
                                   if (ec != asio::error::operation_aborted) ((*held).*ready)();
                               });
                           });
    }

    std::shared_ptr<asio_loop> loop_;
    stream stream_;
};

std::unique_ptr<descriptor> asio_loop::adopt(int fd) {
    if (!stopping_) {
        auto d = std::make_unique<asio_descriptor>(shared_from_this(), *strand_);
        const error_code ec = d->assign(fd);
        if (!ec) {
            return d;
        }
        if (d->native() == fd) {
            return nullptr;  // it is closed with `d`
        }
    }
    ::close(fd);
    return nullptr;
}

time_point asio_loop::now() const {
    if (!in_turn()) return steady_clock::now();
    if (!turn_time_) turn_time_ = steady_clock::now();
    return *turn_time_;
}

environment::timer_id asio_loop::at(time_point when, task f) {
    if (stopping_) {
        return 0;
    }
    // What is due already goes behind what has been due for longer, and behind the turn that asks
    // for it, so that a timer which always asks for the past starves nobody.
    const timer_id id =
        timers_.add(std::max(when, now() + std::chrono::nanoseconds(1)), std::move(f));
    if (!in_turn()) arm_timer();
    return id;
}

/// A turn that adds the first timer leaves arming to the one after it: a timer for what the caller
/// may do next (an operation that takes a message along) is most often cancelled in there, and then
/// costs no system call.
void asio_loop::arm_timer_later() {
    if (std::exchange(arming_, false)) return arm_timer();
    if (!timer_is_armed()) {
        arming_ = true;
        // Not through the strand, where it would stand before what a handler that this turn posted
        // is about to ask for.
        asio::post(strand_->get_inner_executor(), [self = shared_from_this(), on = *strand_] {
            asio::dispatch(on, [self] { self->turn([] {}); });
        });
    }
}

/// A cancelled first timer is not worth a system call: waking up too early does no harm.
bool asio_loop::timer_is_armed() const {
    const auto next = timers_.next();
    return !next || (timer_armed_for_ && *timer_armed_for_ <= *next);
}

void asio_loop::arm_timer() {
    if (timer_is_armed()) {
        return;
    }
    timer_armed_for_ = timers_.next();
    timer_->expires_at(*timer_armed_for_);
    timer_->async_wait([self = shared_from_this()](error_code ec) {
        if (!ec) {
            self->turn([&] { self->fire_timers(); });
        }
    });
}

void asio_loop::fire_timers() {
    timer_armed_for_.reset();
    const time_point due = now();
    while (auto f = timers_.take_due(due)) {
        (*f)();
    }
}

/// What a turn posts runs at its end, and what another handler of the io_context asks for runs at
/// once where nobody holds the strand: neither makes a trip through Asio's queue and the kernel.
/// What other threads post is queued before they go on, so that whatever they cause afterwards
/// comes later: the running turn too looks here once it has received something (take_posted).
void asio_loop::post(task f) {
    if (in_turn()) {
        if (!stopping_) turn_posts_.push_back(std::move(f));
        return;
    }
    std::unique_lock lock(inbox_mutex_);
    if (inbox_closed_) {
        return;
    }
    inbox_.push_back(std::move(f));
    inbox_waits_ = true;
    const auto drain = [self = shared_from_this()] { self->turn([&] { self->drain_inbox(); }); };
    if (strand_->get_inner_executor().running_in_this_thread()) {
        const strand on = *strand_;
        lock.unlock();
        asio::dispatch(on, drain);
    } else if (inbox_.size() == 1) {
        asio::post(*strand_, drain);
    }
}

void asio_loop::drain_inbox() {
    std::vector<task> batch;
    {
        const std::lock_guard lock(inbox_mutex_);
        batch.swap(inbox_);
        inbox_waits_ = false;
    }
    run(batch);
    // Its room serves the next ones, unless some have come meanwhile.
    batch.clear();
    const std::lock_guard lock(inbox_mutex_);
    if (inbox_.capacity() == 0 && !inbox_closed_) inbox_.swap(batch);
}

void asio_loop::run(std::vector<task>& batch) {
    for (task& f : batch) {
        if (stopping_) {
            return;
        }
        f();
        f = nullptr;
    }
}

void asio_loop::next_turn(std::shared_ptr<continuation> c) {
    if (stopping_) {
        return;
    }
    asio::post(*strand_, [self = shared_from_this(), next = std::move(c)] {
        self->turn([&] { next->resume(); });
    });
}

void asio_loop::offload(blocking_work kind, task work, task done) {
    // The pool is joined before this object goes.
    unique_function<void()> job = [this, w = std::move(work), d = std::move(done)]() mutable {
        w();
        w = nullptr;
        post(std::move(d));
    };
    auto& workers = kind == blocking_work::destroy ? destroyers_ : makers_;
    if (!stopping_ && !workers.submit(job)) {
        post(std::move(job));  // no thread to be had: late is better than never
    }
}

void asio_loop::end_turn() {
    // Once: what these post comes with the next turn, so that descriptors and timers get theirs.
    if (!turn_posts_.empty()) {
        time_passed();
        auto batch = std::exchange(turn_posts_, {});
        run(batch);
    }
    for (std::size_t i = 0; i < turn_end_.size(); ++i) {
        const auto next = std::move(turn_end_[i]);
        if (!stopping_) {
            next->resume();
        }
    }
    turn_end_.clear();
    if (stopping_) {
        return;
    }
    arm_timer_later();
    if (!turn_posts_.empty()) {
        asio::post(*strand_, [self = shared_from_this()] { self->turn([] {}); });
    }
}

void asio_loop::stop() {
    if (in_turn()) {
        shut_down();
    } else {
        const std::lock_guard hold(turn_mutex_);
        const runner here(*this);
        shut_down();
    }
    makers_.stop();
    destroyers_.stop();
}

void asio_loop::shut_down() {
    if (stopping_) {
        return;
    }
    stopping_ = true;
    while (!stop_listeners_.empty()) {
        stop_listener* const first = *stop_listeners_.begin();
        stop_listeners_.erase(stop_listeners_.begin());
        first->stopping();
    }
    turn_end_.clear();
    reactor_->clear();
    timer_.reset();
    // What tasks hold may call back in here while it is destroyed: only once all is consistent.
    const timer_queue timers = std::exchange(timers_, {});
    const std::vector<task> posted = std::exchange(turn_posts_, {});
    std::vector<task> unrun;
    const std::lock_guard lock(inbox_mutex_);
    inbox_closed_ = true;
    unrun.swap(inbox_);
    strand_.reset();
}

}  // namespace

struct runtime::impl {
    explicit impl(const runtime_options& options)
        : own(std::make_shared<asio::io_context>(1)), context(*own), loop(make_loop(options)) {
        work.emplace(context.get_executor());
        thread = start_thread("rvget", [keep = own, alive = loop] { keep->run(); });
    }
    impl(asio::io_context& embedder, const runtime_options& options)
        : context(embedder), loop(make_loop(options)) {}

    std::shared_ptr<asio_loop> make_loop(const runtime_options& options) {
        auto made = std::make_shared<asio_loop>(context, options);
        network = make_tcp_network(made, made->executor(),
                                   {options.max_accepted, options.peer_timeout, options.tls});
        return made;
    }

    std::shared_ptr<asio::io_context> own;
    asio::io_context& context;
    std::shared_ptr<control_network> network;
    std::shared_ptr<asio_loop> loop;
    std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work;
    std::thread thread;
};

runtime::runtime(const runtime_options& options) : impl_(std::make_unique<impl>(options)) {}

runtime::runtime(boost::asio::io_context& embedder, const runtime_options& options)
    : impl_(std::make_unique<impl>(embedder, options)) {}

runtime::~runtime() {
    stop();
    impl_->work.reset();
    if (!impl_->thread.joinable()) {
        return;
    }
    if (impl_->thread.get_id() == std::this_thread::get_id()) {
        impl_->thread
            .detach();  // destroyed from a callback: it ends, with all it needs, on its own
    } else {
        impl_->thread.join();
    }
}

environment& runtime::env() noexcept { return *impl_->loop; }

control_network& runtime::network() noexcept { return *impl_->network; }

boost::asio::any_io_executor runtime::executor() const { return impl_->context.get_executor(); }

void runtime::post(environment::task f) { impl_->loop->post(std::move(f)); }

void runtime::stop() {
    impl_->loop->stop();
    if (!impl_->own || impl_->thread.get_id() == std::this_thread::get_id()) {
        return;
    }
    // Twice, because what the running handler posted from its own thread comes behind the first.
    std::promise<void> flushed;
    asio::post(impl_->context, [&] { asio::post(impl_->context, [&] { flushed.set_value(); }); });
    flushed.get_future().wait();
}

}  // namespace rvget::engine
