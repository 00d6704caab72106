#pragma once
// One point of a measurement: an operation at one size and load, run a few times.

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "diag/latency_histogram.hpp"
#include "diag/spread.hpp"

namespace rvget::diag {

using counter_growth = std::map<std::string, std::uint64_t>;

/// What one end of a run spent, and what its ports counted meanwhile ("rxe0/1 sent_pkts").
struct end_usage {
    double cpu_s = 0;
    counter_growth counters;
};

struct perf_run {
    latency_histogram latency;
    std::chrono::nanoseconds took{0};  ///< from the first begin to the last end
    std::uint64_t bytes = 0;           ///< that arrived
    std::uint64_t errors = 0;
    std::uint64_t never_begun = 0;  ///< transfers of an open loop that were due, for want of time
    std::uint64_t verified = 0;     ///< transfers of which every byte was compared
    std::uint64_t wrong = 0;        ///< of those, with a byte that is not the owner's
    std::string first_error;        ///< for people
    std::map<std::string, std::uint64_t> paths;  ///< transfers by "rdma/ok", "chunked/below_min"
    // Sums of what the transfers reported.
    std::chrono::nanoseconds acquire{0};
    std::chrono::nanoseconds transfer{0};
    std::chrono::nanoseconds copy{0};
    end_usage client;
    std::optional<end_usage> server;

    [[nodiscard]] double seconds() const { return std::chrono::duration<double>(took).count(); }
    [[nodiscard]] double bytes_per_s() const {
        return took.count() == 0 ? 0 : static_cast<double>(bytes) / seconds();
    }
};

struct perf_point {
    std::string op;  ///< "get", "get_into", "get_pinned"
    std::uint64_t size_bytes = 0;
    std::uint32_t depth = 1;
    double rate = 0;      ///< operations per second that were wanted; 0: closed loop
    std::string policy;   ///< of the path: "prefer"
    bool cold = false;    ///< every transfer was the first of its pair of nodes
    bool pinned = false;  ///< the owner holds the bytes in registered memory
    /// The consumer's end of the path of the first transfer by RDMA; empty where there was none.
    std::string device;
    std::uint32_t port = 0;
    std::string gid;
    std::uint32_t path_mtu_bytes = 0;
    std::vector<perf_run> runs;
    std::string broken_off;  ///< why there is less than was to be measured; empty: it is all there

    /// All runs as one: sums, one histogram.
    [[nodiscard]] perf_run total() const;
    [[nodiscard]] spread gigabits_per_s() const;
    [[nodiscard]] spread typical_us() const;
    /// "lossy": a port had to repeat or ask again; "unstable": the runs differ by more than a
    /// tenth; "cold"; "mixed": not all took the same path; "overloaded": not all that were due
    /// could be begun; "incomplete": it broke off.
    [[nodiscard]] std::vector<std::string> flags() const;
    /// Every figure by name, unit in the name; what a requirement can be made of, in a fixed order.
    [[nodiscard]] std::vector<std::pair<std::string, double>> figures() const;
    /// What must be equal for two points to be comparable.
    [[nodiscard]] std::string key() const;
};

/// Adds what `now` counts beyond `before` to `growth`; a counter that is smaller was reset.
void add_growth(counter_growth& growth, const counter_growth& before, const counter_growth& now);

}  // namespace rvget::diag
