#pragma once
// SIGINT, SIGTERM and SIGHUP as something to wait for: no code runs in a signal handler.

#include <chrono>
#include <optional>

namespace rvget::tools {

/// From its construction on the three signals are blocked in this thread and those that it starts,
/// and SIGPIPE is ignored (a write says EPIPE instead). Make one, early, in the main thread.
class signal_watch {
public:
    /// Throws std::system_error where the kernel gives no descriptor.
    signal_watch();
    ~signal_watch();
    signal_watch(const signal_watch&) = delete;
    signal_watch& operator=(const signal_watch&) = delete;

    /// Readable when a signal has come (signalfd(2)).
    [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
    /// The first signal that came, if one did. Does not block.
    std::optional<int> received();
    using time_point = std::chrono::steady_clock::time_point;
    /// Blocks until `fd` is ready for `events` (poll(2)); false where a signal came before, see
    /// received(), or it was `until`.
    bool wait_for(int fd, short events, std::optional<time_point> until = std::nullopt);
    /// Blocks until a signal comes.
    int wait();

private:
    int descriptor_ = -1;
    std::optional<int> received_;
};

}  // namespace rvget::tools
