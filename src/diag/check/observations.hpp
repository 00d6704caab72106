#pragma once
// What a check between two ends saw: plain values, so that verdicts are pure and can be tested from
// a file. A is the end that asks (the client), B the one that listens.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <boost/describe/class.hpp>

namespace rvget::diag {

/// A GID of one end, with what its port and netdevs say.
struct end_point {
    std::string host;
    std::string device;
    std::string driver;
    std::uint32_t port = 1;
    std::string link_layer;
    std::uint32_t lid = 0;
    std::string gid;  ///< empty: the index is empty
    std::uint32_t index = 0;
    std::string type;
    std::string netdev;
    std::uint32_t netdev_mtu_bytes = 0;  ///< of the GID's own netdev
    std::uint32_t prefix = 0;            ///< of the GID's address on it; 0: unknown
    std::string port_netdev;
    std::uint32_t port_netdev_mtu_bytes = 0;
    std::uint32_t active_mtu_bytes = 0;
    std::string mac;  ///< of the GID's netdev
    std::uint32_t max_read_depth = 0;
    std::vector<std::string> pkeys;  ///< of the port, "0xffff"
    std::int32_t rank = 0;
    std::string reason;
    std::uint32_t rate_mbps = 0;      ///< of the port; 0: unknown
    std::uint32_t max_mtu_bytes = 0;  ///< path MTU that the device can; 0: unknown
};
BOOST_DESCRIBE_STRUCT(end_point, (),
                      (host, device, driver, port, link_layer, lid, gid, index, type, netdev,
                       netdev_mtu_bytes, prefix, port_netdev, port_netdev_mtu_bytes,
                       active_mtu_bytes, mac, max_read_depth, pkeys, rank, reason, rate_mbps,
                       max_mtu_bytes))

/// One READ. Counters: how they grew at the reader and at the one read from.
struct read_seen {
    std::uint32_t bytes = 0;
    std::string status;  ///< "success", a completion status, "no completion", or empty: not tried
    std::uint64_t wrong_bytes = 0;
    std::uint64_t written_bytes = 0;
    std::uint64_t median_us = 0;  ///< of all READs that were made, each posted alone
    std::map<std::string, std::uint64_t> reader;
    std::map<std::string, std::uint64_t> responder;

    [[nodiscard]] bool ok() const { return status == "success" && wrong_bytes == 0; }
};
BOOST_DESCRIBE_STRUCT(read_seen, (),
                      (bytes, status, wrong_bytes, written_bytes, median_us, reader, responder))

/// A pair of GIDs tried: the error's name where a queue pair did not come up ("EINVAL"), else the
/// READs of one byte.
struct pair_seen {
    end_point a, b;
    std::string a_error, b_error;
    std::string a_target, b_bound;  ///< the GID that A sends to, and the one B's queue pair has
    read_seen a_reads, b_reads;

    [[nodiscard]] bool ok() const { return a_reads.ok() && b_reads.ok(); }
};
BOOST_DESCRIBE_STRUCT(pair_seen, (), (a, b, a_error, b_error, a_target, b_bound, a_reads, b_reads))

/// Don't-fragment UDP datagrams by the length of their IP packets.
struct ladder_seen {
    std::vector<std::uint32_t> sent, passed, refused;
    std::uint32_t ttl = 0;  ///< with which they arrived, of `sent_ttl`; 0: unknown
    static constexpr std::uint32_t sent_ttl = 64;

    [[nodiscard]] bool ran() const { return !sent.empty() || !refused.empty(); }
    [[nodiscard]] std::uint32_t largest() const {
        std::uint32_t most = 0;
        for (const auto size : passed) most = most > size ? most : size;
        return most;
    }
};
BOOST_DESCRIBE_STRUCT(ladder_seen, (), (sent, passed, refused, ttl))

/// Where an end's kernel sends what goes from its GID's address to the other one's.
struct route_seen {
    bool asked = false;   ///< and told
    bool silent = false;  ///< the end does not tell: it is of an older version
    std::string error;    ///< why there is none
    bool local = false;
    std::string netdev, gateway;
    std::string next_hop_mac, next_hop_state;  ///< as the neighbour table of that netdev has them
};
BOOST_DESCRIBE_STRUCT(route_seen, (),
                      (asked, silent, error, local, netdev, gateway, next_hop_mac, next_hop_state))

/// READs over queue pairs of their own: a fabric of parallel links sends each pair, by its UDP
/// source port, over one of them.
struct paths_seen {
    static constexpr std::uint32_t enough = 8;

    std::uint32_t tried = 0;         ///< pairs of queue pair numbers, each another one
    std::uint32_t small_failed = 0;  ///< READ of one byte
    std::uint32_t large_failed = 0;  ///< READ of a full packet, where one byte came
    /// READs that no link explains: they came after a time-out, or failed not for want of an
    /// answer.
    std::uint32_t repeated = 0;

