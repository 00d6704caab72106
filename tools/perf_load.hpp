#pragma once
// Gets of one kind and size, again and again, each of them timed.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <boost/asio/steady_timer.hpp>

#include <rvget/node.hpp>

#include "diag/load_schedule.hpp"
#include "diag/perf_pattern.hpp"
#include "diag/perf_point.hpp"
#include "signal_watch.hpp"

namespace rvget::tools {

enum class perf_operation : std::uint8_t { get, get_into, get_pinned };
std::string_view to_string(perf_operation o) noexcept;

struct perf_load_settings {
    perf_operation operation = perf_operation::get;
    std::uint64_t bytes = 0;
    diag::load_options load;
    path_policy policy = path_policy::prefer;
    std::chrono::milliseconds deadline{30'000};  ///< of each get
    bool verify = true;                          ///< compare every byte of each
    std::size_t first_slot = 0;                  ///< of the first get; the next follow
    /// Of get_into: destinations that the device knows, where there is one; else plain memory.
    bool registered = true;
};

/// What a transfer by RDMA ran over.
struct perf_route {
    std::string device;
    std::uint32_t port = 0;
    std::string gid;
    std::uint32_t path_mtu_bytes = 0;
};

/// Everything between the first get and the last happens on the node's own thread: a get is begun
/// where another ended, as a program with an event loop does it, so that no thread is woken up for
/// it that the library does not wake up itself.
class perf_load {
public:
    /// Slot n of `slots` holds the n-th pattern; all of the node's, `slots` and `pattern` outlive
    /// this.
    perf_load(node& n, const perf_load_settings& settings, const std::vector<url>& slots,
              const diag::perf_pattern& pattern);
    ~perf_load();
    perf_load(const perf_load&) = delete;
    perf_load& operator=(const perf_load&) = delete;

    /// Memory for get_into. Blocks while it is registered.
    result<void> prepare();

    /// What has been done since the start, now and then while run() waits.
    using watcher = std::function<void(std::uint64_t count, std::uint64_t bytes)>;
    /// Blocks until it is over or a signal came (see signal_watch::received); a failed or wrong get
    /// ends it, too, and is counted. Once. `interval` 0: nobody watches.
    diag::perf_run run(signal_watch& signals, std::chrono::milliseconds interval,
                       const watcher& watch);

    [[nodiscard]] const std::optional<perf_route>& route() const noexcept { return route_; }

private:
    using clock = std::chrono::steady_clock;
    /// One of the gets in flight.
    struct lane {
        std::size_t slot = 0;  ///< of its latest get
        std::span<std::byte> destination;
    };

    void begin_more(clock::time_point now);
    void start(std::size_t lane_index, clock::time_point from);
    void ended(std::size_t lane_index, clock::time_point from, const error_code& ec,
               const transfer_report& report, std::span<std::byte> bytes);
    void check(std::size_t lane_index, std::span<std::byte> bytes);
    void count(const transfer_report& report);
    void finish();
    void tell_if_over();
    template <class R>
    auto handler(std::size_t lane_index, clock::time_point from);

    node& node_;
    const perf_load_settings settings_;
    const std::vector<url>& slots_;
    const diag::perf_pattern& pattern_;
    std::unique_ptr<std::byte[]> memory_;
    std::optional<region> region_;
    boost::asio::steady_timer due_;
    int done_ = -1;  ///< eventfd(2), readable when it is over

    // On the node's thread while it runs.
    std::optional<diag::load_schedule> schedule_;
    std::vector<lane> lanes_;
    std::vector<std::size_t> idle_;
    std::vector<quiet> not_quiet_;
    diag::perf_run run_;
    std::optional<perf_route> route_;
    clock::time_point begun_;
    clock::time_point last_;
    clock::duration checking_{0};
    clock::duration checked_before_last_{0};
    std::uint32_t waits_ = 0;  ///< timers that have not come back
    bool over_ = false;

    std::atomic<std::uint64_t> done_count_{0};
    std::atomic<std::uint64_t> done_bytes_{0};
};

}  // namespace rvget::tools
