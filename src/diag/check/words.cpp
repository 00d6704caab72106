#include "diag/check/words.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "diag/check/verdict.hpp"

namespace rvget::diag {

bool is_ipv4(const std::string& gid) { return gid.find(':') == std::string::npos; }
std::string text(std::uint64_t n) { return std::to_string(n); }
std::string on(const std::string& host, const std::string& command) {
    return "[" + host + "] " + command;
}
std::string name_of(const end_point& e) {
    return (e.gid.empty() ? "index " + text(e.index) + " (empty)"
                          : e.gid + " (index " + text(e.index) + ")") +
           " on " + e.host;
}
std::string set_mtu(const end_point& e, std::uint32_t mtu) {
    return on(e.host, "ip link set " + e.netdev + " mtu " + text(mtu));
}

std::string_view awaited(std::string_view request) {
    static constexpr std::array<std::pair<std::string_view, std::string_view>, 15> known{
        {{"facts", "its devices and GIDs"},
         {"make", "a queue pair"},
         {"connect", "connecting a queue pair"},
         {"read", "READs"},
         {"counters", "its port's counters"},
         {"port_counters", "its netdev's counters"},
         {"close", "closing its queue pair"},
         {"udp_open", "a UDP socket"},
         {"udp_send", "sending UDP packets"},
         {"udp_result", "the UDP packets that arrived"},
         {"cm_listen", "listening by RDMA-CM"},
         {"cm_connect", "connecting by RDMA-CM"},
         {"cm_result", "accepting by RDMA-CM"},
         {"neighbour", "its neighbour table"},
         {"route", "its route"}}};
    const auto* found =
        std::ranges::find(known, request, [](const auto& one) { return one.first; });
    return found == known.end() ? "an answer" : found->second;
}

std::uint64_t grown(const std::map<std::string, std::uint64_t>& counters, const std::string& name) {
    const auto found = counters.find(name);
    return found == counters.end() ? 0 : found->second;
}

std::uint64_t retries(const std::map<std::string, std::uint64_t>& reader) {
    std::uint64_t all = 0;
    for (const auto* name : {"completer_retry_err", "local_ack_timeout_err", "packet_seq_err"})
        all += grown(reader, name);
    return all;
}

std::string restore_address(const end_point& e) {
    const auto prefix = e.prefix != 0 ? e.prefix : is_ipv4(e.gid) ? 32U : 128U;
    return on(e.host, "ip address add " + e.gid + "/" + text(prefix) + " dev " + e.netdev);
}

std::string unblock(const end_point& e) {
    return on(e.host,
              "nft -a list ruleset | awk '/^table/{t=$2\" \"$3} /chain/{c=$2} "
              "/4791/&&/drop|reject/{print \"delete rule\",t,c,\"handle\",$NF}' | nft -f -");
}

std::uint32_t needed(std::uint32_t mtu, bool ipv4) { return mtu + (ipv4 ? 48 : 68); }

std::optional<std::uint32_t> broken_at(const ladder_seen& l) {
    std::optional<std::uint32_t> first;
    for (const auto size : l.sent) {
        const bool passed = std::find(l.passed.begin(), l.passed.end(), size) != l.passed.end();
        if (!passed && (!first || size < *first)) first = size;
    }
    return first;
}

std::string say(const read_seen& r) {
    return text(r.bytes) + " bytes: " + (r.status.empty() ? "not tried" : r.status) +
           (r.wrong_bytes != 0 ? ", " + text(r.wrong_bytes) + " bytes wrong" : "");
}

std::string outcome_of(const pair_seen& p) {
    if (!p.a_error.empty() || !p.b_error.empty()) {
        return "RTR " + (p.a_error.empty() ? "ok" : p.a_error) + " / " +
               (p.b_error.empty() ? "ok" : p.b_error);
    }
    return "READ " + p.a_reads.status + " / " + p.b_reads.status;
}

std::uint32_t path_mtu(const observations& o) {
    const auto& p = o.pairs.front();
    return o.pinned_mtu_bytes != 0 ? o.pinned_mtu_bytes : common_mtu(p.a, p.b);
}

}  // namespace rvget::diag
