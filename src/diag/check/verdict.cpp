#include "diag/check/verdict.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include <arpa/inet.h>

#include "diag/check/aspects.hpp"
#include "diag/check/network_aspects.hpp"
#include "diag/check/words.hpp"
#include "route/mtu.hpp"

namespace rvget::diag {

namespace {

/// Whether the two IPv4 addresses are on one link, so that no router stands between.
bool one_link(const end_point& a, const end_point& b) {
    in_addr x{}, y{};
    if (a.prefix == 0 || a.prefix > 32 || a.prefix != b.prefix ||
        ::inet_pton(AF_INET, a.gid.c_str(), &x) != 1 ||
        ::inet_pton(AF_INET, b.gid.c_str(), &y) != 1)
        return false;
    return ((std::uint64_t{ntohl(x.s_addr)} ^ ntohl(y.s_addr)) >> (32 - a.prefix)) == 0;
}

/// From the first pair to the cause.
class path {
public:
    explicit path(const observations& o)
        : o_(o), pair_(o.pairs.front()), a_(pair_.a), b_(pair_.b), findings_(aspects_of(o)) {}

    std::vector<finding> judge() {
        // path.ecmp says it, and explains whatever else failed.
        if (some_links_dead() && !changed()) return std::move(findings_);
        if (const auto g = gid_verdict()) {
            add(*g);
        } else if (const auto m = mtu_verdict()) {
            add(*m);
        } else {
            hints();
        }
        return std::move(findings_);
    }

private:
    struct verdict {
        const char* id;
        outcome how;
        std::string message;
        std::vector<std::string> fix;
    };

    void add(verdict v) {
        finding f{.id = v.id,
                  .outcome = v.how,
                  .subject = a_.host + "->" + b_.host,
                  .message = std::move(v.message),
                  .fix = std::move(v.fix)};
        f.evidence = evidence();
        findings_.push_back(std::move(f));
    }

    [[nodiscard]] std::vector<std::string> evidence() const {
        std::vector<std::string> seen;
        for (const auto& p : o_.pairs) {
            seen.push_back(name_of(p.a) + " <> " + name_of(p.b) + ": " + outcome_of(p));
        }
        for (const auto& [who, reads] : {std::pair(&a_, &o_.a_reads), {&b_, &o_.b_reads}}) {
            if (!reads->empty()) seen.push_back(who->host + " READs " + say(reads->back()));
        }
        return seen;
    }

    [[nodiscard]] const pair_seen* passing() const {
        const auto found =
            std::find_if(o_.pairs.begin(), o_.pairs.end(), [](const auto& p) { return p.ok(); });
        return found == o_.pairs.end() ? nullptr : &*found;
    }
    /// The command that checks again, for the asking end.
    [[nodiscard]] std::string again(const std::string& options = "") const {
        return on(a_.host, "rvget check " + (o_.peer.empty() ? b_.host : o_.peer) + options);
    }
    /// The same with a pair that works.
    [[nodiscard]] std::vector<std::string> use(const pair_seen& p) const {
        return {again(" --gid " + p.a.gid + " --peer-gid " + p.b.gid)};
    }

    /// Faults of addresses and of the network, which come before those of size.
    [[nodiscard]] std::optional<verdict> gid_verdict() const {
        if (pair_.ok()) return std::nullopt;
        if (a_.link_layer != b_.link_layer) {
            return verdict{"gid.link_layer",
                           outcome::fail,
                           a_.link_layer + " cannot talk to " + b_.link_layer,
                           {on(a_.host, "rvget list")}};
        }
        if (!pair_.b_bound.empty() && pair_.a_target != pair_.b_bound) {
            return verdict{"gid.mismatch",
                           outcome::fail,
                           a_.host + " talks to " + pair_.a_target + ", the queue pair of " +
                               b_.host + " is bound to " + pair_.b_bound,
                           {again(" --peer-gid " + pair_.b_bound)}};
        }
        if (auto d = duplicate()) return d;
        if (!pair_.a_error.empty() || !pair_.b_error.empty()) return transition();
        return silent();
    }

