// Verdicts between two ends: what was seen of a good path with one thing changed, and the one cause
// that must be named.

#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>

#include <boost/test/unit_test.hpp>

#include "diag/check/verdict.hpp"
#include "path_samples.hpp"

using namespace rvget::diag;

namespace {

void add_good_pair(observations& o) { o.pairs.push_back(good().pairs.front()); }
void no_read(observations& o) {
    o.pairs[0].a_reads = o.pairs[0].b_reads = silent(1);
    o.a_reads.clear(), o.b_reads.clear();
}
void no_connection(observations& o, const char* a, const char* b) {
    no_read(o);
    o.pairs[0].a_reads = o.pairs[0].b_reads = {};
    o.pairs[0].a_error = a, o.pairs[0].b_error = b;
}
void short_path(ladder_seen& l) { l.passed = {304, 1072, 1500}; }

struct row {
    const char* verdict;
    outcome how;
    std::function<void(observations&)> change;
};

const std::vector<row>& rows() {
    static const std::vector<row> all{
        {"gid.family", outcome::fail,
         [](auto& o) {
             no_connection(o, "EINVAL", "EINVAL");
             o.pairs[0].a.gid = "fe80::1";
             add_good_pair(o);
         }},
        {"gid.empty", outcome::fail,
         [](auto& o) {
             no_connection(o, "ENODATA", "EINVAL");
             o.pairs[0].a.gid = "";
             add_good_pair(o);
         }},
        {"gid.stale", outcome::fail, [](auto& o) { no_connection(o, "ENODATA", ""); }},
        {"gid.stale", outcome::fail,
         [](auto& o) {
             no_read(o);
             o.b_later.gid = "10.0.0.9";
         }},
        {"gid.netdev", outcome::fail, [](auto& o) { no_connection(o, "ENODEV", ""); }},
        {"gid.unreachable", outcome::fail,
         [](auto& o) {
             no_connection(o, "ETIMEDOUT", "ETIMEDOUT");
             add_good_pair(o);
         }},
        {"net.neighbour", outcome::fail,
         [](auto& o) { no_connection(o, "ETIMEDOUT", "ETIMEDOUT"); }},
        {"net.duplicate", outcome::fail,
         [](auto& o) {
             no_read(o);
             o.a_sees_mac = "other";
             o.forward.passed = {};
         }},
        // The asking host itself, which does not answer who has its own address.
        {"net.duplicate", outcome::fail,
         [](auto& o) {
             no_connection(o, "", "ETIMEDOUT");
             o.a_route.local = true;
         }},
        {"gid.mismatch", outcome::fail,
         [](auto& o) {
             no_read(o);
             o.pairs[0].b_bound = "10.0.0.77";
         }},
        {"gid.version", outcome::fail,
         [](auto& o) {
             no_read(o);
             o.pairs[0].b.type = "RoCE v1";
         }},
        {"gid.deleted", outcome::fail,
         [](auto& o) {
             no_read(o);
             o.pairs[0].a_reads.status = "local queue pair operation error";
         }},
        {"gid.asymmetric", outcome::fail,
         [](auto& o) {
             no_read(o);
             o.pairs[0].a_reads = passed(1);
         }},
        {"gid.path", outcome::fail,
         [](auto& o) {
             no_read(o);
             add_good_pair(o);
         }},
        {"gid.link_layer", outcome::fail,
         [](auto& o) {
             no_read(o);
             o.pairs[0].b.link_layer = "InfiniBand";
         }},
        {"net.udp4791", outcome::fail, [](auto& o) { no_read(o); }},
        {"net.udp4791", outcome::fail,
         [](auto& o) {
             no_read(o);
             o.b_firewall = "udp dport 4791 drop";
         }},
        {"net.path", outcome::fail,
         [](auto& o) {
             no_read(o);
             o.forward.passed = o.reverse.passed = {};
         }},
        {"mtu.differ", outcome::warn,
         [](auto& o) {
             o.pairs[0].b.netdev_mtu_bytes = 1500;
             o.pairs[0].b.active_mtu_bytes = 1024;
         }},
        {"mtu.upper", outcome::warn,
         [](auto& o) {
             o.pairs[0].b.netdev = "eth0.5";
             o.pairs[0].b.netdev_mtu_bytes = 1500;
         }},
        {"mtu.stale_port", outcome::warn, [](auto& o) { o.pairs[0].b.active_mtu_bytes = 1024; }},
        {"mtu.wasted_step", outcome::pass,
         [](auto& o) {
             o.pairs[0].b.netdev_mtu_bytes = 4100;
             o.pairs[0].a.netdev_mtu_bytes = 2176, o.pairs[0].a.active_mtu_bytes = 2048,
             o.pairs[0].b.active_mtu_bytes = 2048;
         }},
        {"mtu.pinned_high", outcome::fail,
         [](auto& o) {
             o.pairs[0].b.netdev_mtu_bytes = o.b_later.netdev_mtu_bytes = 1500;
             o.pinned_mtu_bytes = 4096;
             o.a_reads.back() = silent(4096);
         }},
        {"mtu.qp_disagree", outcome::fail,
         [](auto& o) {
             o.b_mtu_bytes = 1024;
             o.a_reads.back() = silent(4096);
         }},
        {"mtu.path.reverse", outcome::fail,
         [](auto& o) {
             short_path(o.reverse);
             o.a_reads.back() = silent(2048);
         }},
        {"mtu.path.forward", outcome::fail,
         [](auto& o) {
             short_path(o.forward);
             o.b_reads.back() = silent(2048);
         }},
        {"mtu.rdma_only", outcome::fail, [](auto& o) { o.a_reads.back() = silent(2048); }},
        {"mtu.port", outcome::fail,
         [](auto& o) {
             o.a_reads.back() = silent(2048);
             o.a_reads_port["rx_oversize_pkts_phy"] = 4;
         }},
        {"net.egress", outcome::fail,
         [](auto& o) {
             o.soak = passed(65'536), o.soak_reads = 500;
             o.soak.responder["send_err"] = 20;
             o.soak.reader["completer_retry_err"] = 20;
         }},
        {"net.egress", outcome::fail,
         [](auto& o) {
             o.soak = passed(65'536), o.soak_reads = 500;
             o.soak.responder["send_err"] = 20;
             o.soak.reader["rcvd_rnr_err"] = 20;
         }},
        // What no READ had to be repeated for was another queue pair's.
        {"net.egress", outcome::warn,
         [](auto& o) {
             o.soak = passed(65'536), o.soak_reads = 500;
             o.soak.responder["send_err"] = 20;
         }},
        {"mtu.cm", outcome::warn,
         [](auto& o) {
             o.pairs[0].b.netdev_mtu_bytes = 1500;
             o.pairs[0].b.active_mtu_bytes = 1024;
             o.a_connects = {.tried = true, .path_mtu_bytes = 4096, .large = silent(65'536)};
         }},
        {"mtu.ecmp", outcome::fail, [](auto& o) { o.a_paths.large_failed = 2; }},
        // The queue pair of the READ ladder met one of them.
        {"mtu.ecmp", outcome::fail,
         [](auto& o) {
             o.b_reads.back() = silent(65'536);
             o.b_paths.large_failed = 4;
         }},
        {"mtu.local", outcome::fail,
         [](auto& o) {
             // The port announces what its netdev does not take.
             for (auto* e : {&o.pairs[0].a, &o.a_later})
                 e->driver = "", e->netdev_mtu_bytes = 0, e->active_mtu_bytes = 4096;
             o.b_reads.back() = silent(2048);
             o.b_reads.back().responder["send_err"] = 4;
         }},
        {"net.egress", outcome::fail,
         [](auto& o) {
             o.a_reads.back() = silent(2048);
             o.a_reads.back().status = "no completion";
             o.a_reads.back().reader["send_err"] = 4;
         }},
        {"net.egress", outcome::fail,
         [](auto& o) {
             o.a_reads.back() = silent(2048);
             o.a_reads.back().responder["send_err"] = 4;
         }},
        {"net.egress", outcome::fail,
         [](auto& o) {
             no_read(o);
             o.pairs[0].a_reads.responder["send_err"] = 4;
         }},
        {"mtu.changed", outcome::fail,
         [](auto& o) {
             o.soak_reads = 9;
             o.soak = silent(65'536);
             o.b_later.netdev_mtu_bytes = 1500;
         }},
        {"gid.deleted", outcome::fail,
         [](auto& o) {
             o.soak_reads = 9;
             o.soak = silent(65'536);
             o.b_later.gid = "";
         }},
        {"rxe.false_success", outcome::fail,
         [](auto& o) {
             o.a_reads.back() = {.bytes = 4096,
                                 .status = "success not trusted: the queue pair is in error",
                                 .wrong_bytes = 4096};
         }},
        {"path.lossy", outcome::fail,
         [](auto& o) {
             o.soak_reads = 9;
             o.soak = silent(65'536);
         }},
        {"path.unknown", outcome::error, [](auto& o) { no_connection(o, "ENOMEM", ""); }},
        {"path.unknown", outcome::error,
         [](auto& o) {
             o.forward = o.reverse = {};
             o.a_reads.back() = silent(4096);
         }},
    };
    return all;
}

/// What comes close to a verdict, must not give it, and what must come out instead; nothing for
/// a path that is well.
struct near_miss {
    const char* not_this;
    const char* instead;
    std::function<void(observations&)> change;
};

const std::vector<near_miss>& near_misses() {
    static const std::vector<near_miss> all{
        {"gid.family", "", [](auto& o) { o.pairs[0].a.gid = o.pairs[0].b.gid = "fe80::1"; }},
        {"gid.empty", "gid.stale", [](auto& o) { no_connection(o, "ENODATA", ""); }},
        {"gid.stale", "net.udp4791", [](auto& o) { no_read(o); }},
        {"gid.netdev", "net.neighbour", [](auto& o) { no_connection(o, "ETIMEDOUT", ""); }},
        {"gid.unreachable", "net.neighbour", [](auto& o) { no_connection(o, "ENETUNREACH", ""); }},
        {"net.neighbour", "gid.unreachable",
         [](auto& o) {
             no_connection(o, "EHOSTUNREACH", "");
             add_good_pair(o);
         }},
        // Behind a router the peer is known by the router's link address.
        {"net.duplicate", "net.path",
         [](auto& o) {
             no_read(o);
             o.pairs[0].b.gid = o.pairs[0].a_target = o.pairs[0].b_bound = o.b_later.gid =
                 "10.0.9.2";
             o.a_sees_mac = "the router's";
             o.forward.passed = {};
         }},
        // Both ends are on one host.
        {"net.duplicate", "net.neighbour",
         [](auto& o) {
             no_connection(o, "", "ETIMEDOUT");
             o.pairs[0].a.host = o.pairs[0].b.host;
             o.a_route.local = o.b_route.local = true;
         }},
        // A path that works has no duplicate, whatever a table says.
        {"net.duplicate", "", [](auto& o) { o.a_sees_mac = "stale"; }},
        {"gid.mismatch", "", [](auto& o) { o.pairs[0].a_target = o.pairs[0].b_bound; }},
        {"gid.version", "net.udp4791",
         [](auto& o) {
             no_read(o);
             o.pairs[0].a.type = o.pairs[0].b.type = "RoCE v1";
         }},
        {"gid.deleted", "path.lossy",
         [](auto& o) {
             o.soak_reads = 9;
             o.soak = silent(65'536);
         }},
        {"gid.asymmetric", "net.udp4791", [](auto& o) { no_read(o); }},
        {"gid.path", "net.udp4791", [](auto& o) { no_read(o); }},
        {"gid.link_layer", "",
         [](auto& o) { o.pairs[0].a.link_layer = o.pairs[0].b.link_layer = "InfiniBand"; }},
        {"net.udp4791", "net.path",
         [](auto& o) {
             no_read(o);
             o.reverse.passed = {};
         }},
        // The same rule does no harm where it is about something else.
        {"net.udp4791", "", [](auto& o) { o.b_firewall = "udp dport 4791 drop"; }},
        {"net.path", "net.udp4791",
         [](auto& o) {
             no_read(o);
             short_path(o.forward);
         }},
        {"net.egress", "", [](auto& o) { o.a_reads.back().responder["send_err"] = 4; }},
        {"net.egress", "",
         [](auto& o) {
             o.soak = passed(65'536), o.soak_reads = 500;
             o.soak.reader["completer_retry_err"] = 20;
         }},
        {"mtu.differ", "",
         [](auto& o) {
             for (auto* e : {&o.pairs[0].a, &o.pairs[0].b})
                 e->netdev_mtu_bytes = 1500, e->active_mtu_bytes = 1024;
         }},
        {"mtu.upper", "", [](auto& o) { o.pairs[0].b.netdev = "eth0.5"; }},
        // The device can no more than its port announces.
        {"mtu.stale_port", "mtu.differ",
         [](auto& o) { o.pairs[0].b.active_mtu_bytes = o.pairs[0].b.max_mtu_bytes = 1024; }},
        {"mtu.stale_port", "mtu.differ",
         [](auto& o) {
             o.pairs[0].b.netdev_mtu_bytes = 1500;
             o.pairs[0].b.active_mtu_bytes = 1024;
         }},
        {"mtu.wasted_step", "",
         [](auto& o) {
             for (auto* e : {&o.pairs[0].a, &o.pairs[0].b}) e->netdev_mtu_bytes = 4176;
         }},
        {"mtu.pinned_high", "mtu.rdma_only",
         [](auto& o) {
             o.pinned_mtu_bytes = 4096;
             o.a_reads.back() = silent(4096);
         }},
        {"mtu.qp_disagree", "", [](auto& o) { o.a_mtu_bytes = o.b_mtu_bytes = 1024; }},
        {"mtu.path.reverse", "mtu.rdma_only",
         [](auto& o) {
             short_path(o.forward);
             o.a_reads.back() = silent(2048);
         }},
        {"mtu.path.reverse", "",
         [](auto& o) {
             short_path(o.reverse);
             o.pinned_mtu_bytes = 1024;
         }},
        // What vanishes is longer than what was asked for.
        {"mtu.path.reverse", "mtu.rdma_only",
         [](auto& o) {
             short_path(o.reverse);
             o.pinned_mtu_bytes = 1024;
             o.a_reads.back() = silent(1024);
         }},
        {"mtu.path.forward", "mtu.rdma_only",
         [](auto& o) {
             short_path(o.reverse);
             o.b_reads.back() = silent(2048);
         }},
        {"mtu.rdma_only", "mtu.path.reverse",
         [](auto& o) {
             short_path(o.reverse);
             o.a_reads.back() = silent(2048);
         }},
        {"mtu.port", "mtu.rdma_only",
         [](auto& o) {
             o.a_reads.back() = silent(2048);
             o.b_reads_port["rx_oversize_pkts_phy"] = 4;
         }},
        // Frames of somebody else's, before or after.
        {"mtu.port", "mtu.rdma_only",
         [](auto& o) {
             o.a_reads.back() = silent(2048);
             o.a_port["rx_oversize_pkts_phy"] = 4;
         }},
        // Some device may deliver what its port does not announce.
        {"mtu.cm", "mtu.differ",
         [](auto& o) {
             o.pairs[0].b.netdev_mtu_bytes = 1500;
             o.pairs[0].b.active_mtu_bytes = 1024;
             o.a_connects = {.tried = true, .path_mtu_bytes = 4096, .large = passed(65'536)};
         }},
        {"mtu.ecmp", "mtu.rdma_only",
         [](auto& o) {
             o.a_reads.back() = silent(2048);
             o.a_paths.large_failed = 4, o.a_paths.repeated = 1;
         }},
        {"mtu.ecmp", "mtu.rdma_only",
         [](auto& o) {
             o.a_reads.back() = silent(2048);
             o.a_paths.large_failed = o.a_paths.tried;
         }},
        {"mtu.local", "net.egress",
         [](auto& o) {
             o.a_reads.back() = silent(2048);
             o.a_reads.back().responder["send_err"] = 4;
         }},
        {"mtu.changed", "mtu.differ",
         [](auto& o) {
             o.pairs[0].b.netdev_mtu_bytes = o.b_later.netdev_mtu_bytes = 1500;
             o.pairs[0].b.active_mtu_bytes = 1024;
         }},
        {"rxe.false_success", "mtu.rdma_only", [](auto& o) { o.a_reads.back() = silent(4096); }},
    };
    return all;
}

/// Findings that are verdicts: those with evidence.
std::vector<finding> verdicts_of(const observations& o) {
    auto all = judge_path(o);
    std::erase_if(all, [](const auto& f) { return f.evidence.empty(); });
    return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(diag_verdict)

BOOST_AUTO_TEST_CASE(good_path_gives_no_verdict_and_nothing_fails) {
    for (const auto& f : judge_path(good())) BOOST_TEST((f.outcome <= outcome::skip), f.id);
}

BOOST_AUTO_TEST_CASE(each_fault_gives_exactly_its_verdict_with_a_runnable_fix_for_a_host) {
    for (const auto& r : rows()) {
        BOOST_TEST_CONTEXT(r.verdict) {
            auto o = good();
            r.change(o);
            const auto found = verdicts_of(o);
            BOOST_REQUIRE(found.size() == 1);
            BOOST_TEST(found[0].id == r.verdict, found[0].id << ": " << found[0].message);
            BOOST_TEST((found[0].outcome == r.how));
            BOOST_REQUIRE(!found[0].fix.empty());
            for (const auto& fix : found[0].fix) {
                BOOST_TEST((fix.starts_with("[node-a] ") || fix.starts_with("[node-b] ") ||
                            fix.starts_with("[switch] ") ||
                            (found[0].id == "net.duplicate" && fix.starts_with("[the host with "))),
                           fix);
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(every_verdict_that_is_documented_has_a_case_and_a_near_miss) {
    for (const auto& f : path_findings()) {
        if (f.id.starts_with("path.") || f.id == "gid.pinned") continue;
        const bool covered = std::any_of(rows().begin(), rows().end(),
                                         [&](const auto& r) { return f.id == r.verdict; });
        const bool refuted = std::any_of(near_misses().begin(), near_misses().end(),
                                         [&](const auto& n) { return f.id == n.not_this; });
        BOOST_TEST(covered, f.id);
        BOOST_TEST(refuted, f.id);
    }
}

BOOST_AUTO_TEST_CASE(near_miss_of_each_verdict_gives_another_or_none) {
    for (const auto& n : near_misses()) {
        BOOST_TEST_CONTEXT(n.not_this << " against " << n.instead) {
            auto o = good();
            n.change(o);
            const auto found = verdicts_of(o);
            BOOST_TEST(found.size() == (*n.instead == '\0' ? 0U : 1U));
            for (const auto& f : found) BOOST_TEST(f.id == n.instead, f.id << ": " << f.message);
        }
    }
}

BOOST_AUTO_TEST_CASE(two_faults_at_once_give_one_verdict) {
    for (const auto& first : rows()) {
        for (const auto& second : rows()) {
            BOOST_TEST_CONTEXT(first.verdict << " and " << second.verdict) {
                auto o = good();
                first.change(o);
                if (o.a_reads.empty()) o.a_reads = o.b_reads = {silent(1)};
                second.change(o);
                const auto found = verdicts_of(o);
                const auto failing = std::count_if(found.begin(), found.end(), [](const auto& f) {
                    return f.outcome == outcome::fail || f.outcome == outcome::error;
                });
                BOOST_TEST(failing <= 1);
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(dead_link_of_several_is_path_ecmp_alone_until_an_end_has_changed) {
    auto o = good();
    o.pairs[0].b_reads = silent(1);
    o.a_reads.clear(), o.b_reads.clear();
    o.b_paths.small_failed = 3;
    const auto all = judge_path(o);
    BOOST_TEST(std::any_of(all.begin(), all.end(), [](const auto& f) {
        return f.id == "path.ecmp" && f.outcome == outcome::fail && !f.fix.empty();
    }));
    BOOST_TEST(verdicts_of(o).empty());
    o.b_later.gid = "10.0.0.9";
    BOOST_REQUIRE(verdicts_of(o).size() == 1);
    BOOST_TEST(verdicts_of(o)[0].id == "gid.stale");
}

BOOST_AUTO_TEST_CASE(way_around_short_links_is_packets_that_are_smaller_than_those_that_were_lost) {
    const auto fix_at = [](std::uint32_t pinned, std::uint32_t netdev) {
        auto o = good();
        for (auto* e : {&o.pairs[0].a, &o.pairs[0].b, &o.a_later, &o.b_later})
            e->netdev_mtu_bytes = e->port_netdev_mtu_bytes = netdev;
        o.pinned_mtu_bytes = pinned;
        o.a_paths.large_failed = 2;
        const auto told = verdicts_of(o).at(0);
        BOOST_TEST(told.id == "mtu.ecmp");
        return told.fix;
    };
    using lines = std::vector<std::string>;
    const std::string raise = "[switch] raise the MTU of every link of the group to at least ";
    BOOST_TEST(fix_at(0, 9000) ==
               (lines{raise + "4162", "[node-a] ip link set eth0 mtu 1500",
                      "[node-b] ip link set eth0 mtu 1500", "[node-a] rvget check node-b"}));
    // The packets that got lost were of the path MTU that was asked for.
    BOOST_TEST(fix_at(2048, 9000).front() == raise + "2114");
    BOOST_TEST(fix_at(1024, 9000) ==
               (lines{raise + "1090", "[node-a] rvget check node-b --mtu 512"}));
    BOOST_TEST(fix_at(0, 1500) == (lines{raise + "1090", "[node-a] rvget check node-b --mtu 512"}));
    BOOST_TEST(fix_at(256, 9000) == (lines{raise + "322", "[node-a] rvget check node-b"}));
}

BOOST_AUTO_TEST_CASE(no_pair_at_all_is_a_failed_choice) {
    observations o;
    o.no_gid_at = "node-b";
    const auto found = judge_path(o);
    BOOST_REQUIRE(found.size() == 1);
    BOOST_TEST(found[0].fix == std::vector<std::string>{"[node-b] rvget doctor"});
    BOOST_TEST(found[0].id == "path.gid.choice");
}

BOOST_AUTO_TEST_CASE(documentation_lists_the_path_findings) {
    std::ostringstream made;
    for (const auto& f : path_findings()) {
        made << "\n### " << f.id << "\n\n- " << f.meaning << "\n";
        const auto example = std::find_if(rows().begin(), rows().end(),
                                          [&](const auto& r) { return f.id == r.verdict; });
        if (example == rows().end()) continue;
        auto o = good();
        example->change(o);
        const auto told = verdicts_of(o).at(0);
        made << "- Says, for instance: *" << told.message << "*\n";
        for (const auto& fix : told.fix) made << "- Fix: `" << fix << "`\n";
    }
    made << "\n";
    const std::string file = std::string(RVGET_SOURCE_DIR) + "/docs/diagnostics.md";
    std::ifstream in(file);
    std::stringstream page;
    page << in.rdbuf();
    auto content = page.str();
    const std::string begin = "<!-- path: begin -->\n";
    const auto from = content.find(begin) + begin.size();
    const auto to = content.find("<!-- path: end -->");
    BOOST_REQUIRE(to != std::string::npos);
    if (std::getenv("RVGET_WRITE_DOCS") != nullptr) {
        std::ofstream(file) << content.replace(from, to - from, made.str());
        return;
    }
    BOOST_TEST(content.substr(from, to - from) == made.str(),
               "run this test with RVGET_WRITE_DOCS=1");
}

BOOST_AUTO_TEST_SUITE_END()
