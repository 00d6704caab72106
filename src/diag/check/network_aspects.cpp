#include "diag/check/network_aspects.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>

#include "diag/check/end.hpp"
#include "diag/check/words.hpp"
#include "fabric/inventory/neighbour.hpp"

namespace rvget::diag {

namespace {

namespace inventory = fabric::inventory;

constexpr std::array oversize_counters{"rx_oversize_pkts_phy", "rx_out_of_range_len_phy"};

bool counts_oversize(const std::map<std::string, std::uint64_t>& port) {
    return std::ranges::any_of(oversize_counters,
                               [&](const char* name) { return port.contains(name); });
}

/// The worse of two ends, with words of both.
struct both_ends {
    outcome how = outcome::pass;
    std::string words;
    std::vector<std::string> fix;

    void add(outcome end, const std::string& say, std::vector<std::string> mend = {}) {
        how = std::max(how, end);  // outcomes are in the order of severity
        words += (words.empty() ? "" : "; ") + say;
        fix.insert(fix.end(), mend.begin(), mend.end());
    }
};

class network {
public:
    explicit network(const observations& o) : o_(o), a_(o.pairs.front().a), b_(o.pairs.front().b) {}

    std::vector<finding> all() {
        routes();
        neighbours();
        link_addresses();
        hops();
        parallel_links();
        frames_too_large();
        priorities();
        service_level();
        death();
        return std::move(findings_);
    }

private:
    struct way {
        const route_seen* route;
        const end_point *from, *to;
    };
    [[nodiscard]] std::array<way, 2> ways() const {
        return {{{&o_.a_route, &a_, &b_}, {&o_.b_route, &b_, &a_}}};
    }
    /// Whether READs show that the way works, whatever the tables say.
    [[nodiscard]] bool works() const { return o_.pairs.front().ok(); }

    void routes() {
        both_ends seen;
        for (const auto& [r, from, to] : ways()) {
            const auto show =
                on(from->host, "ip route get " + to->gid + " from " + from->gid +
                                   (to->gid.starts_with("fe8") ? " oif " + from->netdev : ""));
            if (r->silent) {
                seen.add(outcome::skip, from->host + " does not tell its route");
            } else if (!r->asked) {
                continue;
            } else if (!r->error.empty() && works()) {
                seen.add(outcome::warn,
                         from->host + " has " + r->error +
                             ", and it works because hosts of one link answer for any of their "
                             "addresses, and will not behind a router",
                         {show});
            } else if (!r->error.empty()) {
                seen.add(outcome::fail, from->host + " has " + r->error, {show});
            } else if (r->local && from->host == to->host) {
                seen.add(outcome::pass, to->gid + " is on " + from->host + " itself");
            } else if (r->local) {
                seen.add(outcome::fail,
                         from->host + " has " + to->gid + " of " + to->host +
                             " as its own (duplicate address), and sends to itself",
                         {on(from->host, "ip address show to " + to->gid),
                          on(to->host, "ip address show to " + to->gid)});
            } else if (r->netdev != from->netdev) {
                seen.add(outcome::warn,
                         from->host + " sends to " + to->gid + " by " + r->netdev + ", GID " +
                             name_of(*from) + " is of " + from->netdev +
                             ": TCP, UDP and RDMA take different ways",
                         {show});
            } else {
                seen.add(outcome::pass,
                         from->host + " sends to " + to->gid + " by " + r->netdev +
                             (r->gateway.empty() ? "" : " over router " + r->gateway));
            }
        }
        if (seen.words.empty()) return skip("path.route", "not asked for between these GIDs");
        tell("path.route", seen);
    }

    /// Whether a next hop is known that is RDMA's.
    static bool has_next_hop(const way& w) {
        return w.route->asked && !w.route->local && w.route->netdev == w.from->netdev;
    }
    [[nodiscard]] std::string why_no_next_hop() const {
        const bool elsewhere = std::ranges::any_of(ways(), [](const way& w) {
            return w.route->asked && !w.route->local && w.route->error.empty() && !has_next_hop(w);
        });
        return elsewhere ? "depends on path.route: the kernel's way is not RDMA's"
                         : "no next hop is known";
    }

