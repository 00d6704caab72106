#include "perf_load.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <future>
#include <system_error>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <boost/asio/post.hpp>

#include "console.hpp"

namespace rvget::tools {
namespace {

constexpr std::size_t page = 4096;

std::span<std::byte> bytes_of(get_result& r) { return r.data.bytes(); }
std::span<std::byte> bytes_of(get_pinned_result& r) { return r.data.bytes(); }

}  // namespace

std::string_view to_string(perf_operation o) noexcept {
    constexpr std::array names{"get", "get_into", "get_pinned"};
    return names[static_cast<std::size_t>(o)];
}

perf_load::perf_load(node& n, const perf_load_settings& settings, const std::vector<url>& slots,
                     const diag::perf_pattern& pattern)
    : node_(n),
      settings_(settings),
      slots_(slots),
      pattern_(pattern),
      due_(n.get_executor()),
      done_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (done_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    lanes_.resize(settings_.load.depth);
    // Neighbours begin with different slots, and each goes on to the next.
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
        lanes_[i].slot = settings_.first_slot + i + slots_.size() - 1;
    }
    for (std::size_t i = lanes_.size(); i > 0; --i) idle_.push_back(i - 1);
}

perf_load::~perf_load() {
    // A NIC may still write what a failed get had been given; then the memory must stay.
    bool all_quiet = true;
    for (const auto& q : not_quiet_) all_quiet &= q.wait_for(std::chrono::seconds(10));
    if (region_) all_quiet &= region_->unregister().wait_for(std::chrono::seconds(10));
    if (!all_quiet) static_cast<void>(memory_.release());
    ::close(done_);
}

result<void> perf_load::prepare() {
    if (settings_.operation != perf_operation::get_into) return {};
    const auto stride = (settings_.bytes + page - 1) / page * page;
    memory_ = std::make_unique<std::byte[]>(stride * (lanes_.size() + 1));  // touched, so mapped
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.get());
    auto* const first = memory_.get() + (page - address % page) % page;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
        lanes_[i].destination = {first + i * stride, settings_.bytes};
    }
    if (!settings_.registered || !node_.rdma().usable) return {};
    auto made = node_.register_region({first, stride * lanes_.size()});
    if (!made) return made.error();
    region_.emplace(std::move(*made));
    return {};
}

diag::perf_run perf_load::run(signal_watch& signals, std::chrono::milliseconds interval,
                              const watcher& watch) {
    boost::asio::post(node_.get_executor(), [this] {
        begun_ = last_ = clock::now();
        schedule_.emplace(settings_.load, begun_);
        begin_more(begun_);
    });
    bool stopping = false;
    for (;;) {
        std::array<pollfd, 2> set{{{done_, POLLIN, 0}, {signals.descriptor(), POLLIN, 0}}};
        const bool watched = interval.count() > 0 && !stopping;
        const int ready =
            ::poll(set.data(), stopping ? 1 : 2, watched ? static_cast<int>(interval.count()) : -1);
        std::uint64_t ignored = 0;
        if (::read(done_, &ignored, sizeof ignored) == sizeof ignored) break;
        if (ready == 0 && watched) watch(done_count_, done_bytes_);
        if (!stopping && signals.received()) {
            stopping = true;
            boost::asio::post(node_.get_executor(), [this] {
                schedule_->stop();
                due_.cancel();
                begin_more(clock::now());
            });
        }
    }
    // What was posted last may not have run yet, and refers to this object.
    std::promise<void> idle;
    boost::asio::post(node_.get_executor(), [&] { idle.set_value(); });
    idle.get_future().wait();
    return std::move(run_);
}

/// The clock is read no more often than it has to be: where it is a system call, that is part of
/// what is measured.
void perf_load::begin_more(clock::time_point now) {
    while (const auto from = schedule_->begin(now)) {
        const auto next = idle_.back();
        idle_.pop_back();
        start(next, *from);
        if (!idle_.empty()) now = clock::now();
    }
    if (schedule_->over(now)) return finish();
    if (const auto due = schedule_->next_due(now)) {
        due_.expires_at(*due);
        ++waits_;
        due_.async_wait([this](const error_code& ec) {
            --waits_;
            if (over_) {
                tell_if_over();
            } else if (!ec) {
                begin_more(clock::now());
            }
        });
    }
}