    [[nodiscard]] std::optional<verdict> duplicate() const {
        for (const auto& [r, from, to] :
             {std::tuple(&o_.a_route, &a_, &b_), {&o_.b_route, &b_, &a_}}) {
            if (!r->local || from->host == to->host) continue;
            return verdict{"net.duplicate",
                           outcome::fail,
                           from->host + " has " + to->gid + " of " + to->host + " as its own",
                           {on(from->host, "ip -o address show to " + to->gid +
                                               " | awk '{print \"address del\", $4, \"dev\", $2}'"
                                               " | ip -batch -"),
                            again()}};
        }
        // Behind a router the peer is known by the router's link address, which proves nothing.
        if (!one_link(a_, b_)) return std::nullopt;
        for (const auto& [sees, of, from] :
             {std::tuple(&o_.a_sees_mac, &b_, &a_), {&o_.b_sees_mac, &a_, &b_}}) {
            if (sees->empty() || of->mac.empty() || *sees == of->mac) continue;
            return verdict{
                "net.duplicate",
                outcome::fail,
                "another host answers for " + of->gid + ": " + from->host + " sees " + *sees +
                    ", " + of->netdev + " of " + of->host + " is " + of->mac,
                {on("the host with " + *sees, "ip address del " + of->gid + "/" + text(of->prefix) +
                                                  " dev \"$(ip -o link | awk -F': ' '/" + *sees +
                                                  "/{sub(/@.*/, \"\", $2); print $2; exit}')\""),
                 on(from->host, "ip neigh flush to " + of->gid), again()}};
        }
        return std::nullopt;
    }

    [[nodiscard]] std::optional<verdict> transition() const {
        const bool a_failed = !pair_.a_error.empty();
        const auto has = [&](std::string_view error) {
            return pair_.a_error == error || pair_.b_error == error;
        };
        const auto* good = passing();
        const auto with_good = [&](std::vector<std::string> otherwise) {
            return good != nullptr ? use(*good) : std::move(otherwise);
        };
        for (const auto* e : {&a_, &b_}) {
            if (!e->gid.empty()) continue;
            return verdict{"gid.empty", outcome::fail,
                           "GID " + name_of(*e) + ": there is no such entry",
                           with_good({on(e->host, "rvget list")})};
        }
        if (is_ipv4(a_.gid) != is_ipv4(b_.gid)) {
            return verdict{"gid.family", outcome::fail,
                           "GID " + name_of(a_) + " is " + (is_ipv4(a_.gid) ? "IPv4" : "IPv6") +
                               ", " + name_of(b_) + " is " + (is_ipv4(b_.gid) ? "IPv4" : "IPv6") +
                               ": no queue pair can join the two",
                           with_good({on(a_.host, "rvget list")})};
        }
        if (has("ENODATA")) {
            const auto& e = pair_.a_error == "ENODATA" ? a_ : b_;
            return verdict{"gid.stale", outcome::fail,
                           "GID " + name_of(e) + " has left the table since it was chosen",
                           with_good({again()})};
        }
        const auto& from = a_failed ? a_ : b_;
        const auto& to = a_failed ? b_ : a_;
        if (has("ENODEV")) {
            return verdict{
                "gid.netdev", outcome::fail,
                "the netdev of " + name_of(from) + " is gone, or the peer's address is its own",
                with_good({on(from.host, "ip address show")})};
        }
        if (!has("ETIMEDOUT") && !has("ENETUNREACH") && !has("EHOSTUNREACH")) return std::nullopt;
        if (good != nullptr) {
            return verdict{"gid.unreachable", outcome::fail,
                           to.gid + " of " + to.host + " does not answer on " + from.netdev +
                               " of " + from.host + " (VLAN, subnet or link)",
                           use(*good)};
        }
        return verdict{"net.neighbour",
                       outcome::fail,
                       to.gid + " of " + to.host + " does not answer on " + from.netdev + " of " +
                           from.host + ": not on this link, no route, or another VLAN",
                       {on(from.host, "ip link set " + from.netdev + " up"),
                        on(from.host, "ip route get " + to.gid),
                        on(to.host, "ip address show dev " + to.netdev)}};
    }

