#include "fabric/fault/plan.hpp"

#include <algorithm>

namespace rvget::fabric::fault {

std::string_view to_string(call kind) noexcept {
    constexpr std::array<std::string_view, call_kinds + 1> names{"list",
                                                                 "open",
                                                                 "refresh",
                                                                 "register memory",
                                                                 "create completion queue",
                                                                 "create queue pair",
                                                                 "allocate window",
                                                                 "listen",
                                                                 "connect",
                                                                 "to init",
                                                                 "to ready-to-receive",
                                                                 "to ready-to-send",
                                                                 "to error",
                                                                 "query state",
                                                                 "post READs",
                                                                 "post SEND",
                                                                 "post receive",
                                                                 "post marker",
                                                                 "post bind",
                                                                 "post invalidate",
                                                                 "poll",
                                                                 "arm",
                                                                 "destroy queue pair",
                                                                 "any"};
    const auto index = static_cast<std::size_t>(kind);
    return index < names.size() ? names[index] : "?";
}

void plan::fail(call kind, std::uint64_t nth, failure with) {
    const std::lock_guard lock(mutex_);
    actions_.push_back({kind, nth, when::instead, std::move(with), {}});
}

void plan::before(call kind, std::uint64_t nth, hook f) {
    const std::lock_guard lock(mutex_);
    actions_.push_back({kind, nth, when::before, {}, std::move(f)});
}

void plan::after(call kind, std::uint64_t nth, hook f) {
    const std::lock_guard lock(mutex_);
    actions_.push_back({kind, nth, when::after, {}, std::move(f)});
}

void plan::break_queue_pair(call kind, std::uint64_t nth) {
    const std::lock_guard lock(mutex_);
    actions_.push_back({kind, nth, when::broken, {}, {}});
}

void plan::fail_read(std::uint64_t nth, completion_status status) {
    const std::lock_guard lock(mutex_);
    read_actions_.push_back({nth, status});
}

void plan::refuse_read(std::uint64_t nth) {
    const std::lock_guard lock(mutex_);
    read_actions_.push_back({nth, std::nullopt});
}

std::uint64_t plan::count(call kind) const {
    const std::lock_guard lock(mutex_);
    return kind == call::any ? total_ : counts_[static_cast<std::size_t>(kind)];
}

plan::counts_by_kind plan::counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
}

std::uint64_t plan::reads() const {
    const std::lock_guard lock(mutex_);
    return reads_;
}

plan::entry plan::enter(call kind) {
    const std::lock_guard lock(mutex_);
    const auto nth = ++counts_[static_cast<std::size_t>(kind)];
    ++total_;
    entry found;
    for (const auto& a : actions_) {
        const bool due =
            (a.kind == kind && a.nth == nth) || (a.kind == call::any && a.nth == total_);
        if (!due) continue;
        switch (a.at) {
            case when::instead:
                found.error = a.error;
                break;
            case when::before:
                found.before.push_back(a.run);
                break;
            case when::after:
                found.after.push_back(a.run);
                break;
            case when::broken:
                found.breaks = true;
                break;
        }
    }
    return found;
}

std::optional<plan::doomed_read> plan::count_reads(std::size_t n) {
    const std::lock_guard lock(mutex_);
    const auto before = reads_;
    reads_ += n;
    std::optional<doomed_read> first;
    for (const auto& a : read_actions_) {
        if (a.nth <= before || a.nth > reads_) continue;
        const auto index = static_cast<std::size_t>(a.nth - before - 1);
        if (!first || index < first->index) first = doomed_read{index, a.status};
    }
    return first;
}

}  // namespace rvget::fabric::fault
