#pragma once
// The surroundings of one simulated node. Nothing runs by itself: whoever drives the node asks what
// could run and runs it one step at a time, in any order it likes.

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "engine/environment.hpp"
#include "engine/schedules/prng.hpp"
#include "engine/schedules/worker.hpp"

namespace rvget::test {

class sim_environment final : public engine::environment {
public:
    /// `clock` is the time of the whole world, borrowed.
    sim_environment(const time_point& clock, std::uint64_t seed) : clock_(clock), random_(seed) {}

    // --- Driving -------------------------------------------------------------------------------

    [[nodiscard]] std::size_t tasks() const noexcept { return tasks_.size(); }
    void run_task();

    [[nodiscard]] std::optional<time_point> next_timer() const noexcept;
    [[nodiscard]] bool timer_due() const noexcept;
    /// Fires the timer that has been due longest. Precondition: timer_due().
    void fire_timer();

    /// Jobs that could make a step: the worker threads of each kind take them in order, and a job
    /// that has run hands over its `done` in a step of its own.
    [[nodiscard]] std::size_t jobs() const noexcept;
    /// Whether job `index` would run now, rather than hand over.
    [[nodiscard]] bool job_runs(std::size_t index) const noexcept;
    void step_job(std::size_t index);

    [[nodiscard]] bool watches() const noexcept { return source_ != nullptr; }
    void poll() {
        if (const auto source = source_) source->poll();
    }

    /// Drops everything that waits, unrun: the node's strand has been stopped for ever.
    void clear();

    /// No thread of its works from here on, and nothing is dropped: the process has been killed.
    void kill();

    // --- engine::environment -------------------------------------------------------------------

    [[nodiscard]] time_point now() const override { return clock_; }
    timer_id at(time_point when, task f) override;
    void cancel(timer_id id) override;
    void post(task f) override { tasks_.push_back(std::move(f)); }
    void offload(engine::blocking_work kind, task work, task done) override;
    std::uint64_t random() override { return random_.u64() | 1U; }
    void watch(std::shared_ptr<engine::completion_source> source) override {
        source_ = std::move(source);
    }
    void unwatch(const engine::completion_source& source) override {
        if (source_.get() == &source) source_.reset();
    }
    void expect_completions() override {}

private:
    [[nodiscard]] std::size_t find_job(std::size_t index) const noexcept;

    struct timer {
        time_point when;
        timer_id id = 0;
        task run;
    };
    struct job {
        engine::blocking_work kind = engine::blocking_work::make;
        worker work;
        task done;
        bool ran = false;
    };
    static constexpr std::array<std::size_t, 2> threads_of{2, 1};  ///< by kind of work

    const time_point& clock_;
    prng random_;
    std::deque<task> tasks_;
    std::vector<timer> timers_;  ///< few, unordered
    timer_id next_timer_ = 1;
    std::vector<job> jobs_;
    std::shared_ptr<engine::completion_source> source_;
};

}  // namespace rvget::test
