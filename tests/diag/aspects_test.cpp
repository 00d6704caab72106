// Each aspect of a path, seen well and not; and what is shown of hosts that want to stay unnamed.

#include <algorithm>
#include <functional>

#include <boost/json/serialize.hpp>
#include <boost/test/unit_test.hpp>

#include "diag/check/aspects.hpp"
#include "diag/check/expected.hpp"
#include "diag/check/redaction.hpp"
#include "diag/check/taken_text.hpp"
#include "diag/check/verdict.hpp"
#include "diag/described.hpp"
#include "fabric/cm/cm_probe.hpp"
#include "path_samples.hpp"

using namespace rvget::diag;

namespace {

/// All that a check can see, and all well.
observations complete() {
    auto o = good();
    for (auto& p : o.pairs) {
        for (auto* e : {&p.a, &p.b}) e->max_read_depth = 16, e->pkeys = {"0xffff"};
    }
    o.a_control_netdev = o.b_control_netdev = "eth0";
    o.a_latency = o.b_latency = passed(8);
    o.soak = passed(65'536), o.soak_reads = 2000;
    o.soak.median_us = 100;
    o.b_doctor.emplace();
    o.a_connects = o.b_connects = {.tried = true, .path_mtu_bytes = 4096, .took_ms = 3};
    return o;
}

struct row {
    const char* id;
    outcome how;
    std::function<void(observations&)> change;
};

const std::vector<row>& rows() {
    static const std::vector<row> all{
        {"path.link_layer", outcome::fail, [](auto& o) { o.pairs[0].a.link_layer = "InfiniBand"; }},
        {"path.control_netdev", outcome::warn, [](auto& o) { o.a_control_netdev = "mgmt0"; }},
        {"path.ladder.forward", outcome::fail,
         [](auto& o) {
             o.forward.passed = {304, 1072};
         }},
        // Only what nobody needs is lost: the path MTU that both take fits.
        {"path.ladder.forward", outcome::pass, [](auto& o) { o.forward.passed.pop_back(); }},
        {"path.ladder.forward", outcome::skip, [](auto& o) { o.forward = {}; }},
        {"path.ladder.forward", outcome::skip,
         [](auto& o) {
             o.forward.passed.clear();
             o.a_route = {.asked = true, .error = "no route to 10.0.0.2"};
         }},
        // There must be a way, whatever the kernel says.
        {"path.ladder.forward", outcome::fail,
         [](auto& o) {
             o.forward.passed = {304, 1072};
             o.a_route = {.asked = true, .error = "no route to 10.0.0.2"};
         }},
        {"path.ladder.reverse", outcome::fail, [](auto& o) { o.reverse.passed = {304}; }},
        {"path.depth", outcome::warn, [](auto& o) { o.pairs[0].b.max_read_depth = 1; }},
        {"path.pkey", outcome::fail, [](auto& o) { o.pairs[0].b.pkeys = {"0x8001"}; }},
        // Two limited members of one partition do not hear each other.
        {"path.pkey", outcome::fail,
         [](auto& o) { o.pairs[0].a.pkeys = o.pairs[0].b.pkeys = {"0x7fff"}; }},
        {"path.pkey", outcome::pass,
         [](auto& o) {
             o.pairs[0].b.pkeys = {"0x8001", "0x7fff"};
         }},
        {"path.gid.matrix", outcome::fail, [](auto& o) { o.pairs[0].a_reads = silent(1); }},
        {"path.gid.matrix", outcome::warn,
         [](auto& o) {
             o.pairs.push_back(o.pairs[0]);
             o.pairs[0].b_error = "ETIMEDOUT";
             o.pairs[0].a_reads = o.pairs[0].b_reads = {};
         }},
        {"path.mtu.read_forward", outcome::fail, [](auto& o) { o.a_reads = {silent(2048)}; }},
        {"path.mtu.read_forward", outcome::skip, [](auto& o) { o.a_reads.clear(); }},
        {"path.mtu.read_reverse", outcome::fail, [](auto& o) { o.b_reads = {silent(2048)}; }},
        {"path.gid.choice", outcome::fail, [](auto& o) { o.pairs[0].a.gid = ""; }},
        {"path.family", outcome::fail, [](auto& o) { o.pairs[0].a.gid = "fe80::1"; }},
        {"path.family", outcome::pass,
         [](auto& o) { o.pairs[0].a.gid = o.pairs[0].b.gid = "fe80::1"; }},
        {"path.roce_version", outcome::fail, [](auto& o) { o.pairs[0].b.type = "RoCE v1"; }},
        {"path.roce_version", outcome::warn,
         [](auto& o) { o.pairs[0].a.type = o.pairs[0].b.type = "RoCE v1"; }},
        {"path.roce_version", outcome::skip,
         [](auto& o) { o.pairs[0].a.link_layer = o.pairs[0].b.link_layer = "InfiniBand"; }},
        {"path.gid.match", outcome::fail, [](auto& o) { o.pairs[0].b_bound = "10.0.0.77"; }},
        {"path.gid.match", outcome::skip,
         [](auto& o) { o.pairs[0].a_target = o.pairs[0].b_bound = ""; }},
        {"path.gid.echo", outcome::fail, [](auto& o) { o.b_later.gid = "10.0.0.9"; }},
        {"path.gid.echo", outcome::fail, [](auto& o) { o.a_later.gid = ""; }},
        {"path.gid.echo", outcome::skip, [](auto& o) { o.b_later = {}; }},
        {"path.mtu.static", outcome::warn, [](auto& o) { o.pairs[0].b.netdev_mtu_bytes = 1500; }},
        {"path.mtu.static", outcome::fail,
         [](auto& o) {
             o.pairs[0].b.netdev_mtu_bytes = 1500;
             o.pinned_mtu_bytes = 4096;
         }},
        {"path.mtu.static", outcome::pass, [](auto& o) { o.pinned_mtu_bytes = 1024; }},
        {"path.mtu.qp", outcome::fail, [](auto& o) { o.b_mtu_bytes = 1024; }},
        {"path.mtu.qp", outcome::skip, [](auto& o) { o.a_mtu_bytes = o.b_mtu_bytes = 0; }},
        {"path.data", outcome::fail, [](auto& o) { o.b_reads.front().wrong_bytes = 1; }},
        {"path.data", outcome::fail,
         [](auto& o) { o.soak.status = "success not trusted: the queue pair is in error"; }},
        // Bytes of a READ that failed are nobody's.
        {"path.data", outcome::pass, [](auto& o) { o.a_reads.back() = silent(65'536); }},
        {"path.data", outcome::skip,
         [](auto& o) {
             o = good();
             o.pairs[0].a_reads = o.pairs[0].b_reads = silent(1);
             o.a_reads.clear(), o.b_reads.clear();
         }},
        {"path.peer_doctor", outcome::warn,
         [](auto& o) {
             o.b_doctor = {{"net.firewall", "host", "drops"}};
         }},
        {"path.peer_doctor", outcome::fail,
         [](auto& o) {
             o.b_doctor = {{"gid.stale", "rxe0/1", "index 3 is gone"}};
             o.pairs[0].a_reads = silent(1);
         }},
        // Another port's trouble is not this path's.
        {"path.peer_doctor", outcome::pass,
         [](auto& o) {
             o.b_doctor = {{"port.state", "rxe0/2", "DOWN"}, {"port.state", "rxe1/1", "DOWN"}};
         }},
        {"path.peer_doctor", outcome::skip, [](auto& o) { o.b_doctor.reset(); }},
        {"path.cm.connect", outcome::warn,
         [](auto& o) { o.a_connects.error = "connect: no event in 2000 ms"; }},
        {"path.cm.connect", outcome::warn,
         [](auto& o) { o.b_connects.accept_error = "accept: no event in 2000 ms"; }},
        {"path.cm.connect", outcome::skip, [](auto& o) { o.a_connects = o.b_connects = {}; }},
        {"path.cm.connect", outcome::skip,
         [](auto& o) {
             o.a_connects.error = std::string(rvget::fabric::cm_unavailable) + ": ENOENT";
         }},
        {"path.cm.mtu", outcome::warn,
         [](auto& o) {
             o.pairs[0].b.netdev_mtu_bytes = 1500;
             o.pairs[0].b.active_mtu_bytes = 1024;
         }},
        {"path.route", outcome::fail,
         [](auto& o) {
             o.b_route = {.asked = true, .error = "no route to 10.0.0.1"};
             o.pairs[0].b_reads = silent(1);
         }},
        {"path.route", outcome::warn,
         [](auto& o) { o.b_route = {.asked = true, .error = "no route to 10.0.0.1"}; }},
        {"path.route", outcome::warn, [](auto& o) { o.a_route.netdev = "eth9"; }},
        // To itself: well where both ends are on one host, a duplicate address where they are not.
        {"path.route", outcome::pass,
         [](auto& o) {
             o.pairs[0].b.host = o.pairs[0].a.host;
             o.a_route.local = true;
             o.a_route.netdev = "lo";
         }},
        {"path.route", outcome::fail,
         [](auto& o) {
             o.a_route.local = true;
             o.a_route.netdev = "lo";
         }},
        {"path.route", outcome::skip, [](auto& o) { o.a_route = o.b_route = {}; }},
        {"path.route", outcome::skip, [](auto& o) { o.b_route = {.silent = true}; }},
        // What one end tells counts, whatever the other one does.
        {"path.route", outcome::warn,
         [](auto& o) {
             o.a_route.netdev = "eth9";
             o.b_route = {.silent = true};
         }},
        {"path.neighbour", outcome::fail,
         [](auto& o) {
             o.b_route.next_hop_state = "failed";
             o.pairs[0].b_reads = silent(1);
         }},
        {"path.neighbour", outcome::warn, [](auto& o) { o.b_route.next_hop_state = "failed"; }},
        {"path.neighbour", outcome::fail,
         [](auto& o) {
             o.a_route.next_hop_state = "incomplete";
             o.b_route.next_hop_state = "stale";
             o.pairs[0].b_reads = silent(1);
         }},
        // READs show what the table does not know; where there are none, nothing does.
        {"path.neighbour", outcome::pass, [](auto& o) { o.a_route.next_hop_state = "stale"; }},
        {"path.neighbour", outcome::warn,
         [](auto& o) {
             o.a_route.next_hop_state = "stale";
             o.pairs[0].b_reads = silent(1);
         }},
        {"path.neighbour", outcome::warn,
         [](auto& o) {
             o.a_route.next_hop_state = "delay";
             o.pairs[0].b_reads = silent(1);
         }},
        {"path.neighbour", outcome::pass,
         [](auto& o) {
             o.a_route.next_hop_state = "permanent";
             o.pairs[0].b_reads = silent(1);
         }},
        {"path.neighbour", outcome::skip, [](auto& o) { o.a_route = o.b_route = {}; }},
        // A neighbour on a netdev that is not RDMA's says nothing of it.
        {"path.neighbour", outcome::skip,
         [](auto& o) {
             o.a_route.netdev = o.b_route.netdev = "eth9";
             o.a_route.next_hop_state = "failed";
             o.pairs[0].b_reads = silent(1);
         }},
        {"path.l2", outcome::fail,
         [](auto& o) {
             o.a_route.next_hop_mac = "02:00:00:00:00:09";
             o.pairs[0].b_reads = silent(1);
         }},
        {"path.l2", outcome::warn, [](auto& o) { o.a_route.next_hop_mac = "02:00:00:00:00:09"; }},
        {"path.l2", outcome::warn, [](auto& o) { o.a_route.gateway = "10.0.0.254"; }},
        {"path.l2", outcome::skip,
         [](auto& o) { o.a_route.next_hop_mac = o.b_route.next_hop_mac = ""; }},
        {"path.l2", outcome::skip,
         [](auto& o) {
             o.a_route.netdev = o.b_route.netdev = "eth9";
             o.a_route.next_hop_mac = "02:00:00:00:00:09";
             o.pairs[0].b_reads = silent(1);
         }},
        {"path.hops", outcome::pass, [](auto& o) { o.forward.ttl = 61; }},
        {"path.hops", outcome::fail, [](auto& o) { o.forward.ttl = 24, o.hop_limit = 40; }},
        {"path.hops", outcome::skip, [](auto& o) { o.forward.ttl = o.reverse.ttl = 0; }},
        {"path.ecmp", outcome::fail, [](auto& o) { o.a_paths.large_failed = 2; }},
        {"path.ecmp", outcome::fail, [](auto& o) { o.b_paths.small_failed = 1; }},
        // Whatever keeps all of them out, it is not one link.
        {"path.ecmp", outcome::skip, [](auto& o) { o.b_paths.large_failed = 8; }},
        {"path.ecmp", outcome::skip,
         [](auto& o) { o.b_paths.large_failed = o.b_paths.repeated = 8; }},
        {"path.ecmp", outcome::fail,
         [](auto& o) { o.b_paths.large_failed = 8, o.a_paths.small_failed = 1; }},
        // Two of each kind are enough, one is not, and a time that ran out is no fault of links.
        {"path.ecmp", outcome::fail, [](auto& o) { o.b_paths = {.tried = 4, .small_failed = 2}; }},
        {"path.ecmp", outcome::skip, [](auto& o) { o.b_paths = {.tried = 4, .small_failed = 3}; }},
        {"path.ecmp", outcome::skip, [](auto& o) { o.b_paths = {.tried = 3, .small_failed = 1}; }},
        {"path.ecmp", outcome::skip, [](auto& o) { o.b_paths = {.tried = 4, .small_failed = 4}; }},
        {"path.ecmp", outcome::skip, [](auto& o) { o.b_paths = {.tried = 3}; }},
        {"path.ecmp", outcome::warn,
         [](auto& o) { o.b_paths.small_failed = 4, o.b_paths.repeated = 1; }},
        {"path.ecmp", outcome::skip, [](auto& o) { o.a_paths = o.b_paths = {}; }},
        {"path.oversize", outcome::fail, [](auto& o) { o.b_port["rx_oversize_pkts_phy"] = 1; }},
        {"path.oversize", outcome::fail, [](auto& o) { o.a_port["rx_out_of_range_len_phy"] = 1; }},
        {"path.oversize", outcome::skip, [](auto& o) { o.a_port = o.b_port = {}; }},
        {"path.tclass", outcome::warn,
         [](auto& o) { o.b_port["rx_prio3_packets"] = 2, o.b_port["rx_prio0_packets"] = 100; }},
        // Whatever else arrives; but what left must, or most of it.
        {"path.tclass", outcome::pass, [](auto& o) { o.b_port["rx_prio0_packets"] = 100'000; }},
        {"path.tclass", outcome::warn, [](auto& o) { o.b_port["rx_prio3_packets"] = 49; }},
        {"path.tclass", outcome::pass, [](auto& o) { o.b_port["rx_prio3_packets"] = 50; }},
        {"path.tclass", outcome::skip,
         [](auto& o) { o.a_port["tx_prio3_packets"] = 3, o.b_port = {}; }},
        {"path.sl", outcome::pass,
         [](auto& o) { o.pairs[0].a.link_layer = o.pairs[0].b.link_layer = "InfiniBand"; }},
        {"path.sl", outcome::fail,
         [](auto& o) {
             o.pairs[0].a.link_layer = o.pairs[0].b.link_layer = "InfiniBand";
             o.pairs[0].a_reads = silent(1);
         }},
        {"path.death", outcome::warn, [](auto& o) { o.death.took_ms = 2345; }},
        {"path.death", outcome::warn, [](auto& o) { o.death.status = "no completion"; }},
        {"path.death", outcome::warn,
         [](auto& o) { o.death.status = "local queue pair operation error"; }},
        {"path.death", outcome::pass, [](auto& o) { o.death.took_ms = 2344; }},
        {"path.death", outcome::skip, [](auto& o) { o.death = {}; }},
        {"path.loss", outcome::warn,
         [](auto& o) {
             o.soak_reads = 100'000;
             o.soak.reader["local_ack_timeout_err"] = 1;
         }},
        {"path.loss", outcome::fail, [](auto& o) { o.soak.reader["completer_retry_err"] = 1; }},
    };
    return all;
}

/// Nothing where there is no such finding.
const finding* find(const std::vector<finding>& all, std::string_view id) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& f) { return f.id == id; });
    return found == all.end() ? nullptr : &*found;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(diag_aspects)

BOOST_AUTO_TEST_CASE(good_path_passes_in_every_aspect_that_is_documented) {
    const auto seen = aspects_of(complete());
    for (const auto& f : path_findings()) {
        const bool verdict = f.id == "path.lossy" || f.id == "path.unknown";
        const bool before =
            f.id == "path.control" || f.id == "path.version" || f.id == "path.expected";
        if (!f.id.starts_with("path.") || verdict || before) continue;
        const auto* found = find(seen, f.id);
        BOOST_TEST_REQUIRE((found != nullptr), f.id);
        // The sample is of RoCE.
        const auto well = f.id == "path.sl" ? outcome::skip : outcome::pass;
        BOOST_TEST((found->outcome == well), f.id << ": " << found->message);
    }
}

BOOST_AUTO_TEST_CASE(each_fault_is_seen_in_its_aspect) {
    for (const auto& r : rows()) {
        auto o = complete();
        r.change(o);
        const auto seen = aspects_of(o);
        const auto* found = find(seen, r.id);
        BOOST_TEST_REQUIRE((found != nullptr), r.id);
        BOOST_TEST((found->outcome == r.how), r.id << ": " << found->message);
    }
}

BOOST_AUTO_TEST_CASE(every_aspect_that_can_fail_has_a_case) {
    for (const auto& f : aspects_of(complete())) {
        const bool figure = f.id.starts_with("path.latency") || f.id == "path.bandwidth";
        const bool covered = std::any_of(rows().begin(), rows().end(), [&](const auto& r) {
            return f.id == r.id && r.how != outcome::pass;
        });
        BOOST_TEST(covered != figure, f.id);
    }
}

BOOST_AUTO_TEST_CASE(expected_path_is_compared_and_what_was_not_seen_is_no_pass) {
    auto o = complete();
    for (auto* e : {&o.pairs[0].a, &o.pairs[0].b}) e->rate_mbps = 100'000;
    expectations all;
    all.mtu_bytes = 9000, all.rate_mbps = 100'000, all.gid_family = "IPv4";
    all.bandwidth_mbps = 5242;  // 65536 bytes in 100 us
    BOOST_TEST((judge_expected(o, all).outcome == outcome::pass));
    const auto fails = [&](auto change, const std::string& words) {
        auto wanted = all;
        change(wanted);
        const auto f = judge_expected(o, wanted);
        BOOST_TEST((f.outcome == outcome::fail), words);
        BOOST_TEST(f.message.find(words) != std::string::npos, f.message);
        BOOST_TEST(!f.fix.empty());
    };
    fails([](auto& e) { e.mtu_bytes = 4200; }, "has MTU 9000, expected 4200");
    fails([](auto& e) { e.rate_mbps = 200'000; }, "100000 Mb/s, expected 200000");
    fails([](auto& e) { e.gid_family = "IPv6"; }, "10.0.0.2 (index 3) on node-b is not IPv6");
    fails([](auto& e) { e.bandwidth_mbps = 5243; }, "bring 5242 Mb/s, expected 5243");
    o.soak_reads = 0;
    BOOST_TEST((judge_expected(o, all).outcome == outcome::skip));
    expectations machine;
    machine.devices = 8;
    BOOST_TEST((judge_expected(o, machine).outcome == outcome::skip));
    BOOST_TEST((judge_expected({}, all).outcome == outcome::skip));
}

BOOST_AUTO_TEST_CASE(redacted_report_names_neither_host_nor_address) {
    auto o = complete();
    o.peer = "node-b.example.org --port 7";
    o.pairs[0].a.mac = "aa:bb:cc:dd:ee:01", o.pairs[0].b.mac = "aa:bb:cc:dd:ee:02";
    o.a_route.next_hop_mac = "aa:bb:cc:dd:ee:03", o.a_route.gateway = "10.0.0.254";
    o.b_route.gateway = "10.0.0.88";
    o.b_firewall = "ip saddr 10.0.0.1 udp dport 4791 drop";
    o.b_doctor = {{"gid.missing", "rxe0/1", "10.0.0.99 on eth0 has no GID"}};
    for (auto* r : {&o.pairs[0].a_reads, &o.pairs[0].b_reads}) *r = silent(1);
    o.pairs[0].a_target = "10.0.0.77";
    report shown{.tool = "check",
                 .host = "node-a",
                 .facts = {{"observations", to_json(o)}},
                 .lines = {"node-a 10.0.0.1 <> node-b 10.0.0.2"},
                 .findings = judge_path(o)};
    const auto verdict = shown.findings.back().id;
    redaction(o, "node-b.example.org").apply(shown);
    const auto text = boost::json::serialize(shown.to_json(2)) + shown.lines[0];
    for (const auto* secret : {"node-a", "node-b", "10.0.0.", "aa:bb"})
        BOOST_TEST(text.find(secret) == std::string::npos, secret << " in " << text);
    BOOST_TEST(text.find("host-a->host-b") != std::string::npos);
    BOOST_TEST(shown.findings.back().id == verdict);
    // What was one thing still is: it can be judged again.
    observations again;
    from_json(shown.facts.at("observations"), again);
    take(again);
    BOOST_TEST(judge_path(again).back().id == verdict);
    BOOST_TEST(again.pairs[0].b_bound == again.pairs[0].b.gid);
    BOOST_TEST(again.pairs[0].a_target != again.pairs[0].b_bound);
}

BOOST_AUTO_TEST_SUITE_END()
