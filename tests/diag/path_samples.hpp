#pragma once
// What a check sees of a path that is well, for tests to change one thing of.

#include "diag/check/observations.hpp"

namespace rvget::diag {

inline end_point end(const char* host, const char* gid, std::uint32_t index) {
    return {.host = host,
            .device = "rxe0",
            .driver = "rxe",
            .link_layer = "Ethernet",
            .gid = gid,
            .index = index,
            .type = "RoCE v2",
            .netdev = "eth0",
            .netdev_mtu_bytes = 9000,
            .prefix = 24,
            .port_netdev = "eth0",
            .port_netdev_mtu_bytes = 9000,
            .active_mtu_bytes = 4096,
            .mac = host,
            .rank = 4};
}
inline read_seen passed(std::uint32_t bytes) { return {.bytes = bytes, .status = "success"}; }
inline read_seen silent(std::uint32_t bytes) {
    return {.bytes = bytes, .status = "transport retry counter exceeded", .wrong_bytes = bytes};
}

inline observations good() {
    observations o;
    const auto a = end("node-a", "10.0.0.1", 1);
    const auto b = end("node-b", "10.0.0.2", 3);
    o.pairs = {{.a = a,
                .b = b,
                .a_error = {},
                .b_error = {},
                .a_target = b.gid,
                .b_bound = b.gid,
                .a_reads = passed(1),
                .b_reads = passed(1)}};
    o.a_mtu_bytes = o.b_mtu_bytes = 4096;
    o.forward.sent = o.forward.passed = {304, 1072, 1500, 4144, 9000};
    o.reverse = o.forward;
    o.a_reads = o.b_reads = {passed(256), passed(65'536)};
    o.a_later = a, o.b_later = b;
    o.a_sees_mac = b.mac, o.b_sees_mac = a.mac;
    o.forward.ttl = o.reverse.ttl = ladder_seen::sent_ttl;
    const auto direct = [](const end_point& from, const end_point& to) {
        return route_seen{.asked = true,
                          .netdev = from.netdev,
                          .next_hop_mac = to.mac,
                          .next_hop_state = "reachable"};
    };
    o.a_route = direct(a, b), o.b_route = direct(b, a);
    o.a_paths = o.b_paths = {.tried = 8};
    o.a_port = o.b_port = {{"rx_oversize_pkts_phy", 0},
                           {"rx_prio3_packets", 100},
                           {"tx_prio3_packets", 100},
                           {"rx_prio0_packets", 2}};
    o.death = {.tried = true,
               .status = "transport retry counter exceeded",
               .took_ms = 400,
               .limit_ms = 336};
    return o;
}

}  // namespace rvget::diag
