#pragma once
// Runs the work that the engine offloads. Under ThreadSanitizer it runs on a thread of its own that
// is started when the work is handed over and told to go by a relaxed flag: so the sanitizer sees
// every access of the work to state that the strand changed meanwhile as the race that it is,
// although the schedule stays deterministic.

#include <utility>

#include "base/function.hpp"

#if defined(__SANITIZE_THREAD__)
#include <atomic>
#include <memory>
#include <thread>
#endif

namespace rvget::test {

#if defined(__SANITIZE_THREAD__)

class worker {
public:
    explicit worker(unique_function<void()> work) : shared_(std::make_unique<shared>()) {
        thread_ = std::thread([s = shared_.get(), w = std::move(work)]() mutable {
            auto go = command::wait;
            while ((go = s->go.load(std::memory_order_relaxed)) == command::wait)
                std::this_thread::yield();
            if (go == command::run) w();
            if (go == command::abandon)
                s->abandoned = std::move(w);
            else
                w = nullptr;
            s->ran.store(true, std::memory_order_relaxed);
        });
    }
    worker(worker&&) noexcept = default;
    worker& operator=(worker&& other) noexcept {
        end(command::drop);
        shared_ = std::move(other.shared_);
        thread_ = std::move(other.thread_);
        return *this;
    }
    ~worker() { end(command::drop); }

    void run() {
        shared_->go.store(command::run, std::memory_order_relaxed);
        while (!shared_->ran.load(std::memory_order_relaxed)) std::this_thread::yield();
    }
    /// From here on what the work wrote is visible to the caller.
    void join() { end(command::run); }
    /// Its thread ends; what has not run is kept as it is, for as long as this object.
    void abandon() { end(command::abandon); }

private:
    enum class command { wait, run, drop, abandon };
    struct shared {
        std::atomic<command> go{command::wait};
        std::atomic<bool> ran{false};
        unique_function<void()> abandoned;
    };
    void end(command c) {
        if (!thread_.joinable()) return;
        if (shared_->go.load(std::memory_order_relaxed) == command::wait) shared_->go = c;
        thread_.join();
    }
    std::unique_ptr<shared> shared_;
    std::thread thread_;
};

#else

class worker {
public:
    explicit worker(unique_function<void()> work) : work_(std::move(work)) {}
    void run() {
        work_();
        work_ = nullptr;
    }
    void join() {}
    void abandon() {}

private:
    unique_function<void()> work_;
};

#endif

}  // namespace rvget::test