template <class R>
auto perf_load::handler(std::size_t lane_index, clock::time_point from) {
    return [this, lane_index, from](error_code ec, R r) {
        if constexpr (std::is_same_v<R, get_into_result>) {
            if (ec && !r.quiet.resolved()) not_quiet_.push_back(r.quiet);
            ended(lane_index, from, ec, r.report, lanes_[lane_index].destination.first(r.bytes));
        } else {
            ended(lane_index, from, ec, r.report, bytes_of(r));
        }
    };
}

void perf_load::start(std::size_t lane_index, clock::time_point from) {
    auto& l = lanes_[lane_index];
    l.slot = (l.slot + 1) % slots_.size();
    const auto& where = slots_[l.slot];
    const get_options options{.deadline = settings_.deadline, .policy = settings_.policy};
    switch (settings_.operation) {
        case perf_operation::get:
            return node_.async_get(where, options, handler<get_result>(lane_index, from));
        case perf_operation::get_into:
            return node_.async_get_into(where, l.destination, options,
                                        handler<get_into_result>(lane_index, from));
        case perf_operation::get_pinned:
            return node_.async_get_pinned(where, options,
                                          handler<get_pinned_result>(lane_index, from));
    }
}

void perf_load::ended(std::size_t lane_index, clock::time_point from, const error_code& ec,
                      const transfer_report& report, std::span<std::byte> bytes) {
    auto now = last_ = clock::now();
    checked_before_last_ = checking_;
    schedule_->ended();
    idle_.push_back(lane_index);
    if (ec) {
        ++run_.errors;
        if (run_.first_error.empty()) {
            run_.first_error = sentence_of(failure{ec, report.detail});
        }
        schedule_->stop();
        due_.cancel();
    } else {
        run_.latency.record(last_ - from);
        run_.bytes += bytes.size();
        count(report);
        if (settings_.verify) {
            check(lane_index, bytes);
            now = clock::now();
            checking_ += now - last_;
        }
        done_count_.fetch_add(1, std::memory_order_relaxed);
        done_bytes_.fetch_add(bytes.size(), std::memory_order_relaxed);
    }
    begin_more(now);
}

void perf_load::check(std::size_t lane_index, std::span<std::byte> bytes) {
    ++run_.verified;
    if (bytes.size() != settings_.bytes || !pattern_.matches(bytes, lanes_[lane_index].slot)) {
        ++run_.wrong;
        if (run_.first_error.empty()) {
            run_.first_error = "a transfer ended well and brought other bytes than the owner's";
        }
        schedule_->stop();
        due_.cancel();
    }
    diag::perf_pattern::spoil(bytes);
}

void perf_load::count(const transfer_report& report) {
    ++run_.paths[std::string(rvget::to_string(report.path)) + "/" +
                 std::string(rvget::to_string(report.reason))];
    run_.acquire += report.acquire;
    run_.transfer += report.transfer;
    run_.copy += report.copy;
    if (report.path == path::rdma && !route_) {
        route_ = {report.device, report.port, report.gid, report.path_mtu};
    }
}

void perf_load::finish() {
    if (over_) return;
    over_ = true;
    run_.never_begun = schedule_->never_begun();
    run_.took = last_ - begun_;
    // One at a time, nothing went on while bytes were compared: that time is not the transfers'.
    if (settings_.load.depth == 1 && settings_.load.rate <= 0) {
        run_.took -= std::min<std::chrono::nanoseconds>(checked_before_last_, run_.took);
    }
    due_.cancel();
    tell_if_over();
}

void perf_load::tell_if_over() {
    if (waits_ != 0) return;  // a wait that was cancelled still comes back here
    const std::uint64_t one = 1;
    // Cannot fail: the counter is far from its limit.
    if (::write(done_, &one, sizeof one) != sizeof one) std::abort();
}

}  // namespace rvget::tools
