#pragma once
// The library's side of rvget::quiet.

#include <condition_variable>
#include <mutex>
#include <vector>

#include <rvget/transfer.hpp>

namespace rvget {

class quiet::state {
public:
    /// Once; runs what waits for it on the calling thread.
    void resolve();
    [[nodiscard]] bool resolved() const;
    void on_resolved(detail::unique_function<void()> f);
    bool wait_for(std::chrono::milliseconds timeout);

private:
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    bool resolved_ = false;
    std::vector<detail::unique_function<void()>> waiting_;
};

}  // namespace rvget
