#pragma once
// Timers in the order in which they are due; those due at the same time in the order of the calls.

#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/time.hpp"
#include "engine/environment.hpp"

namespace rvget::engine {

/// A value, used on one thread at a time. Adding and cancelling cost O(log n).
class timer_queue {
public:
    using timer_id = environment::timer_id;
    using task = environment::task;

    timer_id add(time_point when, task f) {
        const timer_id id = ++last_id_;
        by_id_.emplace(id, by_time_.emplace(when, entry{id, std::move(f)}));
        return id;
    }

    /// The task of a timer that will not fire any more; empty for an unknown id.
    task cancel(timer_id id) {
        const auto found = by_id_.find(id);
        return found == by_id_.end() ? task() : remove(found->second);
    }

    [[nodiscard]] std::optional<time_point> next() const {
        return by_time_.empty() ? std::nullopt : std::optional(by_time_.begin()->first);
    }

    /// The task of the first timer that is due at `now`, if any.
    std::optional<task> take_due(time_point now) {
        if (by_time_.empty() || by_time_.begin()->first > now) {
            return std::nullopt;
        }
        return remove(by_time_.begin());
    }

private:
    struct entry {
        timer_id id;
        task f;
    };
    using time_map = std::multimap<time_point, entry>;

    task remove(time_map::iterator at) {
        by_id_.erase(at->second.id);
        task f = std::move(at->second.f);
        by_time_.erase(at);
        return f;
    }

    time_map by_time_;  // equal keys keep the order of insertion
    std::unordered_map<timer_id, time_map::iterator> by_id_;
    timer_id last_id_ = 0;
};

}  // namespace rvget::engine