    [[nodiscard]] std::uint32_t failed() const { return small_failed + large_failed; }
    [[nodiscard]] bool none_passes() const { return tried >= enough && failed() == tried; }
    /// Whether more of them would say nothing else: two that fail and two that pass show that links
    /// differ, and only so many that are all alike that they do not.
    [[nodiscard]] bool decided() const {
        return tried >= enough || (failed() >= 2 && tried - failed() >= 2);
    }
    /// Some links pass everything and some nothing; what passes now and then is loss.
    [[nodiscard]] bool some_fail() const {
        return decided() && failed() > 0 && failed() < tried && repeated == 0;
    }
};
BOOST_DESCRIBE_STRUCT(paths_seen, (), (tried, small_failed, large_failed, repeated))

/// What one end noticed after the other one had destroyed its queue pair.
struct death_seen {
    bool tried = false;
    std::string status;
    std::uint64_t took_ms = 0;
    std::uint64_t limit_ms = 0;  ///< what its timers allow
};
BOOST_DESCRIBE_STRUCT(death_seen, (), (tried, status, took_ms, limit_ms))

/// A connection by RDMA-CM, by the end whose member it is.
struct cm_seen {
    bool tried = false;
    std::string error;         ///< the step and what ended it; empty: established
    std::string accept_error;  ///< likewise at the end that accepts
    std::uint32_t path_mtu_bytes = 0;
    std::uint32_t took_ms = 0;
    /// Where that path MTU is larger than both ends take: a READ over queue pairs that have it, as
    /// those of a program that leaves it to RDMA-CM.
    read_seen large;
};
BOOST_DESCRIBE_STRUCT(cm_seen, (), (tried, error, accept_error, path_mtu_bytes, took_ms, large))

/// What fails by an end's own doctor.
struct doctor_seen {
    std::string id;
    std::string subject;
    std::string message;
};
BOOST_DESCRIBE_STRUCT(doctor_seen, (), (id, subject, message))

struct observations {
    std::string peer;              ///< B as who asked named it, for commands; empty: its host name
    std::vector<pair_seen> pairs;  ///< the one that was asked for first, else the best
    std::string no_gid_at;  ///< where there is no pair: the host without a GID that can be tried
    std::string no_gid;     ///< which one was wanted there; empty: any
    bool gid_pinned = false;
    std::uint32_t pinned_mtu_bytes = 0;              ///< --mtu; 0: the common one was used
    std::uint32_t a_mtu_bytes = 0, b_mtu_bytes = 0;  ///< that the two queue pairs were given
    std::uint32_t hop_limit = 64;                    ///< the lower one of the queue pairs
    ladder_seen forward, reverse;                    ///< A to B, B to A
    std::vector<read_seen> a_reads, b_reads;         ///< by size, up to the first failure
    std::uint32_t soak_reads = 0;
    read_seen soak;                  ///< the first READ that failed, else the last, counters of all
    read_seen a_latency, b_latency;  ///< many READs of 8 bytes
    paths_seen a_paths, b_paths;     ///< by the end that READs
    death_seen death;
    /// How those counters of the ports' netdevs grew that tell of sizes and priorities, zeros
    /// included, while data flowed over the first pair; empty where the driver has none.
    std::map<std::string, std::uint64_t> a_port, b_port;
    /// Likewise at the reader's, during its READs of growing size alone.
    std::map<std::string, std::uint64_t> a_reads_port, b_reads_port;
    cm_seen a_connects, b_connects;
    end_point a_later, b_later;          ///< the first pair's ends, read again at the end
    std::string a_sees_mac, b_sees_mac;  ///< the peer's link address as the neighbour table has it
    route_seen a_route, b_route;         ///< to the other end of the first pair
    std::string a_control_netdev, b_control_netdev;
    std::string a_firewall, b_firewall;  ///< as doctor finds it
    /// Of B's; none where B is of a version that does not tell.
    std::optional<std::vector<doctor_seen>> b_doctor;
};
BOOST_DESCRIBE_STRUCT(observations, (),
                      (peer, pairs, no_gid_at, no_gid, gid_pinned, pinned_mtu_bytes, a_mtu_bytes,
                       b_mtu_bytes, hop_limit, forward, reverse, a_reads, b_reads, soak_reads, soak,
                       a_latency, b_latency, a_paths, b_paths, death, a_port, b_port, a_reads_port,
                       b_reads_port, a_connects, b_connects, a_later, b_later, a_sees_mac,
                       b_sees_mac, a_route, b_route, a_control_netdev, b_control_netdev, a_firewall,
                       b_firewall, b_doctor))

}  // namespace rvget::diag
