#pragma once
// A few threads for calls that block.

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "base/function.hpp"

namespace rvget::engine {

/// Starts a thread that takes no signals (the embedder's handlers run on the embedder's threads)
/// and shows as `name` (at most 15 characters) in top and gdb. Throws std::system_error where the
/// kernel gives no thread.
std::thread start_thread(const char* name, unique_function<void()> body);

/// Threads are made on demand up to a limit and live until stop().
class worker_pool {
public:
    explicit worker_pool(std::size_t max_threads) : max_threads_(max_threads) {}
    ~worker_pool() { stop(); }
    worker_pool(const worker_pool&) = delete;
    worker_pool& operator=(const worker_pool&) = delete;

    /// Queues `job`; false when the pool has stopped or has no thread and cannot get one (`job` is
    /// then untouched). Any thread.
    bool submit(unique_function<void()>& job);
    /// Destroys the jobs not begun, waits for those that run. Any thread but a job's own; blocks.
    void stop() noexcept;

private:
    void work();
    bool add_thread() noexcept;

    const std::size_t max_threads_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<unique_function<void()>> jobs_;
    std::vector<std::thread> threads_;
    std::size_t idle_ = 0;
    bool stopped_ = false;
};

}  // namespace rvget::engine
