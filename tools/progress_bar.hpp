#pragma once
// A progress bar on a terminal.

#include <chrono>
#include <cstdint>

namespace rvget::tools {

/// Draws on standard error, at most ten times a second; draws nothing where that is no terminal.
class progress_bar {
public:
    explicit progress_bar(bool wanted);
    ~progress_bar();
    progress_bar(const progress_bar&) = delete;
    progress_bar& operator=(const progress_bar&) = delete;

    void show(std::uint64_t done, std::uint64_t total);
    /// Wipes the line, so that something else can be printed there.
    void clear();

private:
    using clock = std::chrono::steady_clock;
    const bool enabled_;
    bool drawn_ = false;
    const clock::time_point begin_ = clock::now();
    clock::time_point next_ = begin_ + std::chrono::milliseconds(100);
};

}  // namespace rvget::tools
