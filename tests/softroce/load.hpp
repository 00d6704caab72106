#pragma once
// Gets of one payload that run side by side all the time, so that a fault always meets some of them
// in flight. Every answer is kept, with its bytes compared.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <rvget/node.hpp>

#include "support/pattern.hpp"

namespace rvget::test {

/// Half of the gets return bytes, half fill a registered region, which the NIC writes directly.
class load {
public:
    using clock = std::chrono::steady_clock;
    static constexpr std::size_t getters = 32;

    struct answer {
        clock::time_point begun, ended;
        error_code code;
        path ran;
        rvget::reason why;
        std::string detail;
        bool right;  ///< without an error: the bytes are those of the payload
        [[nodiscard]] bool rdma() const { return !code && ran == path::rdma; }
        [[nodiscard]] bool was_running_at(clock::time_point t) const {
            return begun < t && t < ended;
        }
    };

    /// `memory` holds getters * bytes and lies in a registered region.
    load(node& n, url from, std::uint64_t bytes, std::span<std::byte> memory,
         std::chrono::milliseconds deadline)
        : node_(n), from_(from), bytes_(bytes), memory_(memory), options_{.deadline = deadline} {
        for (std::size_t i = 0; i < getters; ++i)
            boost::asio::post(context_, [this, i] { begin(i); });
        thread_ = std::jthread([this] { context_.run(); });
    }
    ~load() { stop(); }
    load(const load&) = delete;
    load& operator=(const load&) = delete;

    /// Begins no more; every answer, once the last get has one.
    std::vector<answer> stop() {
        stopping_ = true;
        if (thread_.joinable()) thread_.join();
        return answers_;
    }

    /// Whether an answer for which `is` holds comes, or came, within `limit`.
    template <class Predicate>
    bool comes(Predicate is, std::chrono::seconds limit) {
        std::unique_lock lock(mutex_);
        return more_.wait_for(lock, limit, [&] { return std::ranges::any_of(answers_, is); });
    }

private:
    /// A peer that is away refuses at once: asking again without a pause would be all that runs.
    static constexpr auto pause_after_failure = std::chrono::milliseconds(20);

    void begin(std::size_t i) {
        if (stopping_) return;
        const auto begun = clock::now();
        if (i % 2 == 0) {
            node_.async_get(from_, options_,
                            boost::asio::bind_executor(
                                context_, [this, i, begun](const error_code& code, get_result r) {
                                    note(i, begun, code, r.report, r.data.bytes());
                                }));
            return;
        }
        const auto into = memory_.subspan(i * bytes_, bytes_);
        std::ranges::fill(into, std::byte{0xee});
        node_.async_get_into(
            from_, into, options_,
            boost::asio::bind_executor(
                context_, [this, i, begun, into](const error_code& code, get_into_result r) {
                    note(i, begun, code, r.report, into.first(r.bytes), r.quiet);
                }));
    }

    void note(std::size_t i, clock::time_point begun, const error_code& code,
              const transfer_report& report, std::span<const std::byte> bytes, quiet q = {}) {
        const bool right =
            !code && bytes.size() == bytes_ && pattern_mismatch(bytes) == bytes.size();
        {
            const std::lock_guard lock(mutex_);
            answers_.push_back(
                {begun, clock::now(), code, report.path, report.reason, report.detail, right});
        }
        more_.notify_all();
        if (!code) return boost::asio::post(context_, [this, i] { begin(i); });
        again(i, std::move(q));
    }

    void again(std::size_t i, quiet q) {
        auto timer = std::make_shared<boost::asio::steady_timer>(context_, pause_after_failure);
        timer->async_wait([this, i, q, timer](const error_code&) {
            if (q.resolved())
                begin(i);
            else
                again(i, q);
        });
    }

    node& node_;
    const url from_;
    const std::uint64_t bytes_;
    const std::span<std::byte> memory_;
    const get_options options_;
    boost::asio::io_context context_;
    std::atomic<bool> stopping_{false};
    std::mutex mutex_;
    std::condition_variable more_;
    std::vector<answer> answers_;
    std::jthread thread_;
};

}  // namespace rvget::test
