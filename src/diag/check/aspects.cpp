#include "diag/check/aspects.hpp"

#include <algorithm>
#include <cstdlib>
#include <tuple>

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
        const bool other = !o_.a_control_netdev.empty() && o_.a_control_netdev != a_.netdev;
        aspect("path.control_netdev", other ? outcome::warn : outcome::pass,
               other ? "TCP runs over " + o_.a_control_netdev + ", RDMA over " + a_.netdev +
                           ": that TCP works proves nothing about the RDMA path"
                     : "TCP and RDMA use " + a_.netdev);
        ladder("path.ladder.forward", o_.forward);
        ladder("path.ladder.reverse", o_.reverse);
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
        reads("path.mtu.read_forward", o_.a_reads);
        reads("path.mtu.read_reverse", o_.b_reads);
        performance();
        connections();
        if (o_.soak_reads > 0) loss();
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
    void ladder(const char* id, const ladder_seen& l) {
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
        std::uint64_t retries = 0;
        for (const auto* name :
             {"completer_retry_err", "local_ack_timeout_err", "packet_seq_err"}) {
            retries += grown(o_.soak.reader, name);
        }
        const auto words = text(retries) + " retries in " + text(o_.soak_reads) + " READs";
        const double part = static_cast<double>(retries) / o_.soak_reads;
        aspect("path.loss",
               retries == 0    ? outcome::pass
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

std::vector<finding> aspects_of(const observations& o) { return aspects(o).all(); }

}  // namespace rvget::diag