    /// Queue pairs came up, and a READ of one byte fails.
    [[nodiscard]] std::optional<verdict> silent() const {
        const auto* good = passing();
        const bool lost = pair_.a_reads.status == "local queue pair operation error" ||
                          pair_.b_reads.status == "local queue pair operation error";
        if (lost) {
            const auto& e = pair_.a_reads.ok() ? b_ : a_;
            return verdict{"gid.deleted",
                           outcome::fail,
                           "GID " + name_of(e) + " was removed while it was in use",
                           {restore_address(e), again()}};
        }
        if (o_.b_later.gid != b_.gid || o_.a_later.gid != a_.gid) {
            const auto& e = o_.b_later.gid != b_.gid ? b_ : a_;
            return verdict{"gid.stale",
                           outcome::fail,
                           "GID " + name_of(e) + " has changed since it was chosen",
                           {again()}};
        }
        if (a_.type != b_.type) {
            return verdict{"gid.version", outcome::fail,
                           name_of(a_) + " is " + a_.type + ", " + name_of(b_) + " is " + b_.type,
                           good != nullptr
                               ? use(*good)
                               : std::vector{on(a_.host, "rvget list"), on(b_.host, "rvget list")}};
        }
        if (a_.netdev != a_.port_netdev || b_.netdev != b_.port_netdev) {
            if (good != nullptr) {
                return verdict{
                    "gid.path", outcome::fail,
                    a_.gid + " and " + b_.gid +
                        " do not reach each other (VLAN, filter or rail), another pair does",
                    use(*good)};
            }
        }
        for (const auto& [rule, e] : {std::pair(&o_.a_firewall, &a_), {&o_.b_firewall, &b_}}) {
            if (rule->find("4791") == std::string::npos) continue;
            return verdict{"net.udp4791",
                           outcome::fail,
                           "the packet filter of " + e->host + " drops RoCE: " + *rule,
                           {unblock(*e), again()}};
        }
        for (const auto& [r, reader, responder] :
             {std::tuple(&pair_.a_reads, &a_, &b_), {&pair_.b_reads, &b_, &a_}}) {
            if (r->ok()) continue;
            if (grown(r->reader, "send_err") > 0) return cannot_send(*reader, 60);
            if (grown(r->responder, "send_err") > 0) return cannot_send(*responder, 60);
        }
        if (pair_.a_reads.ok() != pair_.b_reads.ok() && !pair_.b_reads.status.empty()) {
            const auto& e = pair_.a_reads.ok() ? b_ : a_;
            return verdict{
                "gid.asymmetric",
                outcome::fail,
                "READ works one way and fails for " + e.host + ": the ways differ",
                {on(a_.host, "ip route get " + b_.gid), on(b_.host, "ip route get " + a_.gid)}};
        }
        if (good != nullptr) {
            return verdict{"gid.path", outcome::fail,
                           "the path of " + a_.gid + " and " + b_.gid +
                               " is dead (VLAN, filter or rail), another pair passes",
                           use(*good)};
        }
        if (o_.forward.ran() && o_.forward.largest() > 0 && o_.reverse.largest() > 0) {
            return verdict{"net.udp4791",
                           outcome::fail,
                           "UDP passes and RoCE (UDP 4791) does not: a firewall, security group or "
                           "ACL on the way",
                           {unblock(b_), unblock(a_), again()}};
        }
        if (o_.forward.ran() && (o_.forward.largest() == 0 || o_.reverse.largest() == 0)) {
            return verdict{
                "net.path",
                outcome::fail,
                "no IP passes between " + a_.gid + " and " + b_.gid,
                {on(a_.host, "ip route get " + b_.gid), on(b_.host, "ip route get " + a_.gid)}};
        }
        return std::nullopt;
    }

    [[nodiscard]] const read_seen* failed(const std::vector<read_seen>& reads) const {
        return reads.empty() || reads.back().ok() ? nullptr : &reads.back();
    }

