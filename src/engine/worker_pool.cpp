#include "engine/worker_pool.hpp"

#include <csignal>
#include <system_error>
#include <utility>

#include <pthread.h>

namespace rvget::engine {

std::thread start_thread(const char* name, unique_function<void()> body) {
    // A new thread inherits the mask, so there is no moment in which it could take a signal.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread thread;
    try {
        thread = std::thread(std::move(body));
    } catch (...) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_setname_np(thread.native_handle(), name);
    return thread;
}

bool worker_pool::submit(unique_function<void()>& job) {
    const std::lock_guard lock(mutex_);
    if (stopped_) {
        return false;
    }
    const bool needs_thread = idle_ <= jobs_.size() && threads_.size() < max_threads_;
    if (needs_thread && !add_thread() && threads_.empty()) {
        return false;
    }
    jobs_.push_back(std::move(job));
    wake_.notify_one();
    return true;
}

void worker_pool::stop() noexcept {
    std::vector<std::thread> threads;
    std::deque<unique_function<void()>> jobs;
    {
        const std::lock_guard lock(mutex_);
        stopped_ = true;
        threads.swap(threads_);
        jobs.swap(jobs_);
        wake_.notify_all();
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

bool worker_pool::add_thread() noexcept {
    try {
        threads_.push_back(start_thread("rvget-worker", [this] { work(); }));
        return true;
    } catch (const std::system_error&) {  // EAGAIN: the limit of threads
        return false;
    }
}

void worker_pool::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        ++idle_;
        wake_.wait(lock, [this] { return stopped_ || !jobs_.empty(); });
        --idle_;
        if (stopped_) {
            return;
        }
        auto job = std::move(jobs_.front());
        jobs_.pop_front();
        lock.unlock();
        job();
        job = nullptr;  // what it holds dies outside the lock
        lock.lock();
    }
}

}  // namespace rvget::engine