    void neighbours() {
        both_ends seen;
        for (const auto& w : ways()) {
            const auto& [r, from, to] = w;
            if (!has_next_hop(w) || r->next_hop_state.empty()) continue;
            const auto& hop = r->gateway.empty() ? to->gid : r->gateway;
            const auto words = from->host + " has " + hop + " as " + r->next_hop_state;
            const bool none = r->next_hop_state == "failed" || r->next_hop_state == "incomplete";
            if (none) {
                seen.add(works() ? outcome::warn : outcome::fail,
                         words + ": it does not answer " + (is_ipv4(hop) ? "ARP" : "ND") + " on " +
                             r->netdev + (works() ? ", and READs pass" : ""),
                         {on(from->host, "ip neigh show " + hop),
                          on(to->host, "ip address show dev " + to->netdev)});
            } else if (works() || inventory::known_to_answer(r->next_hop_state)) {
                seen.add(outcome::pass, words);
            } else {
                seen.add(outcome::warn, words + ": whether it still answers is not known",
                         {on(from->host, "ping -c 1 " + hop)});
            }
        }
        if (seen.words.empty()) return skip("path.neighbour", why_no_next_hop());
        tell("path.neighbour", seen);
    }

    void link_addresses() {
        both_ends seen;
        for (const auto& w : ways()) {
            const auto& [r, from, to] = w;
            if (!has_next_hop(w) || r->next_hop_mac.empty()) continue;
            if (!r->gateway.empty()) {
                seen.add(outcome::warn,
                         "router " + r->gateway + " is between " + from->host + " and " + to->host +
                             ": who answers behind it is not seen",
                         {on(from->host, "ip route get " + to->gid)});
            } else if (to->mac.empty()) {
                continue;
            } else if (to->mac == r->next_hop_mac) {
                seen.add(outcome::pass, from->host + " sees " + to->netdev + " of " + to->host);
            } else {
                seen.add(works() ? outcome::warn : outcome::fail,
                         from->host + " sees " + r->next_hop_mac + " for " + to->gid + ", " +
                             to->netdev + " of " + to->host + " is " + to->mac +
                             (works() ? ", and READs pass" : ""),
                         {on(from->host, "ip neigh show " + to->gid)});
            }
        }
        if (seen.words.empty()) return skip("path.l2", why_no_next_hop());
        tell("path.l2", seen);
    }

    void hops() {
        std::optional<std::uint32_t> most;
        for (const auto* l : {&o_.forward, &o_.reverse}) {
            if (l->ttl != 0 && l->ttl <= ladder_seen::sent_ttl)
                most = std::max(most.value_or(0), ladder_seen::sent_ttl - l->ttl);
        }
        if (!most) return skip("path.hops", "no UDP packet came");
        // What a queue pair of this hop limit sends must still live behind the last router.
        const bool enough = *most == 0 || o_.hop_limit >= *most + 1;
        both_ends seen;
        seen.add(
            enough ? outcome::pass : outcome::fail,
            *most == 0 ? "no router between"
                       : text(*most) + " routers between, hop limit " + text(o_.hop_limit),
            enough ? std::vector<std::string>() : std::vector{on(a_.host, "tracepath " + b_.gid)});
        tell("path.hops", seen);
    }

    void parallel_links() {
        both_ends seen;
        for (const auto& [p, from, to] :
             {std::tuple(&o_.a_paths, &a_, &b_), {&o_.b_paths, &b_, &a_}}) {
            if (p->tried == 0) continue;
            auto words = "READs by " + from->host + " over " + text(p->tried) +
                         " queue pairs, each with a UDP source port of its own: ";
            if (p->failed() == 0 && p->decided()) {
                seen.add(outcome::pass, words + "all pass");
            } else if (p->none_passes()) {
                seen.add(outcome::skip, words + "none passes, so that links cannot be told apart");
            } else if (p->failed() > 0 && p->repeated > 0) {
                seen.add(
                    outcome::warn,
                    words + text(p->failed()) + " fail and " + text(p->repeated) +
                        " come late or with another error: packets are lost, whatever the link",
                    {on(from->host, "rvget doctor --watch 10")});
            } else if (!p->decided()) {
                seen.add(outcome::skip,
                         words + text(p->failed()) + " fail, and so few tell nothing");
            } else {
                words += text(p->small_failed) + " bring nothing, " + text(p->large_failed) +
                         " lose full packets: one link of several that share the traffic is broken";
                seen.add(outcome::fail, words,
                         {"[switch] compare MTU and errors of the links between " + to->host +
                          " and " + from->host + " (bond members, ECMP)"});
            }
        }
        if (seen.words.empty()) return skip("path.ecmp", "depends on path.gid.matrix");
        tell("path.ecmp", seen);
    }