    /// Small READs work: what of the large ones, and of many.
    [[nodiscard]] std::optional<verdict> mtu_verdict() const {
        if (!pair_.ok()) return unknown("READ of one byte fails");
        // Changes that came after the start explain whatever failed after it.
        const auto* by_a = failed(o_.a_reads);
        const auto* by_b = failed(o_.b_reads);
        const auto* soak = o_.soak_reads > 0 && !o_.soak.ok() ? &o_.soak : nullptr;
        const bool refused = soak_was_refused();
        const bool none = by_a == nullptr && by_b == nullptr && soak == nullptr && !refused;
        if (none && !some_links_short()) return std::nullopt;
        for (const auto& [was, is] : {std::pair(&a_, &o_.a_later), {&b_, &o_.b_later}}) {
            if (was->gid != is->gid) {
                return verdict{"gid.deleted",
                               outcome::fail,
                               "GID " + name_of(*was) + " was removed while it was in use",
                               {restore_address(*was), again()}};
            }
            if (was->netdev_mtu_bytes != is->netdev_mtu_bytes) {
                return verdict{"mtu.changed",
                               outcome::fail,
                               "the MTU of " + was->netdev + " on " + was->host + " went from " +
                                   text(was->netdev_mtu_bytes) + " to " +
                                   text(is->netdev_mtu_bytes) + " while queue pairs were connected",
                               {set_mtu(*was, was->netdev_mtu_bytes), again()}};
            }
        }
        if (some_links_short() && !refused) return short_links();
        if (by_a != nullptr) return too_large(*by_a, a_, b_, o_.reverse, "mtu.path.reverse");
        if (by_b != nullptr) return too_large(*by_b, b_, a_, o_.forward, "mtu.path.forward");
        if (soak != nullptr && soak->status.starts_with("success")) return false_success(b_);
        if (refused) return cannot_send(b_, needed(path_mtu(o_), is_ipv4(a_.gid)));
        return verdict{
            "path.lossy",
            outcome::fail,
            "a READ failed after " + text(o_.soak_reads) + ": " + say(*soak),
            {on(a_.host, "rvget doctor --watch 10"), on(b_.host, "rvget doctor --watch 10")}};
    }

    /// What the responder's own kernel refused during many READs, as rxe counts it for the whole
    /// device.
    [[nodiscard]] std::uint64_t refusals() const {
        return o_.soak_reads > 0 ? grown(o_.soak.responder, "send_err") : 0;
    }
    /// Whether those were this check's: a READ failed, or came only because it was repeated. The
    /// peer tells the reader of a refused answer that it was not ready.
    [[nodiscard]] bool soak_was_refused() const {
        return refusals() > 0 && (!o_.soak.ok() || retries(o_.soak.reader) > 0 ||
                                  grown(o_.soak.reader, "rcvd_rnr_err") > 0);
    }

    /// Whether an end is no longer what it was.
    [[nodiscard]] bool changed() const {
        const auto differs = [](const end_point& was, const end_point& is) {
            return !is.host.empty() &&
                   (was.gid != is.gid || was.netdev_mtu_bytes != is.netdev_mtu_bytes);
        };
        return differs(a_, o_.a_later) || differs(b_, o_.b_later);
    }

    /// Of the parallel links on the way, some bring nothing.
    [[nodiscard]] bool some_links_dead() const {
        return std::ranges::any_of(std::array{&o_.a_paths, &o_.b_paths}, [](const auto* p) {
            return p->small_failed > 0 && p->some_fail();
        });
    }
    /// Some lose full packets only.
    [[nodiscard]] bool some_links_short() const {
        return !some_links_dead() &&
               std::ranges::any_of(std::array{&o_.a_paths, &o_.b_paths},
                                   [](const auto* p) { return p->some_fail(); });
    }
    [[nodiscard]] verdict short_links() const {
        const bool by_a = o_.a_paths.some_fail();
        const auto& p = by_a ? o_.a_paths : o_.b_paths;
        const auto& from = by_a ? b_ : a_;
        const auto& to = by_a ? a_ : b_;
        const auto mtu = path_mtu(o_);
        const auto bytes = needed(mtu, is_ipv4(a_.gid));
        std::vector<std::string> fix{
            "[switch] raise the MTU of every link of the group to at least " + text(bytes + 18)};
        // Until then, smaller packets. A netdev of 1500 gives 1024; one for less than that is
        // nothing to run a host with.
        if (mtu > 1024) {
            fix.insert(fix.end(), {set_mtu(a_, 1500), set_mtu(b_, 1500), again()});
        } else {
            fix.push_back(again(mtu > 256 ? " --mtu " + text(mtu / 2) : ""));
        }
        return {"mtu.ecmp", outcome::fail,
                text(p.large_failed) + " of " + text(p.tried) +
                    " queue pairs, by their UDP source ports, lose packets of " + text(bytes) +
                    " bytes from " + from.host + " to " + to.host +
                    ": some of the parallel links have a smaller MTU",
                std::move(fix)};
    }

