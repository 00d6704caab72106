#include "diag/check/aspects.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <tuple>

#include "diag/check/network_aspects.hpp"
#include "diag/check/verdict.hpp"
#include "diag/check/words.hpp"
#include "fabric/cm/cm_probe.hpp"

namespace rvget::diag {

namespace {

/// Whether two P_Keys are of one partition, one of them with full membership (its top bit).
bool partitions_meet(const std::string& a, const std::string& b) {
    const auto x = std::strtoul(a.c_str(), nullptr, 16);
    const auto y = std::strtoul(b.c_str(), nullptr, 16);
    return (x & 0x7fff) != 0 && (x & 0x7fff) == (y & 0x7fff) && ((x | y) & 0x8000) != 0;
}

class aspects {
public:
    explicit aspects(const observations& o) : o_(o), a_(o.pairs.front().a), b_(o.pairs.front().b) {}

    std::vector<finding> all() {
        aspect("path.link_layer", a_.link_layer == b_.link_layer ? outcome::pass : outcome::fail,
               a_.link_layer + " and " + b_.link_layer);
        choice();
        const bool other = !o_.a_control_netdev.empty() && o_.a_control_netdev != a_.netdev;
        aspect("path.control_netdev", other ? outcome::warn : outcome::pass,
               other ? "TCP runs over " + o_.a_control_netdev + ", RDMA over " + a_.netdev +
                           ": that TCP works proves nothing about the RDMA path"
                     : "TCP and RDMA use " + a_.netdev);
        ladder("path.ladder.forward", o_.forward, o_.a_route);
        ladder("path.ladder.reverse", o_.reverse, o_.b_route);
        limits();
        const auto passed =
            std::count_if(o_.pairs.begin(), o_.pairs.end(), [](const auto& p) { return p.ok(); });
        const auto words = text(static_cast<std::uint64_t>(passed)) + " of " +
                           text(o_.pairs.size()) + " pairs of GIDs pass";
        const bool all = static_cast<std::size_t>(passed) == o_.pairs.size();
        aspect("path.gid.matrix",
               all           ? outcome::pass
               : passed == 0 ? outcome::fail
                             : outcome::warn,
               words + failing_pairs());
        path_mtus();
        reads("path.mtu.read_forward", o_.a_reads);
        reads("path.mtu.read_reverse", o_.b_reads);
        performance();
        connections();
        if (o_.soak_reads > 0) loss();
        data();
        peer_doctor();
        return std::move(findings_);
    }

private:
    [[nodiscard]] std::string failing_pairs() const {
        std::string all;
        for (const auto& p : o_.pairs) {
            if (!p.ok()) all += "; " + name_of(p.a) + " <> " + name_of(p.b) + ": " + outcome_of(p);
        }
        return all;
    }
    /// The first pair, and whether its GIDs fit each other.
    void choice() {
        const auto& p = o_.pairs.front();
        const auto both = name_of(a_) + ", " + name_of(b_);
        if (a_.gid.empty() || b_.gid.empty()) {
            aspect("path.gid.choice", outcome::fail, both);
            for (const auto* id : {"path.family", "path.roce_version", "path.gid.match"})
                aspect(id, outcome::skip, "depends on path.gid.choice");
        } else {
            aspect("path.gid.choice", outcome::pass,
                   both + ": --gid " + a_.gid + " --peer-gid " + b_.gid + " name them");
            const bool one = is_ipv4(a_.gid) == is_ipv4(b_.gid);
            aspect("path.family", one ? outcome::pass : outcome::fail,
                   one ? std::string("both are ") + (is_ipv4(a_.gid) ? "IPv4" : "IPv6")
                       : a_.gid + " and " + b_.gid + " are not of one family");
            version();
            const bool match = p.a_target == p.b_bound;
            aspect("path.gid.match",
                   p.b_bound.empty() ? outcome::skip
                   : match           ? outcome::pass
                                     : outcome::fail,
                   p.b_bound.empty()
                       ? "no queue pair was made"
                       : a_.host + " sends to " + p.a_target + ", the queue pair of " + b_.host +
                             " is bound to " + p.b_bound);
        }
        echo();
    }
    void version() {
        if (a_.link_layer != "Ethernet" || b_.link_layer != "Ethernet")
            return aspect("path.roce_version", outcome::skip, "not RoCE");
        const bool old = a_.type == "RoCE v1" || a_.type == "IB/RoCE v1";
        aspect("path.roce_version",
               a_.type != b_.type ? outcome::fail
               : old              ? outcome::warn
                                  : outcome::pass,
               a_.host + " uses " + a_.type + ", " + b_.host + " " + b_.type +
                   (old && a_.type == b_.type ? ", which does not cross routers" : ""));
    }
    /// Whether the GIDs are still what was announced; where all READs passed they must be.
    void echo() {
        if (o_.a_later.host.empty() || o_.b_later.host.empty())
            return aspect("path.gid.echo", outcome::skip, "the check did not come to its end");
        std::string changed;
        for (const auto& [was, is] : {std::pair(&a_, &o_.a_later), {&b_, &o_.b_later}}) {
            if (was->gid == is->gid) continue;
            changed += (changed.empty() ? "" : "; ") + was->host + " announced index " +
                       text(was->index) + " as " + (was->gid.empty() ? "empty" : was->gid) +
                       ", now it is " + (is->gid.empty() ? "empty" : is->gid);
        }
        aspect("path.gid.echo", changed.empty() ? outcome::pass : outcome::fail,
               changed.empty() ? "the GIDs are what was announced" : changed);
    }
    /// What the ends could use, and what their queue pairs were given.
    void path_mtus() {
        const auto a = usable_mtu(a_);
        const auto b = usable_mtu(b_);
        const auto common = common_mtu(a_, b_);
        auto words = a_.host + " has MTU " + text(a_.netdev_mtu_bytes) + " (" + text(a) + "), " +
                     b_.host + " " + text(b_.netdev_mtu_bytes) + " (" + text(b) + ")";
        const bool high = o_.pinned_mtu_bytes > common;
        if (high) words += ", and " + text(o_.pinned_mtu_bytes) + " is pinned";
        if (!high && a != b) words += ": queue pairs use " + text(common);
        aspect("path.mtu.static",
               high     ? outcome::fail
               : a != b ? outcome::warn
                        : outcome::pass,
               words);
        const bool given = o_.a_mtu_bytes != 0 && o_.b_mtu_bytes != 0;
        aspect("path.mtu.qp",
               !given                             ? outcome::skip
               : o_.a_mtu_bytes == o_.b_mtu_bytes ? outcome::pass
                                                  : outcome::fail,
               given ? "queue pair of " + a_.host + " has path MTU " + text(o_.a_mtu_bytes) +
                           ", of " + b_.host + " " + text(o_.b_mtu_bytes)
                     : "no queue pair was made");
    }
    /// Whether what came by READs that reported success is what was there.
    void data() {
        const auto& p = o_.pairs.front();
        std::vector<const read_seen*> all{&p.a_reads, &p.b_reads, &o_.a_latency, &o_.b_latency};
        for (const auto* some : {&o_.a_reads, &o_.b_reads}) {
            for (const auto& r : *some) all.push_back(&r);
        }
        if (o_.soak_reads > 0) all.push_back(&o_.soak);
        std::size_t well = 0;
        for (const auto* r : all) {
            if (!r->status.starts_with("success")) continue;
            if (!r->ok())
                return aspect("path.data", outcome::fail, "READ of " + say(*r) + ", and success");
            ++well;
        }
        aspect("path.data", well > 0 ? outcome::pass : outcome::skip,
               well > 0 ? "every READ that succeeded brought the right bytes"
                        : "depends on path.gid.matrix");
    }
    /// What is wrong with B by its own doctor, of the host and of the port in use. Where data flows
    /// all the same it is a risk.
    void peer_doctor() {
        if (!o_.b_doctor)
            return aspect("path.peer_doctor", outcome::skip,
                          b_.host + " does not tell what its doctor finds");
        std::string told, ids;
        for (const auto& f : *o_.b_doctor) {
            const bool about = f.subject == "host" || f.subject == b_.device ||
                               f.subject == b_.device + "/" + text(b_.port);
            if (!about) continue;
            told += (told.empty() ? "" : "; ") + f.id + " " + f.subject + ": " + f.message;
            ids += (ids.empty() ? "" : ",") + f.id;
        }
        if (told.empty())
            return aspect("path.peer_doctor", outcome::pass,
                          "the doctor of " + b_.host + " finds nothing that fails");
        aspect("path.peer_doctor", o_.pairs.front().ok() ? outcome::warn : outcome::fail,
               "the doctor of " + b_.host + " finds " + told);
        findings_.back().fix = {on(b_.host, "rvget doctor --only " + ids)};
    }
    void ladder(const char* id, const ladder_seen& l, const route_seen& way) {
        // RDMA finds a peer on its link without a route, plain UDP does not.
        if (!way.error.empty() && l.passed.empty())
            return aspect(id, outcome::skip, "depends on path.route");
        if (!l.ran()) return aspect(id, outcome::skip, "no addresses that UDP can use");
        const auto broken = broken_at(l);
        // What the ends agree on needs no more than a first WRITE: 12 bytes over a READ response.
        const auto need = needed(path_mtu(o_), is_ipv4(a_.gid)) + 12;
        auto words = "IP packets of " + text(l.largest()) + " bytes pass";
        if (broken) words += ", of " + text(*broken) + " and more vanish";
        if (!l.refused.empty()) words += "; longer ones are refused here, by the netdev's MTU";
        aspect(id, broken && *broken <= need ? outcome::fail : outcome::pass, words);
    }
    void reads(const char* id, const std::vector<read_seen>& all) {
        if (all.empty()) return aspect(id, outcome::skip, "depends on path.gid.matrix");
        const bool ok = all.back().ok();
        aspect(
            id, ok ? outcome::pass : outcome::fail,
            ok ? "READs up to " + text(all.back().bytes) + " bytes" : "READ of " + say(all.back()));
    }
    /// Figures without a limit: nothing here knows what the path should give.
    void performance() {
        for (const auto& [id, r, from] : {std::tuple("path.latency.forward", &o_.a_latency, &a_),
                                          {"path.latency.reverse", &o_.b_latency, &b_}}) {
            if (r->ok())
                aspect(
                    id, outcome::pass,
                    "READ of 8 bytes by " + from->host + ": median " + text(r->median_us) + " us");
        }
        if (o_.soak_reads > 0 && o_.soak.ok() && o_.soak.median_us > 0) {
            aspect("path.bandwidth", outcome::pass,
                   "READs of " + text(o_.soak.bytes) + " bytes by " + a_.host +
                       ", one after another: " + text(o_.soak.bytes / o_.soak.median_us) + " MB/s");
        }
    }
    void limits() {
        if (a_.max_read_depth != 0 && b_.max_read_depth != 0) {
            const auto depth = std::min(a_.max_read_depth, b_.max_read_depth);
            aspect("path.depth", depth >= 4 ? outcome::pass : outcome::warn,
                   text(depth) + " READs at once");
        }
        if (a_.pkeys.empty() || b_.pkeys.empty()) return;
        const auto common = [this](const std::string& key) {
            return std::any_of(b_.pkeys.begin(), b_.pkeys.end(), [&](const std::string& other) {
                return partitions_meet(key, other);
            });
        };
        const bool any = std::any_of(a_.pkeys.begin(), a_.pkeys.end(), common);
        aspect("path.pkey", any ? outcome::pass : outcome::fail,
               any ? "a common partition"
                   : "no partition is common to " + a_.host + " and " + b_.host);
    }
    void connections() {
        if (!o_.a_connects.tried && !o_.b_connects.tried)
            return aspect("path.cm.connect", outcome::skip, "not tried between these GIDs");
        std::string wrong, large, missing;
        for (const auto& [c, from, to] :
             {std::tuple(&o_.a_connects, &a_, &b_), {&o_.b_connects, &b_, &a_}}) {
            for (const auto* error : {&c->error, &c->accept_error}) {
                if (error->starts_with(fabric::cm_unavailable)) missing = *error;
                if (!error->empty()) wrong += from->host + " to " + to->host + ": " + *error + "; ";
            }
            if (c->path_mtu_bytes > common_mtu(a_, b_)) {
                large += "from " + from->host + " RDMA-CM gives both queue pairs path MTU " +
                         text(c->path_mtu_bytes) + "; ";
            }
        }
        const auto without = [](const std::string& words) {
            return words.substr(0, words.size() - 2);
        };
        if (!missing.empty())
            return aspect("path.cm.connect", outcome::skip,
                          missing + ": see env.rdma_cm of doctor");
        if (!wrong.empty()) {
            aspect("path.cm.connect", outcome::warn,
                   without(wrong) + " (programs that use RDMA-CM fail, rvget does not use it)");
        } else {
            aspect("path.cm.connect", outcome::pass,
                   "RDMA-CM connects both ways in " +
                       text(std::max(o_.a_connects.took_ms, o_.b_connects.took_ms)) + " ms");
        }
        aspect("path.cm.mtu", large.empty() ? outcome::pass : outcome::warn,
               large.empty() ? "RDMA-CM gives a path MTU that both ends take"
                             : without(large) + ", and " + text(common_mtu(a_, b_)) +
                                   " is what both take: rping, ib_read_bw -R and other programs "
                                   "that take it over hang");
    }
    void loss() {
        const auto again = retries(o_.soak.reader);
        const auto words = text(again) + " retries in " + text(o_.soak_reads) + " READs";
        const double part = static_cast<double>(again) / o_.soak_reads;
        aspect("path.loss",
               again == 0      ? outcome::pass
               : part < 0.0001 ? outcome::warn
                               : outcome::fail,
               words);
    }

    void aspect(const char* id, outcome how, const std::string& message) {
        findings_.push_back({.id = id,
                             .outcome = how,
                             .subject = a_.host + "->" + b_.host,
                             .observed = boost::json::value(message),
                             .message = message});
    }

    const observations& o_;
    const end_point& a_;
    const end_point& b_;
    std::vector<finding> findings_;
};

}  // namespace

std::vector<finding> aspects_of(const observations& o) {
    auto all = aspects(o).all();
    auto network = network_aspects(o);
    all.insert(all.end(), std::make_move_iterator(network.begin()),
               std::make_move_iterator(network.end()));
    return all;
}

}  // namespace rvget::diag
