#pragma once
// What the engine asks of its surroundings. The state machines run on one strand and never block;
// time, timers and blocking calls come through here, so that a test can hold all of them.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/function.hpp"
#include "base/time.hpp"

namespace rvget::engine {

/// Where completions come from: the engine's side of one completion queue. Called on the strand.
class completion_source {
public:
    virtual ~completion_source() = default;
    /// Takes and handles what has completed; returns how many completions there were.
    virtual std::size_t poll() = 0;
    /// Asks for an event at the next completion; poll once more afterwards.
    virtual void arm() = 0;
    /// Readable when an event is pending; -1 where there is none (then it is polled by timer).
    [[nodiscard]] virtual int event_descriptor() const = 0;
    /// Takes pending events off the descriptor; never blocks.
    virtual void consume_events() = 0;
    /// Whether any request is outstanding: an idle source is armed at once, without spinning.
    [[nodiscard]] virtual bool expects_completions() const = 0;
};

/// Blocking calls by what waits for them, so that one kind never stands in another's way.
enum class blocking_work : std::uint8_t {
    make,     ///< wire-up and registration; an address that does not resolve costs a second
    destroy,  ///< the end of a queue pair, which is what a fence waits for
};

class environment {
public:
    using task = unique_function<void()>;
    using timer_id = std::uint64_t;  ///< 0 is never a timer

    virtual ~environment() = default;

    /// On the strand: when the running turn began, or when time_passed() was last called in it, so
    /// that a turn reads the clock once. Never later than the clock.
    [[nodiscard]] virtual time_point now() const = 0;
    /// What comes next in this turn began later than what came before: after bytes were received
    /// (whoever sent them may count a time from then), after a callback that may have taken long.
    virtual void time_passed() {}

    /// Runs `f` on the strand at `when` or soon after, unless cancelled before.
    virtual timer_id at(time_point when, task f) = 0;
    /// Forgets a timer; unknown ids (0, fired, cancelled) are ignored.
    virtual void cancel(timer_id id) = 0;

    /// Runs `f` on the strand, later, in order. Callable from any thread.
    virtual void post(task f) = 0;

    /// Runs `work` on a worker thread (it may block), then `done` on the strand. `work` must not
    /// touch engine state. At most a few of each kind run at once; order is not promised.
    virtual void offload(blocking_work kind, task work, task done) = 0;

    /// 64 bits from the operating system's generator (from the seed under test). Never 0.
    virtual std::uint64_t random() = 0;

    /// Polls `source` from now on: spins for spin_us after the last work, then arms, polls once
    /// more and parks. Kept until unwatch().
    virtual void watch(std::shared_ptr<completion_source> source) = 0;
    virtual void unwatch(const completion_source& source) = 0;
    /// A request was posted to a watched source: look at it soon, and keep looking.
    virtual void expect_completions() = 0;
};

}  // namespace rvget::engine