    [[nodiscard]] std::string other_way(const ladder_seen& way) const {
        const auto& other = &way == &o_.reverse ? o_.forward : o_.reverse;
        return broken_at(other) && other.largest() == way.largest() ? " and the other way" : "";
    }

    /// The commands that make an end take a path MTU: the port's netdev first, for what is on it.
    static void raise(const end_point& e, std::uint32_t path_mtu, std::vector<std::string>& fix) {
        if (usable_mtu(e) >= path_mtu) return;
        const auto need = route::netdev_mtu_for_path(e.driver, path_mtu) + 8;
        if (e.netdev != e.port_netdev && e.port_netdev_mtu_bytes < need)
            fix.push_back(on(e.host, "ip link set " + e.port_netdev + " mtu " + text(need)));
        fix.push_back(set_mtu(e, need));
    }

    /// `reader` READs from `responder`, and a large one fails; `way` is the data's.
    [[nodiscard]] std::optional<verdict> too_large(const read_seen& r, const end_point& reader,
                                                   const end_point& responder,
                                                   const ladder_seen& way, const char* id) const {
        const auto common = common_mtu(a_, b_);
        if (o_.pinned_mtu_bytes > common) {
            const auto& small = usable_mtu(a_) < usable_mtu(b_) ? a_ : b_;
            std::vector<std::string> fix{again() + "  # without --mtu"};
            for (const auto* e : {&a_, &b_}) raise(*e, o_.pinned_mtu_bytes, fix);
            return verdict{"mtu.pinned_high", outcome::fail,
                           "path MTU pinned to " + text(o_.pinned_mtu_bytes) + ", " + small.netdev +
                               " of " + small.host + " (" + text(small.netdev_mtu_bytes) +
                               ") takes " + text(common),
                           std::move(fix)};
        }
        if (o_.a_mtu_bytes != o_.b_mtu_bytes) {
            return verdict{"mtu.qp_disagree",
                           outcome::fail,
                           "queue pair of " + a_.host + " has path MTU " + text(o_.a_mtu_bytes) +
                               ", of " + b_.host + " " + text(o_.b_mtu_bytes),
                           {again(" --mtu " + text(common))}};
        }
        if (r.status == "no completion" && grown(r.reader, "send_err") > 0)
            return cannot_send(reader, 60);  // a READ request
        if (oversize(&reader == &a_ ? o_.a_reads_port : o_.b_reads_port) > 0) {
            return verdict{"mtu.port",
                           outcome::fail,
                           "the port of " + reader.host + " refuses frames of " + responder.host +
                               " as too large",
                           {set_mtu(reader, responder.netdev_mtu_bytes), again()}};
        }
        const bool ipv4 = is_ipv4(a_.gid);
        const auto need = needed(path_mtu(o_), ipv4);
        const auto most = way.largest();
        if (way.ran() && most > 0 && most < need && broken_at(way)) {
            // The largest step whose packets pass as things are.
            std::uint32_t fits = 256;
            for (const std::uint32_t step : {512U, 1024U, 2048U}) {
                if (needed(step, ipv4) <= most) fits = step;
            }
            const auto mtu = std::max(1280U, std::max(most < 1600 && most >= 1500 ? 1500U : 0U,
                                                      route::netdev_mtu_for_path("", fits) + 8));
            return verdict{id,
                           outcome::fail,
                           "IP packets over " + text(most) + " bytes vanish from " +
                               responder.host + " to " + reader.host + other_way(way) +
                               " without ICMP (switch port, bond member, tunnel); " + text(need) +
                               " are needed",
                           {set_mtu(a_, mtu), set_mtu(b_, mtu), again(),
                            "[switch] raise the MTU to at least " +
                                text(std::max(a_.netdev_mtu_bytes, b_.netdev_mtu_bytes) + 18)}};
        }
        if (r.status.starts_with("success")) return false_success(responder);
        if (grown(r.responder, "send_err") > 0) return cannot_send(responder, need);
        if (way.ran() && most >= need) {
            return verdict{"mtu.rdma_only",
                           outcome::fail,
                           "UDP of " + text(most) + " bytes passes from " + responder.host +
                               " and RoCE of the same length does not (filter by size, priority "
                               "buffer, one path of many)",
                           {unblock(reader), unblock(responder), again()}};
        }
        return unknown("READ of " + say(r) + " by " + reader.host);
    }

