#include "diag/check/observe.hpp"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "diag/check/taken_text.hpp"
#include "diag/check/verdict.hpp"
#include "diag/check/words.hpp"
#include "diag/described.hpp"

namespace rvget::diag {

namespace {

namespace json = boost::json;
using namespace std::chrono_literals;

constexpr std::size_t best_of_each = 3;
// Acknowledge timeouts (4.096 us x 2^n, five times) of READs that are not to fail by a CPU that was
// away for a moment: of one that is repeated, 0.7 s; where each retry is counted, 2.7 s. A device
// may take four times as long, and a READ is given 3 s.
constexpr std::uint32_t usual_exponent = 14;
constexpr std::uint32_t patient_exponent = 15;
constexpr std::uint32_t soak_exponent = 17;
// Within the 60 s of a check, from its start on.
constexpr auto patience = 10s;  // for repeating
constexpr auto parallel_reads_until = 30s;

/// Whether the READ may have failed by a moment's trouble: nothing came back, or the queue pair was
/// in error before it. All else is an answer.
bool worth_repeating(const read_seen& r) {
    return r.status == to_string(fabric::completion_status::retry_exceeded) ||
           r.status == to_string(fabric::completion_status::flushed);
}

/// After how long a READ that got no answer is repeated.
std::uint64_t timeout_us(std::uint32_t exponent) { return (4096ULL << exponent) / 1000; }

/// A request failed that never should: the control connection is gone, say.
struct broken_off {
    std::string why;
};

json::object ask(check_end& end, const json::object& request) {
    auto answer = end.ask(request);
    if (const auto* lost = answer.if_contains("lost"))
        throw broken_off{std::string(lost->as_string())};
    return answer;
}

/// A text of an end's answer; empty where the answer does not have it.
std::string text_of(const json::object& answer, const char* key) {
    const auto* found = answer.if_contains(key);
    return found == nullptr ? "" : taken(key, found->as_string());
}

std::string error_of(const json::object& answer) { return text_of(answer, "error"); }

/// The counters of an answer; none where it has none.
json::object counters_of(const json::object& answer) {
    const auto* all = answer.if_contains("counters");
    if (all == nullptr) return {};
    for (const auto& counter : all->as_object()) static_cast<void>(taken("counter", counter.key()));
    return all->as_object();
}

bool is_number(const std::string& text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

class session {
public:
    session(check_end& a, check_end& b, const check_wishes& wishes,
            const std::function<void(const observations&)>& so_far, const clock_function& now)
        : a_(a), b_(b), wishes_(wishes), so_far_(so_far), now_(now) {}

    observations run() {
        const auto a_facts = ask(a_, {{"ask", "facts"}});
        const auto b_facts = ask(b_, {{"ask", "facts"}});
        if (!error_of(a_facts).empty()) throw broken_off{"this end: " + error_of(a_facts)};
        if (!error_of(b_facts).empty()) throw broken_off{"the other end: " + error_of(b_facts)};
        o_.peer = wishes_.peer;
        o_.pinned_mtu_bytes = wishes_.mtu_bytes;
        o_.a_control_netdev = netdev_of(a_facts, wishes_.own_address);
        o_.b_control_netdev = netdev_of(b_facts, wishes_.peer_address);
        o_.a_firewall = text_of(a_facts, "firewall");
        o_.b_firewall = text_of(b_facts, "firewall");
        o_.b_doctor = doctor_of(b_facts);
        const auto a_ends = ends(a_facts, wishes_.gid);
        const auto b_ends = ends(b_facts, wishes_.peer_gid);
        for (const auto& [x, y] : choose(a_ends, b_ends)) o_.pairs.push_back({.a = x, .b = y});
        o_.gid_pinned = !wishes_.gid.empty() || !wishes_.peer_gid.empty();
        if (o_.pairs.empty()) {
            const bool own = a_ends.empty();
            o_.no_gid_at = text_of(own ? a_facts : b_facts, "host");
            o_.no_gid = own ? wishes_.gid : wishes_.peer_gid;
            return o_;
        }
        if (o_.gid_pinned) {
            // Besides the pair that was asked for, those that would have been chosen.
            for (const auto& [x, y] : choose(ends(a_facts, ""), ends(b_facts, ""))) {
                const auto& first = o_.pairs.front();
                if (x.index != first.a.index || x.device != first.a.device ||
                    y.index != first.b.index || y.device != first.b.device)
                    o_.pairs.push_back({.a = x, .b = y});
            }
        }
        so_far_(o_);
        ladders();
        for (auto& p : o_.pairs) {
            small_reads(p);
            so_far_(o_);
        }
        // Where nobody asked for a pair, the best one is the first that works.
        if (!o_.gid_pinned)
            std::stable_partition(o_.pairs.begin(), o_.pairs.end(),
                                  [](const auto& p) { return p.ok(); });
        if (!hop_limits_.empty()) o_.hop_limit = *hop_limits_.begin();
        o_.a_mtu_bytes = path_mtu(o_.pairs.front().a, o_.pairs.front().b);
        o_.b_mtu_bytes = wishes_.peer_mtu_bytes != 0 ? wishes_.peer_mtu_bytes : o_.a_mtu_bytes;
        routes();
        if (o_.pairs.front().ok()) {
            const auto a_before = port_counters(a_, o_.pairs.front().a);
            const auto b_before = port_counters(b_, o_.pairs.front().b);
            probe_first_pair();
            o_.a_port = growth(a_before, port_counters(a_, o_.pairs.front().a), true);
            o_.b_port = growth(b_before, port_counters(b_, o_.pairs.front().b), true);
        } else {
            probe_silent_pair();
        }
        look_again();
        return o_;
    }

private:
    using pair_list = std::vector<std::pair<end_point, end_point>>;

    static std::string netdev_of(const json::object& facts, const std::string& address) {
        return text_of(facts.at("addresses").as_object(), address.c_str());
    }

    /// An older version does not tell.
    static std::optional<std::vector<doctor_seen>> doctor_of(const json::object& facts) {
        const auto* told = facts.if_contains("doctor");
        if (told == nullptr) return std::nullopt;
        std::vector<doctor_seen> all;
        from_json(*told, all);
        constexpr std::size_t most = 16;  // of an end whose word is not trusted
        if (all.size() > most) all.resize(most);
        take(all);
        return all;
    }

    /// The end's GIDs, or the one that is asked for; an index that is empty stays one to be tried.
    static std::vector<end_point> ends(const json::object& facts, const std::string& wanted) {
        std::vector<end_point> all;
        from_json(facts.at("ends"), all);
        take(all);
        if (wanted.empty()) return all;
        std::vector<end_point> chosen;
        for (const auto& e : all) {
            if (e.gid == wanted || (is_number(wanted) && e.index == std::stoul(wanted)))
                chosen.push_back(e);
        }
        if (chosen.empty() && !all.empty() && is_number(wanted)) {
            auto none = all.front();
            none.gid.clear(), none.type.clear();
            none.index = static_cast<std::uint32_t>(std::stoul(wanted));
            chosen.push_back(none);
        }
        return chosen;
    }

    /// The best pairs first: with the control connection's addresses, high ranks. Those of two
    /// families can never work, and are tried only where somebody asks for them.
    pair_list choose(const std::vector<end_point>& a, const std::vector<end_point>& b) const {
        const auto value = [&](const end_point& x, const end_point& y) {
            int v = x.rank + y.rank;
            if (x.gid == wishes_.own_address) v += 10;
            if (y.gid == wishes_.peer_address) v += 10;
            if (x.type == y.type) v += 20;
            return v;
        };
        pair_list all;
        for (std::size_t i = 0; i < std::min(a.size(), best_of_each); ++i) {
            for (std::size_t j = 0; j < std::min(b.size(), best_of_each); ++j)
                all.emplace_back(a[i], b[j]);
        }
        const auto mixed = [](const auto& pair) {
            return is_ipv4(pair.first.gid) != is_ipv4(pair.second.gid);
        };
        if (!std::all_of(all.begin(), all.end(), mixed)) std::erase_if(all, mixed);
        std::stable_sort(all.begin(), all.end(), [&](const auto& l, const auto& r) {
            return value(l.first, l.second) > value(r.first, r.second);
        });
        return all;
    }

    [[nodiscard]] std::uint32_t path_mtu(const end_point& a, const end_point& b) const {
        return wishes_.mtu_bytes != 0 ? wishes_.mtu_bytes : std::max(256U, common_mtu(a, b));
    }

    /// The GID to which A sends; a wrong one is wished for only towards the first pair's.
    [[nodiscard]] std::string target_of(const end_point& b) const {
        const bool first = b.gid == o_.pairs.front().b.gid;
        return first && !wishes_.target_gid.empty() ? wishes_.target_gid : b.gid;
    }

    void ladders() {
        const auto usable = std::find_if(o_.pairs.begin(), o_.pairs.end(), [](const auto& p) {
            return !p.a.gid.empty() && !p.b.gid.empty() && is_ipv4(p.a.gid) == is_ipv4(p.b.gid) &&
                   !p.a.gid.starts_with("fe8") && !p.b.gid.starts_with("fe8") &&
                   p.a.link_layer == "Ethernet";
        });
        if (usable == o_.pairs.end()) return;
        o_.forward = ladder(a_, b_, usable->a, usable->b);
        o_.reverse = ladder(b_, a_, usable->b, usable->a);
        o_.a_sees_mac = neighbour(a_, usable->a, usable->b);
        o_.b_sees_mac = neighbour(b_, usable->b, usable->a);
    }

    void routes() {
        const auto& a = o_.pairs.front().a;
        const auto& b = o_.pairs.front().b;
        if (a.gid.empty() || b.gid.empty() || a.link_layer != "Ethernet" ||
            b.link_layer != "Ethernet" || is_ipv4(a.gid) != is_ipv4(b.gid))
            return;
        o_.a_route = route(a_, a, b);
        o_.b_route = route(b_, b, a);
    }

    static std::string neighbour(check_end& from, const end_point& own, const end_point& to) {
        return text_of(
            ask(from, {{"ask", "neighbour"}, {"address", to.gid}, {"netdev", own.netdev}}), "mac");
    }

    /// For packets that bear the GID's address: other routes may be for others.
    static route_seen route(check_end& from, const end_point& own, const end_point& to) {
        const auto answer = ask(
            from, {{"ask", "route"}, {"to", to.gid}, {"from", own.gid}, {"netdev", own.netdev}});
        if (!error_of(answer).empty()) return {.silent = true, .error = {}};
        route_seen seen{.asked = true, .error = {}};
        if (answer.contains("none")) {
            seen.error = "no route to " + to.gid;
            return seen;
        }
        seen.local = answer.at("local").as_bool();
        seen.netdev = text_of(answer, "netdev"), seen.gateway = text_of(answer, "gateway");
        seen.next_hop_mac = text_of(answer, "mac"), seen.next_hop_state = text_of(answer, "state");
        return seen;
    }

    static ladder_seen ladder(check_end& from, check_end& to, const end_point& sender,
                              const end_point& receiver) {
        ladder_seen seen;
        // The lengths of READ responses and first WRITEs at each path MTU, and common MTUs.
        json::array sizes;
        for (const std::uint32_t size : {304U, 560U, 1072U, 1084U, 1280U, 1500U, 1501U, 2096U,
                                         2108U, 4144U, 4156U, 8972U, 9000U}) {
            if (size <= std::max(sender.netdev_mtu_bytes, 1501U)) sizes.push_back(size);
        }
        const auto sink = ask(to, {{"ask", "udp_open"}, {"gid", receiver.gid}});
        const auto source = ask(from, {{"ask", "udp_open"}, {"gid", sender.gid}});
        if (!error_of(sink).empty() || !error_of(source).empty()) return seen;
        // Once each, so that the receiver's buffer holds them all; what did not come, again: a
        // packet may be lost for reasons that are nobody's fault.
        for (int round = 0; round < 3 && !sizes.empty(); ++round) {
            const auto sent = ask(from, {{"ask", "udp_send"},
                                         {"to", receiver.gid},
                                         {"port", sink.at("port")},
                                         {"sizes", sizes}});
            const auto arrived = ask(to, {{"ask", "udp_result"}});
            std::vector<std::uint32_t> refused, passed, rest;
            if (const auto* list = sent.if_contains("refused")) from_json(*list, refused);
            if (const auto* list = arrived.if_contains("sizes")) from_json(*list, passed);
            if (const auto* ttl = arrived.if_contains("ttl"); ttl != nullptr && seen.ttl == 0)
                seen.ttl = ttl->to_number<std::uint32_t>();
            seen.refused.insert(seen.refused.end(), refused.begin(), refused.end());
            seen.passed.insert(seen.passed.end(), passed.begin(), passed.end());
            for (const auto& size : sizes) {
                const auto length = size.to_number<std::uint32_t>();
                if (std::find(refused.begin(), refused.end(), length) != refused.end()) continue;
                if (round == 0) seen.sent.push_back(length);
                if (std::find(passed.begin(), passed.end(), length) == passed.end()) {
                    rest.push_back(length);
                }
            }
            sizes = json::array(rest.begin(), rest.end());
        }
        return seen;
    }

    /// All that makes sense only where a READ of one byte works.
    void probe_first_pair() {
        const auto& a = o_.pairs.front().a;
        const auto& b = o_.pairs.front().b;
        std::tie(o_.a_reads, o_.a_reads_port) = large_reads(a_, b_, a, b);
        std::tie(o_.b_reads, o_.b_reads_port) = large_reads(b_, a_, b, a);
        so_far_(o_);
        if (o_.a_reads.back().ok()) o_.a_latency = short_reads(a_, b_, a, b);
        if (o_.b_reads.back().ok()) o_.b_latency = short_reads(b_, a_, b, a);
        o_.a_connects = connect_by_cm(a_, b_, a, b);
        o_.b_connects = connect_by_cm(b_, a_, b, a);
        so_far_(o_);
        const bool well = o_.a_reads.back().ok() && o_.b_reads.back().ok();
        if (well && wishes_.reads > 0) soak();
        so_far_(o_);
        // Many paths explain a READ that gets lost as well as one that does not.
        if (o_.a_reads.back().ok() || worth_repeating(o_.a_reads.back()))
            o_.a_paths = parallel_reads(a_, b_, a, b);
        if (o_.b_reads.back().ok() || worth_repeating(o_.b_reads.back()))
            o_.b_paths = parallel_reads(b_, a_, b, a);
        if (well && (o_.soak_reads == 0 || o_.soak.ok())) death();
    }

    /// Whether it is all queue pairs that are silent, or only those that some link carries.
    void probe_silent_pair() {
        const auto& p = o_.pairs.front();
        if (!worth_repeating(p.a_reads) && !worth_repeating(p.b_reads)) return;
        o_.a_paths = parallel_reads(a_, b_, p.a, p.b);
        o_.b_paths = parallel_reads(b_, a_, p.b, p.a);
    }

    struct probes {
        json::object a, b;
        std::uint32_t seed = 0;
        std::string a_error, b_error;
        [[nodiscard]] bool ok() const { return a_error.empty() && b_error.empty(); }
    };

    /// The queue pairs of a probe, the first of them `x`'s.
    probes connect(check_end& x, check_end& y, const end_point& ex, const end_point& ey,
                   std::uint32_t timeout_exponent = 0, std::uint32_t forced_mtu = 0) {
        probes p;
        const auto mtu = [&](const check_end& end) {
            if (forced_mtu != 0) return forced_mtu;
            const bool theirs = &end == &b_ && wishes_.peer_mtu_bytes != 0;
            return theirs ? wishes_.peer_mtu_bytes : path_mtu(ex, ey);
        };
        const auto target = [&](const check_end& end, const end_point& peer) {
            return &end == &a_ ? target_of(peer) : peer.gid;
        };
        p.seed = ++seed_;
        p.a = ask(x, {{"ask", "make"}, {"end", to_json(ex)}, {"seed", p.seed}});
        p.b = ask(y, {{"ask", "make"}, {"end", to_json(ey)}, {"seed", p.seed}});
        p.a_error = error_of(p.a), p.b_error = error_of(p.b);
        if (!p.ok()) return p;
        const auto request = [&](const json::object& peer, const std::string& gid,
                                 std::uint32_t lid, std::uint32_t path_bytes) {
            json::object r{{"ask", "connect"},
                           {"number", peer.at("number")},
                           {"gid", gid},
                           {"lid", lid},
                           {"mtu", path_bytes}};
            if (timeout_exponent != 0) r["timeout_exponent"] = timeout_exponent;
            return r;
        };
        const auto join = [&](check_end& end, const json::object& how) {
            const auto answer = ask(end, how);
            // An older version does not tell.
            if (const auto* used = answer.if_contains("hop_limit"))
                hop_limits_.insert(used->to_number<std::uint32_t>());
            return error_of(answer);
        };
        p.a_error = join(x, request(p.b, target(x, ey), ey.lid, mtu(x)));
        p.b_error = join(y, request(p.a, target(y, ex), ex.lid, mtu(y)));
        return p;
    }

    /// Of a queue pair that was made.
    static std::uint32_t number_of(const json::object& made) {
        return made.at("number").to_number<std::uint32_t>();
    }

    static json::object counters(check_end& end) {
        return counters_of(ask(end, {{"ask", "counters"}}));
    }
    static json::object port_counters(check_end& end, const end_point& e) {
        return counters_of(ask(end, {{"ask", "port_counters"}, {"netdev", e.port_netdev}}));
    }
    /// Of a counter that was not read before, nobody knows how it grew.
    static std::map<std::string, std::uint64_t> growth(const json::object& before,
                                                       const json::object& after,
                                                       bool with_zeros = false) {
        std::map<std::string, std::uint64_t> grown;
        for (const auto& [name, value] : after) {
            const auto* old = before.if_contains(name);
            if (old == nullptr) continue;
            const auto now = value.to_number<std::uint64_t>();
            const auto was = old->to_number<std::uint64_t>();
            if (now > was || with_zeros) grown[std::string(name)] = now > was ? now - was : 0;
        }
        return grown;
    }

    /// `times` READs by `reader` of what `served` (its answer to "make") offers.
    static std::pair<read_seen, std::uint32_t> bare_read(check_end& reader,
                                                         const json::object& served,
                                                         std::uint32_t seed, std::uint32_t bytes,
                                                         std::uint32_t times) {
        const auto answer = ask(reader, {{"ask", "read"},
                                         {"address", served.at("address")},
                                         {"key", served.at("key")},
                                         {"bytes", bytes},
                                         {"seed", seed},
                                         {"times", times},
                                         {"limit_ms", 10'000}});
        read_seen seen{.bytes = bytes, .status = error_of(answer)};
        if (!seen.status.empty()) return {seen, 0};
        seen.status = text_of(answer, "status");
        seen.wrong_bytes = answer.at("wrong").to_number<std::uint64_t>();
        seen.written_bytes = answer.at("written").to_number<std::uint64_t>();
        seen.median_us = answer.at("median_us").to_number<std::uint64_t>();
        return {seen, answer.at("done").to_number<std::uint32_t>()};
    }

    /// The same with what both ends counted meanwhile, which takes tens of milliseconds.
    static std::pair<read_seen, std::uint32_t> read(check_end& reader, check_end& other,
                                                    const json::object& served, std::uint32_t seed,
                                                    std::uint32_t bytes, std::uint32_t times) {
        const auto reader_before = counters(reader);
        const auto other_before = counters(other);
        auto [seen, done] = bare_read(reader, served, seed, bytes, times);
        if (done == 0) return {seen, 0};
        seen.reader = growth(reader_before, counters(reader));
        seen.responder = growth(other_before, counters(other));
        return {seen, done};
    }

    void small_reads(pair_seen& p) {
        auto made = connect(a_, b_, p.a, p.b);
        p.a_error = made.a_error, p.b_error = made.b_error;
        p.a_target = target_of(p.b), p.b_bound = p.b.gid;
        if (!made.ok()) return;
        p.a_reads = read_surely(a_, b_, p.a, p.b, made, 1);
        // Over queue pairs of its own: one that failed would fail this way, too.
        made = connect(b_, a_, p.b, p.a);
        if (made.ok()) p.b_reads = read_surely(b_, a_, p.b, p.a, made, 1);
    }

    /// A READ over `made`; where it fails for what may be a moment's trouble, once more over new
    /// ones.
    read_seen read_surely(check_end& reader, check_end& other, const end_point& er,
                          const end_point& eo, probes& made, std::uint32_t bytes) {
        auto first = read(reader, other, made.b, made.seed, bytes, 1).first;
        if (!worth_repeating(first) || now_() - begun_ > patience) return first;
        made = connect(reader, other, er, eo, patient_exponent);
        return made.ok() ? read(reader, other, made.b, made.seed, bytes, 1).first : first;
    }

    /// READs of growing size, and how the counters of the reader's port grew meanwhile.
    std::pair<std::vector<read_seen>, std::map<std::string, std::uint64_t>> large_reads(
        check_end& reader, check_end& other, const end_point& er, const end_point& eo) {
        auto made = connect(reader, other, er, eo);
        if (!made.ok()) return {{{.bytes = 1, .status = made.a_error + made.b_error}}, {}};
        const auto before = port_counters(reader, er);
        std::vector<read_seen> all;
        for (const std::uint32_t bytes : {256U, 1024U, 1452U, 1453U, 2048U, 4096U, 65'536U}) {
            all.push_back(read_surely(reader, other, er, eo, made, bytes));
            if (!all.back().ok()) break;
        }
        return {all, growth(before, port_counters(reader, er), true)};
    }

    read_seen short_reads(check_end& reader, check_end& other, const end_point& er,
                          const end_point& eo) {
        const auto made = connect(reader, other, er, eo);
        if (!made.ok()) return {};
        return read(reader, other, made.b, made.seed, 8, 200).first;
    }

    /// RDMA-CM between the ends, over queue pairs of their own that carry nothing. Link-local
    /// addresses would need a scope, which a GID does not have.
    cm_seen connect_by_cm(check_end& client, check_end& server, const end_point& ec,
                          const end_point& es) {
        cm_seen seen;
        if (ec.gid.starts_with("fe8") || es.gid.starts_with("fe8")) return seen;
        if (!connect(client, server, ec, es).ok()) return seen;
        seen.tried = true;
        const auto listening = ask(server, {{"ask", "cm_listen"}, {"gid", es.gid}});
        seen.accept_error = error_of(listening);
        if (!seen.accept_error.empty()) return seen;
        const auto answer = ask(client, {{"ask", "cm_connect"},
                                         {"own", ec.gid},
                                         {"to", es.gid},
                                         {"port", listening.at("port")}});
        seen.error = error_of(answer);
        if (seen.error.empty()) {
            seen.path_mtu_bytes = answer.at("mtu").to_number<std::uint32_t>();
            seen.took_ms = answer.at("ms").to_number<std::uint32_t>();
        }
        seen.accept_error = error_of(ask(server, {{"ask", "cm_result"}}));
        if (seen.error.empty() && seen.path_mtu_bytes > common_mtu(ec, es)) {
            const auto made = connect(client, server, ec, es, usual_exponent, seen.path_mtu_bytes);
            if (made.ok()) seen.large = read(client, server, made.b, made.seed, 65'536, 1).first;
        }
        return seen;
    }

    paths_seen parallel_reads(check_end& reader, check_end& other, const end_point& er,
                              const end_point& eo) {
        const auto seen = parallel_reads(reader, other, er, eo, usual_exponent);
        // A moment's trouble does not come twice, and not to READs that are repeated for longer.
        return seen.some_fail() ? parallel_reads(reader, other, er, eo, patient_exponent) : seen;
    }

    paths_seen parallel_reads(check_end& reader, check_end& other, const end_point& er,
                              const end_point& eo, std::uint32_t timeout_exponent) {
        paths_seen seen;
        // The UDP source port comes of the numbers: a pair that had them before goes the same way.
        std::set<std::pair<std::uint32_t, std::uint32_t>> numbers;
        for (std::uint32_t i = 0; i < 2 * paths_seen::enough && !seen.decided(); ++i) {
            if (now_() - begun_ > parallel_reads_until) break;
            const auto made = connect(reader, other, er, eo, timeout_exponent);
            if (!made.ok()) break;
            if (!numbers.emplace(number_of(made.a), number_of(made.b)).second) continue;
            ++seen.tried;
            const auto comes = [&](std::uint32_t bytes) {
                const auto r = bare_read(reader, made.b, made.seed, bytes, 1).first;
                const bool silent =
                    r.status == to_string(fabric::completion_status::retry_exceeded);
                if (r.ok() ? r.median_us >= timeout_us(timeout_exponent) : !silent) ++seen.repeated;
                return r.ok();
            };
            if (!comes(1)) {
                ++seen.small_failed;
            } else if (!comes(path_mtu(er, eo))) {
                ++seen.large_failed;
            }
        }
        return seen;
    }

    /// How long A takes to notice that B has destroyed its queue pair.
    void death() {
        const auto& p = o_.pairs.front();
        const auto made = connect(a_, b_, p.a, p.b);
        if (!made.ok()) return;
        static_cast<void>(ask(b_, {{"ask", "close"}}));
        const auto seen = bare_read(a_, made.b, made.seed, 1, 1).first;
        o_.death = {.tried = true,
                    .status = seen.status,
                    .took_ms = seen.median_us / 1000,
                    .limit_ms = silence_ms};
    }

    void soak() {
        const auto& p = o_.pairs.front();
        const auto made = connect(a_, b_, p.a, p.b, soak_exponent);
        if (!made.ok()) {
            o_.soak = {.bytes = 0, .status = made.a_error + made.b_error};
            o_.soak_reads = 1;
            return;
        }
        std::tie(o_.soak, o_.soak_reads) = read(a_, b_, made.b, made.seed, 65'536, wishes_.reads);
    }

    [[nodiscard]] bool all_passed() const {
        const auto well = [](const auto& reads) { return !reads.empty() && reads.back().ok(); };
        return o_.pairs.front().ok() && well(o_.a_reads) && well(o_.b_reads) &&
               (o_.soak_reads == 0 || o_.soak.ok());
    }

    /// The first pair's ends as they are now: what changed meanwhile explains what failed.
    void look_again() {
        if (all_passed()) {
            o_.a_later = o_.pairs.front().a, o_.b_later = o_.pairs.front().b;
            return;
        }
        const auto again = [](check_end& end, const end_point& was) {
            static_cast<void>(ask(end, {{"ask", "close"}}));
            for (const auto& now : ends(ask(end, {{"ask", "facts"}}), "")) {
                if (now.device == was.device && now.port == was.port && now.index == was.index)
                    return now;
            }
            auto gone = was;
            gone.gid.clear();
            return gone;
        };
        o_.a_later = again(a_, o_.pairs.front().a);
        o_.b_later = again(b_, o_.pairs.front().b);
    }

    check_end& a_;
    check_end& b_;
    const check_wishes& wishes_;
    const std::function<void(const observations&)>& so_far_;
    observations o_;
    std::uint32_t seed_ = 0;
    std::set<std::uint32_t> hop_limits_;  ///< of queue pairs
    const clock_function& now_;
    const std::chrono::steady_clock::time_point begun_ = now_();
};

}  // namespace

result<observations> observe(check_end& a, check_end& b, const check_wishes& wishes,
                             const std::function<void(const observations&)>& so_far,
                             const clock_function& now) {
    try {
        return session(a, b, wishes, so_far, now).run();
    } catch (const broken_off& lost) {
        return failure{connection_errc::lost, lost.why};
    } catch (const std::exception& e) {
        return failure{connection_errc::protocol,
                       std::string("the other end answered what makes no sense: ") + e.what()};
    }
}

}  // namespace rvget::diag
