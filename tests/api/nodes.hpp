#pragma once
// What the tests of the public API share: nodes on loopback, payloads, and a way to wait for
// handlers.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <mutex>
#include <ostream>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "api/node_impl.hpp"
#include "support/pattern.hpp"

namespace rvget {

inline std::ostream& operator<<(std::ostream& out, path p) { return out << to_string(p); }
inline std::ostream& operator<<(std::ostream& out, reason r) { return out << to_string(r); }

namespace test {

using namespace std::chrono_literals;

inline constexpr auto patience = 60s;  ///< for what must happen; nothing waits that long

/// The sizes of the API's transfers: around inline_max (4096) and rdma_min_bytes (65536), odd, and
/// of many chunks.
inline constexpr std::size_t transfer_sizes[] = {
    0, 1, 4095, 4096, 4097, 65536, (std::size_t{1} << 20) + 4097, std::size_t{16} << 20};

/// `named` is part of what it says.
template <class R>
void check_failure(const result<R>& r, error_code expected, std::string_view named = {}) {
    BOOST_REQUIRE(!r);
    BOOST_TEST(r.error().code == expected);
    BOOST_TEST(r.error().message().find(named) != std::string::npos, r.error().message());
}

/// The first `bytes` bytes of the pattern.
inline std::span<const std::byte> payload(std::size_t bytes) {
    static const std::vector<std::byte> whole = [] {
        std::vector<std::byte> v(transfer_sizes[std::size(transfer_sizes) - 1]);
        fill_pattern(v);
        return v;
    }();
    return std::span(whole).first(bytes);
}

/// For handlers, which may run on any thread: Boost.Test's macros are for the test's own.
inline bool is_pattern(std::span<const std::byte> bytes) {
    return pattern_mismatch(bytes) == bytes.size();
}

inline void check_pattern(std::span<const std::byte> bytes, std::uint64_t first = 0) {
    BOOST_TEST(pattern_mismatch(bytes, first) == bytes.size());
}

inline node_options small_arena(node_options o = {}) {
    o.first_arena_bytes = std::size_t{1} << 20;
    return o;
}

inline node_options listening(node_options o = {}) {
    o.listen = endpoint_address{"127.0.0.1", 0};
    return small_arena(std::move(o));
}

/// A node without a device, whatever this machine has.
inline node start_tcp_node(node_options o = {}) {
    return start_node_on(nullptr, small_arena(std::move(o))).value();
}

/// Two of them, and what tests do with them.
struct tcp_nodes {
    explicit tcp_nodes(node_options owner_options = {}, node_options consumer_options = {})
        : owner(start_tcp_node(listening(std::move(owner_options)))),
          consumer(start_tcp_node(std::move(consumer_options))) {}

    [[nodiscard]] url stage(std::size_t bytes) {
        return owner.url_of(owner.stage(payload(bytes)).value());
    }

    node owner;
    node consumer;
};

/// granted = released + expired + active, at any moment.
inline void check_lease_invariant(const node& n) {
    const auto s = n.statistics();
    BOOST_TEST(s.leases_granted == s.leases_released + s.leases_expired + s.leases_active);
}

/// How often each of a number of handlers was called, by any thread, and with what.
class answers {
public:
    void add(std::size_t which, error_code ec = {}) {
        const std::lock_guard lock(mutex_);
        ++times_[which];
        codes_[which] = ec;
        changed_.notify_all();
    }
    /// Whether `count` different handlers are called in time.
    [[nodiscard]] bool wait_for(std::size_t count) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, patience, [&] { return times_.size() >= count; });
    }
    [[nodiscard]] std::size_t count() const {
        const std::lock_guard lock(mutex_);
        return times_.size();
    }
    [[nodiscard]] bool each_once() const {
        const std::lock_guard lock(mutex_);
        return std::ranges::all_of(times_, [](const auto& t) { return t.second == 1; });
    }
    [[nodiscard]] error_code code(std::size_t which) const {
        const std::lock_guard lock(mutex_);
        return codes_.at(which);
    }

private:
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::size_t, int> times_;
    std::map<std::size_t, error_code> codes_;
};

}  // namespace test
}  // namespace rvget