    /// rxe's completer and responder both have a part in it: an answer that its own kernel refused
    /// goes on in the middle, which the reader takes for its end.
    [[nodiscard]] verdict false_success(const end_point& responder) const {
        return {"rxe.false_success", outcome::fail,
                responder.host +
                    "'s kernel refused packets (shaper, filter, MTU) and rxe reported success "
                    "without data",
                let_out(responder)};
    }

    /// The kernel of `e` refuses packets of `e`'s own, of which the longest has `bytes`.
    [[nodiscard]] verdict cannot_send(const end_point& e, std::uint32_t bytes) const {
        if (e.netdev_mtu_bytes < bytes) {
            return {"mtu.local",
                    outcome::fail,
                    e.host + " cannot send what its queue pair makes: " + e.netdev + " has MTU " +
                        text(e.netdev_mtu_bytes),
                    {set_mtu(e, route::netdev_mtu_for_path(e.driver, path_mtu(o_)) + 8), again()}};
        }
        const auto& rule = &e == &a_ ? o_.a_firewall : o_.b_firewall;
        const bool named = rule.find("4791") != std::string::npos;
        return {"net.egress", outcome::fail,
                "the kernel of " + e.host + " refuses packets that its queue pair sends: " +
                    (named ? rule : "an output filter or a shaper"),
                let_out(e)};
    }

    /// Commands that end what keeps an end's own packets in: the rule that is known, else a shaper.
    [[nodiscard]] std::vector<std::string> let_out(const end_point& e) const {
        const auto& rule = &e == &a_ ? o_.a_firewall : o_.b_firewall;
        if (rule.find("4791") != std::string::npos) return {unblock(e), again()};
        return {on(e.host, "nft list ruleset; tc qdisc show dev " + e.netdev),
                on(e.host, "tc qdisc del dev " + e.netdev + " root  # the shaper, if it is one"),
                again()};
    }

    [[nodiscard]] std::optional<verdict> unknown(const std::string& what) const {
        return verdict{"path.unknown",
                       outcome::error,
                       what + ", and no cause fits; please report it with the output of --json",
                       {on(a_.host, "rvget check " + b_.host + " --json")}};
    }

    /// Ports that did not follow their netdevs.
    bool stale_ports() {
        bool any = false;
        for (const auto* e : {&a_, &b_}) {
            const bool own = e->netdev == e->port_netdev;
            const auto mtu = own ? e->netdev_mtu_bytes : e->port_netdev_mtu_bytes;
            if (mtu == 0 || e->active_mtu_bytes == 0 || e->link_layer != "Ethernet") continue;
            auto gives = route::path_mtu_for_netdev(e->driver, mtu);
            if (e->max_mtu_bytes != 0) gives = std::min(gives, e->max_mtu_bytes);
            if (e->active_mtu_bytes >= gives) continue;
            any = true;
            add({"mtu.stale_port",
                 outcome::warn,
                 e->port_netdev + " of " + e->host + " has MTU " + text(mtu) + ", which gives " +
                     text(gives) + ", but its port announces " + text(e->active_mtu_bytes),
                 {on(e->host, "ip link set " + e->port_netdev + " mtu " + text(mtu)),
                  on(e->host, "rvget doctor --only net.mtu_active")}});
        }
        return any;
    }

    /// A few bytes more would double the path MTU.
    void wasted_steps() {
        for (const auto* e : {&a_, &b_}) {
            for (const std::uint32_t step : {512U, 1024U, 2048U, 4096U}) {
                const auto need = route::netdev_mtu_for_path(e->driver, step);
                if (e->netdev_mtu_bytes < step || e->netdev_mtu_bytes >= need) continue;
                add({"mtu.wasted_step",
                     outcome::pass,
                     e->netdev + " of " + e->host + " has MTU " + text(e->netdev_mtu_bytes) +
                         ", which gives only " + text(step / 2) + ": " + text(need) +
                         " is needed for " + text(step),
                     {set_mtu(*e, need + 8)}});
            }
        }
    }

