#pragma once
// What the operations of a node have in common on their way back to the caller.

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include <rvget/detail/function.hpp>
#include <rvget/error.hpp>

#include "base/log.hpp"

namespace rvget {

/// No deadline is further away than this, so that sums with a time point never overflow.
inline constexpr std::chrono::milliseconds furthest = std::chrono::hours(24) * 365;

[[nodiscard]] inline std::chrono::milliseconds bounded(std::chrono::milliseconds t) {
    return std::clamp<std::chrono::milliseconds>(t, std::chrono::milliseconds(0), furthest);
}

[[nodiscard]] inline failure stopped() {
    return {node_errc::stopped, "the node has been shut down"};
}

/// Calls `f` exactly once: with `stopped` where the strand has stopped and what was posted there is
/// destroyed without having run.
template <class R>
class answer_once {
public:
    explicit answer_once(detail::unique_function<void(error_code, R)> f) : f_(std::move(f)) {}
    answer_once(answer_once&&) noexcept = default;
    answer_once& operator=(answer_once&&) = delete;
    ~answer_once() {
        if (!f_) return;
        R nothing{};
        if constexpr (requires { nothing.report; }) nothing.report.detail = stopped().detail;
        try {
            (*this)(node_errc::stopped, std::move(nothing));
        } catch (const std::exception& e) {
            log(log_level::error, "event=answer_lost cause=" + quoted(e.what()));
        }
    }
    void operator()(error_code ec, R r) { std::exchange(f_, nullptr)(ec, std::move(r)); }

private:
    detail::unique_function<void(error_code, R)> f_;
};

}  // namespace rvget