    void frames_too_large() {
        if (!counts_oversize(o_.a_port) && !counts_oversize(o_.b_port))
            return skip("path.oversize", "neither port counts frames that are too large");
        both_ends seen;
        for (const auto& [port, at, other] :
             {std::tuple(&o_.a_port, &a_, &b_), {&o_.b_port, &b_, &a_}}) {
            if (!counts_oversize(*port)) continue;
            const auto n = oversize(*port);
            seen.add(n == 0 ? outcome::pass : outcome::fail,
                     at->port_netdev + " of " + at->host + " got " + text(n) +
                         " frames that are too large for it",
                     n == 0 ? std::vector<std::string>()
                            : std::vector{on(at->host, "ip link show " + at->port_netdev),
                                          on(other->host, "ip link show " + other->port_netdev)});
        }
        tell("path.oversize", seen);
    }

    static std::string counter(const char* direction, std::uint32_t priority) {
        return std::string(direction) + "_prio" + text(priority) + "_packets";
    }
    /// The priority on which most packets left; none where they are too few to tell.
    static std::optional<std::uint32_t> priority_of(
        const std::map<std::string, std::uint64_t>& port) {
        std::uint64_t most = 15;
        std::optional<std::uint32_t> found;
        for (std::uint32_t priority = 0; priority < 8; ++priority) {
            const auto n = grown(port, counter("tx", priority));
            if (n > most) most = n, found = priority;
        }
        return found;
    }

    /// What else arrives may be more and on another priority, so that only that one counts on which
    /// they left. Not all of those need be for this end.
    void priorities() {
        both_ends seen;
        for (const auto& [sent, from, got, to] :
             {std::tuple(&o_.a_port, &a_, &o_.b_port, &b_), {&o_.b_port, &b_, &o_.a_port, &a_}}) {
            const auto priority = priority_of(*sent);
            if (!priority || !got->contains(counter("rx", *priority))) continue;
            const auto left = grown(*sent, counter("tx", *priority));
            const auto arrived = grown(*got, counter("rx", *priority));
            const bool same = arrived >= left / 2;
            seen.add(same ? outcome::pass : outcome::warn,
                     text(left) + " packets left " + from->host + " on priority " +
                         text(*priority) + ", and " + text(arrived) + " arrived at " + to->host +
                         " on it",
                     same ? std::vector<std::string>()
                          : std::vector{on(to->host, "rvget doctor --only qos.trust,qos.pfc")});
        }
        if (seen.words.empty())
            return skip("path.tclass", "the ports do not count packets by priority");
        tell("path.tclass", seen);
    }

    void service_level() {
        if (a_.link_layer != "InfiniBand" || b_.link_layer != "InfiniBand")
            return skip("path.sl", "not InfiniBand");
        const bool ok = o_.pairs.front().ok();
        both_ends seen;
        seen.add(ok ? outcome::pass : outcome::fail,
                 ok ? "READs pass on service level 0"
                    : "no READ passes on service level 0: the subnet manager may give another one",
                 ok ? std::vector<std::string>() : std::vector{on(a_.host, "saquery --list")});
        tell("path.sl", seen);
    }

    void death() {
        const auto& d = o_.death;
        if (!d.tried) return skip("path.death", "depends on path.mtu.read_forward");
        constexpr std::uint64_t scheduling_ms = 1000;
        // Any other error is not what a peer's silence gives.
        const bool noticed = d.status == to_string(fabric::completion_status::retry_exceeded);
        const bool in_time = noticed && d.took_ms <= 4 * d.limit_ms + scheduling_ms;
        both_ends seen;
        seen.add(in_time ? outcome::pass : outcome::warn,
                 "a READ from a queue pair that " + b_.host + " had destroyed ended after " +
                     text(d.took_ms) + " ms with \"" + d.status + "\"; the timers give " +
                     text(d.limit_ms) + " ms, and devices up to four times that",
                 in_time ? std::vector<std::string>()
                         : std::vector{on(a_.host, "rvget doctor --only dev.driver_quirk")});
        tell("path.death", seen);
    }

    void skip(const char* id, const std::string& why) {
        findings_.push_back({.id = id,
                             .outcome = outcome::skip,
                             .subject = a_.host + "->" + b_.host,
                             .observed = boost::json::value(why),
                             .message = why});
    }
    void tell(const char* id, both_ends& seen) {
        findings_.push_back({.id = id,
                             .outcome = seen.how,
                             .subject = a_.host + "->" + b_.host,
                             .observed = boost::json::value(seen.words),
                             .message = std::move(seen.words),
                             .fix = std::move(seen.fix)});
    }

    const observations& o_;
    const end_point& a_;
    const end_point& b_;
    std::vector<finding> findings_;
};

}  // namespace

std::uint64_t oversize(const std::map<std::string, std::uint64_t>& port) {
    std::uint64_t all = 0;
    for (const auto* name : oversize_counters) all += grown(port, name);
    return all;
}

std::vector<finding> network_aspects(const observations& o) { return network(o).all(); }

}  // namespace rvget::diag