    /// All is well: what could be better.
    void hints() {
        if (!pair_.ok()) return;
        const auto a = usable_mtu(a_);
        const auto b = usable_mtu(b_);
        bool upper = false;
        for (const auto* e : {&a_, &b_}) {
            if (usable_mtu(*e) >= e->active_mtu_bytes || e->netdev == e->port_netdev) continue;
            upper = true;
            add({"mtu.upper",
                 outcome::warn,
                 "GID " + name_of(*e) + " is on " + e->netdev + " (" + text(e->netdev_mtu_bytes) +
                     "), its port announces " + text(e->active_mtu_bytes) +
                     ": queue pairs must use " + text(usable_mtu(*e)),
                 {set_mtu(*e, e->port_netdev_mtu_bytes)}});
        }
        const bool stale = stale_ports();
        wasted_steps();
        if (refusals() > 0) {
            // Somebody else's, it seems, but the same may happen to READs.
            auto v = cannot_send(b_, needed(path_mtu(o_), is_ipv4(a_.gid)));
            v.how = outcome::warn;
            v.message += "; " + text(refusals()) + " while READs ran, of which none was repeated";
            add(std::move(v));
        }
        if (a != b && !upper && !stale) {
            const auto& small = a < b ? a_ : b_;
            const auto& large = a < b ? b_ : a_;
            for (const auto* c : {&o_.a_connects, &o_.b_connects}) {
                if (c->large.status.empty() || c->large.ok()) continue;
                return add({"mtu.cm",
                            outcome::warn,
                            "works at " + text(std::min(a, b)) + ", but RDMA-CM from " +
                                large.host + " (MTU " + text(large.netdev_mtu_bytes) +
                                ") gives both queue pairs " + text(c->path_mtu_bytes) + ", and " +
                                small.netdev + " of " + small.host + " has MTU " +
                                text(small.netdev_mtu_bytes) + ": READ of " + say(c->large) +
                                "; rping, ib_read_bw -R and other programs that take it over hang",
                            {set_mtu(small, large.netdev_mtu_bytes), again()}});
            }
            add({"mtu.differ",
                 outcome::warn,
                 a_.host + " has MTU " + text(a_.netdev_mtu_bytes) + " (" + text(a) + "), " +
                     b_.host + " " + text(b_.netdev_mtu_bytes) + " (" + text(b) + "): works at " +
                     text(std::min(a, b)) +
                     ", unless a program uses the larger one (RDMA-CM and a pinned path MTU do)",
                 {set_mtu(small, large.netdev_mtu_bytes)}});
        }
        if (o_.gid_pinned && o_.pairs.size() > 1 &&
            (a_.rank < o_.pairs[1].a.rank || b_.rank < o_.pairs[1].b.rank)) {
            findings_.push_back({.id = "gid.pinned",
                                 .subject = a_.host + "->" + b_.host,
                                 .message = "works with the pinned GIDs; auto would take " +
                                            o_.pairs[1].a.gid + " and " + o_.pairs[1].b.gid});
        }
    }

    const observations& o_;
    const pair_seen& pair_;
    const end_point& a_;
    const end_point& b_;
    std::vector<finding> findings_;
};

}  // namespace

std::uint32_t usable_mtu(const end_point& e) {
    if (e.netdev_mtu_bytes == 0) return e.active_mtu_bytes;
    return std::min(e.active_mtu_bytes, route::path_mtu_for_netdev(e.driver, e.netdev_mtu_bytes));
}

std::uint32_t common_mtu(const end_point& a, const end_point& b) {
    return route::common_path_mtu(usable_mtu(a), usable_mtu(b));
}

std::vector<finding> judge_path(const observations& o) {
    if (o.pairs.empty()) {
        const bool any = o.no_gid.empty();
        return {{.id = "path.gid.choice",
                 .outcome = outcome::fail,
                 .subject = o.no_gid_at,
                 .message = any ? "no GID that could be tried on " + o.no_gid_at
                                : o.no_gid + " is no GID of " + o.no_gid_at,
                 .fix = {on(o.no_gid_at, any ? "rvget doctor" : "rvget list")}}};
    }
    return path(o).judge();
}

}  // namespace rvget::diag
