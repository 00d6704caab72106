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

void sim_environment::offload(task work, task done) {
    jobs_.push_back({worker(std::move(work)), std::move(done)});
}

std::size_t sim_environment::jobs() const noexcept {
    const auto ran = static_cast<std::size_t>(
        std::count_if(jobs_.begin(), jobs_.end(), [](const job& j) { return j.ran; }));
    return ran + std::min(worker_threads - std::min(ran, worker_threads), jobs_.size() - ran);
}

bool sim_environment::job_runs(std::size_t index) const noexcept { return !jobs_[index].ran; }

void sim_environment::step_job(std::size_t index) {
    auto& j = jobs_[index];
    if (!std::exchange(j.ran, true)) {
        j.work.run();
        // Jobs that ran stay in front, so that the first ones are always those that may step.
        std::stable_partition(jobs_.begin(), jobs_.end(), [](const job& x) { return x.ran; });
        return;
    }
    j.work.join();
    auto done = std::move(j.done);
    jobs_.erase(jobs_.begin() + static_cast<std::ptrdiff_t>(index));
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
