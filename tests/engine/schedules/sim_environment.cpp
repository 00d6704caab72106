#include "engine/schedules/sim_environment.hpp"

#include <algorithm>
#include <utility>

namespace rvget::test {

void sim_environment::run_task() {
    const auto f = std::make_unique<task>(std::move(tasks_.front()));
    tasks_.pop_front();
    (*f)();
}

std::optional<time_point> sim_environment::next_timer() const noexcept {
    if (timers_.empty()) return std::nullopt;
    auto first = timers_.front().when;
    for (const auto& t : timers_) first = std::min(first, t.when);
    return first;
}

bool sim_environment::timer_due() const noexcept {
    return std::any_of(timers_.begin(), timers_.end(),
                       [&](const timer& t) { return t.when <= clock_; });
}

void sim_environment::fire_timer() {
    const auto first =
        std::min_element(timers_.begin(), timers_.end(), [](const timer& a, const timer& b) {
            return std::pair(a.when, a.id) < std::pair(b.when, b.id);
        });
    auto run = std::move(first->run);
    timers_.erase(first);
    run();
}

engine::environment::timer_id sim_environment::at(time_point when, task f) {
    timers_.push_back({std::max(when, clock_), next_timer_, std::move(f)});
    return next_timer_++;
}

void sim_environment::cancel(timer_id id) {
    if (id == 0) return;
    const auto it =
        std::find_if(timers_.begin(), timers_.end(), [&](const timer& t) { return t.id == id; });
    if (it == timers_.end()) return;
    const auto dropped = std::move(it->run);  // what it holds may call back in here
    timers_.erase(it);
}

void sim_environment::offload(engine::blocking_work kind, task work, task done) {
    jobs_.push_back({kind, worker(std::move(work)), std::move(done)});
}

/// The place of the `index`-th job that could make a step; how many there are, beyond the last.
std::size_t sim_environment::find_job(std::size_t index) const noexcept {
    std::size_t steps = 0;
    std::array<std::size_t, 2> busy{};
    for (std::size_t at = 0; at < jobs_.size(); ++at) {
        const auto kind = static_cast<std::size_t>(jobs_[at].kind);
        if (!jobs_[at].ran && busy[kind]++ >= threads_of[kind]) continue;
        if (steps++ == index) return at;
    }
    return steps;
}

std::size_t sim_environment::jobs() const noexcept { return find_job(jobs_.size()); }

bool sim_environment::job_runs(std::size_t index) const noexcept {
    return !jobs_[find_job(index)].ran;
}

void sim_environment::step_job(std::size_t index) {
    const auto at = find_job(index);
    auto& j = jobs_[at];
    if (!std::exchange(j.ran, true)) return j.work.run();
    j.work.join();
    auto done = std::move(j.done);
    jobs_.erase(jobs_.begin() + static_cast<std::ptrdiff_t>(at));
    post(std::move(done));
}

void sim_environment::kill() {
    for (auto& j : jobs_) j.work.abandon();
}

void sim_environment::clear() {
    // What these hold may call back in here while it dies.
    while (!tasks_.empty() || !timers_.empty() || !jobs_.empty()) {
        const auto tasks = std::exchange(tasks_, {});
        const auto timers = std::exchange(timers_, {});
        const auto jobs = std::exchange(jobs_, {});
    }
    source_.reset();
}

}  // namespace rvget::test
