#pragma once
// When the next operation of a measurement is due, in time that is passed in.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace rvget::diag {

struct load_options {
    /// Operations in flight; where `rate` is set, the most that are.
    std::uint32_t depth = 1;
    /// Operations per second (open loop): they are due at equal distances whatever becomes of those
    /// before. 0: closed loop, one is due as soon as another is done.
    double rate = 0;
    std::optional<std::uint64_t> iterations{};           ///< none: no limit
    std::optional<std::chrono::nanoseconds> duration{};  ///< none is due later; none: no limit
};

/// What was due within the duration is still begun after it, but no longer than this: a stall at
/// the end counts, and a rate that is above what the path can do does not go on for ever.
constexpr std::chrono::nanoseconds catching_up_limit(std::chrono::nanoseconds duration) noexcept {
    return std::min<std::chrono::nanoseconds>(duration, std::chrono::seconds(1));
}

/// In an open loop the latency of an operation counts from when it was due, not from when it could
/// be begun: a stall counts for each operation that was due meanwhile, as it would for as many
/// independent users ("coordinated omission" is to count it once). A value; not thread safe.
class load_schedule {
public:
    using time_point = std::chrono::steady_clock::time_point;

    load_schedule(const load_options& options, time_point begin) noexcept
        : options_(options), begin_(begin) {}

    /// From when the operation that may be begun at `now` counts; nothing where none may be.
    std::optional<time_point> begin(time_point now) noexcept;
    /// When to ask begin() again, where time and not an end is what it waits for.
    [[nodiscard]] std::optional<time_point> next_due(time_point now) const noexcept;
    void ended() noexcept { --in_flight_; }
    /// None is begun any more, however much time remains.
    void stop() noexcept { stopped_ = true; }

    [[nodiscard]] std::uint32_t in_flight() const noexcept { return in_flight_; }
    [[nodiscard]] std::uint64_t begun() const noexcept { return begun_; }
    /// Of an open loop that is over: how many were due within its duration and never begun, as they
    /// could not be caught up with.
    [[nodiscard]] std::uint64_t never_begun() const noexcept;

    /// Everything that was due and could be begun in time has been begun, and has ended.
    [[nodiscard]] bool over(time_point now) const noexcept { return in_flight_ == 0 && !more(now); }

private:
    [[nodiscard]] bool more(time_point now) const noexcept;
    [[nodiscard]] time_point due() const noexcept;

    load_options options_;
    time_point begin_;
    std::uint64_t begun_ = 0;
    std::uint32_t in_flight_ = 0;
    bool stopped_ = false;
};

}  // namespace rvget::diag
