#include "diag/check/end.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <future>
#include <span>
#include <thread>

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "diag/described.hpp"
#include "diag/rule.hpp"
#include "fabric/cm/cm_probe.hpp"
#include "fabric/inventory/collect.hpp"
#include "fabric/inventory/ethtool.hpp"
#include "fabric/inventory/files.hpp"
#include "fabric/inventory/kernel_route.hpp"
#include "fabric/inventory/neighbour.hpp"
#include "fabric/probe_end.hpp"

namespace rvget::diag {

namespace {

namespace json = boost::json;
using namespace std::chrono_literals;

constexpr std::size_t probe_bytes = 64 << 10;
constexpr auto cm_step_limit = 2s;
constexpr std::uint32_t starting_psn = 0x1000;
// Finite, short enough for a matrix of probes, and long enough for a peer whose CPUs are busy with
// something else.
constexpr fabric::retry_parameters probe_retry{
    .timeout_exponent = 14, .retry_count = 4, .rnr_retry_count = 4, .min_rnr_timer = 12};
static_assert(4096ULL * (1ULL << probe_retry.timeout_exponent) * (probe_retry.retry_count + 1) /
                  1'000'000 ==
              silence_ms - 1);
constexpr std::uint64_t longest_timeout_exponent = 17;  // 2.7 s, within the limit of a READ

constexpr std::uint32_t shortest_packet = 64;
constexpr std::uint16_t discard_port = 9;

route::gid gid_of(const std::string& text) {
    route::gid g;
    if (::inet_pton(AF_INET6, text.c_str(), g.bytes.data()) == 1) return g;
    g = {};
    g.bytes[10] = g.bytes[11] = 0xff;
    if (::inet_pton(AF_INET, text.c_str(), g.bytes.data() + 12) != 1) g = {};
    return g;
}

std::string string_of(const json::object& o, const char* key) {
    return std::string(o.at(key).as_string());
}
std::uint64_t number_of(const json::object& o, const char* key) {
    return o.at(key).to_number<std::uint64_t>();
}

/// A link-local address is one of each link.
std::string with_scope(const std::string& address, const std::string& netdev) {
    return address.starts_with("fe8") ? address + "%" + netdev : address;
}

/// The name of the errno in a failure's detail ("... ETIMEDOUT (110, ..."), else the detail.
std::string error_name(const failure& f) {
    const auto& text = f.detail;
    for (std::size_t at = text.find(" E"); at != std::string::npos; at = text.find(" E", at + 1)) {
        auto end = at + 2;
        while (end < text.size() && std::isupper(static_cast<unsigned char>(text[end])) != 0) ++end;
        if (end > at + 3 && text.compare(end, 2, " (") == 0)
            return text.substr(at + 1, end - at - 1);
    }
    return f.message();
}

/// A datagram socket bound to an address, with the don't-fragment bit and no trust in cached MTUs.
class datagrams {
public:
    explicit datagrams(const std::string& own) : ipv4_(own.find(':') == std::string::npos) {
        fd_ = ::socket(ipv4_ ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (ipv4_) {
            set(IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
            set(IPPROTO_IP, IP_TTL, ladder_seen::sent_ttl);
            set(IPPROTO_IP, IP_RECVTTL, 1);
        } else {
            set(IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
            set(IPPROTO_IPV6, IPV6_UNICAST_HOPS, ladder_seen::sent_ttl);
            set(IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
        }
        auto [address, length] = socket_address(own, 0);
        if (::bind(fd_, reinterpret_cast<const sockaddr*>(&address), length) != 0) return;
        if (::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length) != 0) return;
        // The port is at the same place for both families.
        port_ = ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
    }
    ~datagrams() {
        if (fd_ >= 0) ::close(fd_);
    }
    datagrams(const datagrams&) = delete;
    datagrams& operator=(const datagrams&) = delete;

    [[nodiscard]] std::uint16_t port() const { return port_; }

    /// Sends IP packets of these lengths; those that the kernel refuses.
    json::array send(const std::string& to, std::uint16_t port, const json::array& lengths) {
        const auto [address, length] = socket_address(to, port);
        json::array refused;
        // Who asks is not trusted: few packets, none without room for its headers.
        for (std::size_t i = 0; i < std::min<std::size_t>(lengths.size(), 16); ++i) {
            const auto size =
                std::clamp(lengths[i].to_number<std::uint32_t>(), shortest_packet, 65'535U);
            const std::vector<char> payload(size - (ipv4_ ? 28 : 48));
            const bool sent = ::sendto(fd_, payload.data(), payload.size(), 0,
                                       reinterpret_cast<const sockaddr*>(&address), length) >= 0 ||
                              errno != EMSGSIZE;
            if (!sent) refused.push_back(size);
        }
        return refused;
    }

    /// The lengths that arrived, and the smallest TTL; waits a little for the last ones.
    json::object received() {
        std::vector<std::uint32_t> seen;
        std::uint32_t ttl = unknown_ttl;
        std::vector<char> buffer(1 << 16);
        pollfd readable{fd_, POLLIN, 0};
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
        while (::poll(&readable, 1, 200) == 1 && std::chrono::steady_clock::now() < until) {
            iovec into{buffer.data(), buffer.size()};
            alignas(cmsghdr) std::array<char, 64> control{};
            msghdr message{};
            message.msg_iov = &into, message.msg_iovlen = 1;
            message.msg_control = control.data(), message.msg_controllen = control.size();
            const auto got = ::recvmsg(fd_, &message, 0);
            if (got < 0) break;
            ttl = std::min(ttl, ttl_of(message));
            const auto size = static_cast<std::uint32_t>(got) + (ipv4_ ? 28 : 48);
            if (std::find(seen.begin(), seen.end(), size) == seen.end()) seen.push_back(size);
        }
        std::sort(seen.begin(), seen.end());
        return {{"sizes", json::array(seen.begin(), seen.end())},
                {"ttl", ttl == unknown_ttl ? 0 : ttl}};
    }

private:
    static constexpr std::uint32_t unknown_ttl = 256;

    void set(int level, int option, int value) const {
        ::setsockopt(fd_, level, option, &value, sizeof value);
    }

    static std::uint32_t ttl_of(msghdr& message) {
        for (auto* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
            const bool v4 = c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TTL;
            const bool v6 = c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_HOPLIMIT;
            int ttl = 0;
            if (!v4 && !v6) continue;
            std::memcpy(&ttl, CMSG_DATA(c), sizeof ttl);
            return static_cast<std::uint32_t>(ttl);
        }
        return unknown_ttl;
    }

    std::pair<sockaddr_storage, socklen_t> socket_address(const std::string& text,
                                                          std::uint16_t port) const {
        sockaddr_storage storage{};
        if (ipv4_) {
            auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
            v4->sin_family = AF_INET;
            v4->sin_port = htons(port);
            ::inet_pton(AF_INET, text.c_str(), &v4->sin_addr);
            return {storage, static_cast<socklen_t>(sizeof(sockaddr_in))};
        }
        auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        const auto scope = text.find('%');
        if (scope != std::string::npos)
            v6->sin6_scope_id = ::if_nametoindex(text.c_str() + scope + 1);
        ::inet_pton(AF_INET6, text.substr(0, scope).c_str(), &v6->sin6_addr);
        return {storage, static_cast<socklen_t>(sizeof(sockaddr_in6))};
    }

    bool ipv4_;
    int fd_ = -1;
    std::uint16_t port_ = 0;
};

/// The counters that tell of frames' sizes and priorities.
bool tells_of_frames(std::string_view name) {
    if (name == "rx_oversize_pkts_phy" || name == "rx_out_of_range_len_phy") return true;
    return (name.starts_with("rx_prio") || name.starts_with("tx_prio")) &&
           name.ends_with("_packets");
}

/// Every GID of every active port, with what is around it.
json::array end_points(const inventory::facts& facts) {
    json::array all;
    for (const auto& d : facts.devices) {
        for (const auto& p : d.ports) {
            if (p.state != "ACTIVE" || !d.in_libibverbs || d.node_type == "RNIC") continue;
            for (const auto& g : ranked(facts, p)) {
                end_point e{.host = facts.host.name,
                            .device = d.name,
                            .driver = d.driver,
                            .port = p.number,
                            .link_layer = p.link_layer,
                            .lid = p.lid,
                            .gid = g.entry->gid,
                            .index = g.entry->index,
                            .type = g.entry->type,
                            .netdev = g.entry->netdev,
                            .port_netdev = p.netdev,
                            .active_mtu_bytes = p.active_mtu_bytes,
                            .rank = g.rank,
                            .reason = std::string(g.reason)};
                e.max_read_depth = d.max_read_depth, e.pkeys = p.pkeys;
                e.rate_mbps = p.rate_mbps, e.max_mtu_bytes = p.max_mtu_bytes;
                if (const auto* own = facts.find_netdev(e.netdev)) {
                    e.netdev_mtu_bytes = own->mtu_bytes, e.mac = own->mac;
                    for (const auto& a : own->addresses) {
                        if (a.text == e.gid) e.prefix = a.prefix;
                    }
                }
                if (const auto* under = facts.find_netdev(p.netdev))
                    e.port_netdev_mtu_bytes = under->mtu_bytes;
                all.push_back(to_json(e));
            }
        }
    }
    return all;
}

/// What doctor finds wrong from the facts alone: it tries no device out while probes run.
json::array failing(const inventory::facts& facts) {
    constexpr std::uint64_t nothing_to_register = 0;
    json::array all;
    for (const auto& f : judge(facts, {}, nothing_to_register)) {
        if (f.outcome != outcome::fail) continue;
        all.push_back(to_json(doctor_seen{f.id, f.subject, f.message}));
    }
    return all;
}

class local_end final : public check_end {
public:
    json::object ask(const json::object& request) override {
        try {
            const auto what = string_of(request, "ask");
            if (what == "facts") return facts();
            if (what == "make") return make(request);
            if (what == "connect") return connect(request);
            if (what == "read") return read(request);
            if (what == "counters") return {{"counters", counters()}};
            if (what == "close") return close();
            if (what == "udp_open") return open_datagrams(request);
            if (what == "udp_send") return send_datagrams(request);
            if (what == "udp_result")
                return datagrams_ ? datagrams_->received() : json::object{{"sizes", json::array()}};
            if (what == "cm_listen") return listen_cm(request);
            if (what == "cm_connect") return connect_cm(request);
            if (what == "cm_result") return accepted_cm();
            if (what == "neighbour") return neighbour(request);
            if (what == "route") return route(request);
            if (what == "port_counters") return port_counters(string_of(request, "netdev"));
            return {{"error", "no such request: " + what}};
        } catch (const std::exception& e) {
            return {{"error", e.what()}};
        }
    }

private:
    json::object facts() {
        auto f = inventory::from_files("/");
        inventory::add_live(f);
        return {{"host", f.host.name},
                {"ends", end_points(f)},
                {"doctor", failing(f)},
                {"firewall", f.host.firewall},
                {"addresses", addresses(f)}};
    }
    /// Which netdev has an address: for the control connection.
    static json::object addresses(const inventory::facts& f) {
        json::object all;
        for (const auto& n : f.netdevs) {
            for (const auto& a : n.addresses) all[a.text] = n.name;
        }
        return all;
    }

    /// A client of an older version names no netdev.
    static json::object neighbour(const json::object& request) {
        const auto* netdev = request.if_contains("netdev");
        const auto known =
            inventory::neighbour_of(string_of(request, "address"),
                                    netdev == nullptr ? "" : std::string(netdev->as_string()));
        return {{"mac", known.mac}};
    }
    /// "error" is for requests that fail; that there is no route is an answer.
    static json::object route(const json::object& request) {
        const auto to = string_of(request, "to");
        const auto* from = request.if_contains("from");  // not of an older version
        const auto found =
            inventory::route_to(with_scope(to, string_of(request, "netdev")),
                                from == nullptr ? "" : std::string(from->as_string()));
        if (!found) return {{"none", found.error().detail}};
        const auto next_hop = found->local ? inventory::neighbour() : next_hop_of(to, *found);
        return {{"local", found->local},     {"netdev", found->netdev}, {"source", found->source},
                {"gateway", found->gateway}, {"mac", next_hop.mac},     {"state", next_hop.state}};
    }
    /// Where the kernel does not know that it answers, it asks once more as soon as somebody sends;
    /// some states only say for seconds yet that it has not asked.
    static inventory::neighbour next_hop_of(const std::string& to,
                                            const inventory::kernel_route& way) {
        const auto& hop = way.gateway.empty() ? to : way.gateway;
        auto known = inventory::neighbour_of(hop, way.netdev);
        if (inventory::known_to_answer(known.state)) return known;
        static_cast<void>(datagrams(with_scope(way.source, way.netdev))
                              .send(with_scope(to, way.netdev), discard_port, {shortest_packet}));
        const auto until = std::chrono::steady_clock::now() + 1s;
        do {
            std::this_thread::sleep_for(50ms);  // nothing tells of it without a privilege
            known = inventory::neighbour_of(hop, way.netdev);
        } while (!inventory::known_to_answer(known.state) &&
                 std::chrono::steady_clock::now() < until);
        return known;
    }
    static json::object port_counters(const std::string& netdev) {
        inventory::netdev port{.name = netdev};
        inventory::add_ethtool(port);
        json::object all;
        for (const auto& [name, value] : port.counters) {
            if (tells_of_frames(name)) all[name] = value;
        }
        return {{"counters", all}};
    }

    json::object make(const json::object& request) {
        probe_.reset();
        from_json(request.at("end"), at_);
        seed_ = static_cast<std::uint32_t>(number_of(request, "seed"));
        if (!device_ || device_->facts().name != at_.device) {
            auto opened = fabric::make_verbs_provider()->open(at_.device);
            if (!opened) return {{"error", error_name(opened.error())}};
            device_ = std::move(*opened);
        }
        auto made =
            fabric::probe_end::make(*device_, static_cast<std::uint8_t>(at_.port), probe_bytes);
        if (!made) return {{"error", error_name(made.error())}};
        probe_ = std::move(*made);
        probe_->fill(seed_);
        return {{"number", probe_->queue_pair_number()},
                {"address", probe_->address()},
                {"key", probe_->remote_key()}};
    }

    json::object connect(const json::object& request) {
        fabric::receive_parameters p;
        p.peer.number = static_cast<std::uint32_t>(number_of(request, "number"));
        p.peer.starting_psn = starting_psn;
        p.peer.gid = gid_of(string_of(request, "gid")).bytes;
        p.peer.lid = static_cast<std::uint16_t>(number_of(request, "lid"));
        p.path_mtu = p.peer.path_mtu = static_cast<std::uint32_t>(number_of(request, "mtu"));
        p.peer.read_depth = p.responder_depth = 1;
        p.gid_index = at_.index;
        if (!probe_) return {{"error", "no probe"}};
        auto retry = probe_retry;
        if (request.contains("timeout_exponent")) {
            retry.timeout_exponent = static_cast<std::uint8_t>(std::min<std::uint64_t>(
                number_of(request, "timeout_exponent"), longest_timeout_exponent));
        }
        const auto done = probe_->connect(p, starting_psn, retry);
        if (!done) return {{"error", error_name(done.error())}};
        return {{"hop_limit", p.hop_limit}};
    }

    json::object read(const json::object& request) {
        if (!probe_) return {{"error", "no probe"}};
        const auto bytes = static_cast<std::uint32_t>(
            std::min<std::uint64_t>(number_of(request, "bytes"), probe_bytes));
        const auto times = std::min<std::uint64_t>(number_of(request, "times"), 1'000'000);
        const auto until =
            std::chrono::steady_clock::now() + std::chrono::milliseconds(std::min<std::uint64_t>(
                                                   number_of(request, "limit_ms"), 30'000));
        fabric::probe_end::outcome o;
        std::uint64_t done = 0;
        std::vector<std::int64_t> took;
        do {
            o = probe_->read(number_of(request, "address"),
                             static_cast<std::uint32_t>(number_of(request, "key")), bytes,
                             static_cast<std::uint32_t>(number_of(request, "seed")), 3000ms);
            ++done;
            took.push_back(o.took.count());
        } while (o.ok() && done < times && std::chrono::steady_clock::now() < until);
        const auto middle = took.begin() + static_cast<std::ptrdiff_t>(took.size() / 2);
        std::nth_element(took.begin(), middle, took.end());
        return {{"median_us", *middle},
                {"status", o.status ? to_string(*o.status) : std::string_view("no completion")},
                {"wrong", o.wrong_bytes},
                {"written", o.written},
                {"done", done}};
    }

    json::object listen_cm(const json::object& request) {
        accepted_ = {};
        if (!probe_) return {{"error", "no probe"}};
        auto made = fabric::cm_end::listen(string_of(request, "gid"));
        if (!made) return {{"error", made.error().detail}};
        const auto port = (*made)->port();
        // Beside the requests: the other end's attempt and this one meet in time.
        accepted_ = std::async(std::launch::async,
                               [end = std::move(*made), number = probe_->queue_pair_number()] {
                                   return end->accept(number, cm_step_limit);
                               });
        return {{"port", port}};
    }
    json::object accepted_cm() {
        if (!accepted_.valid()) return {{"error", "does not listen"}};
        const auto done = accepted_.get();
        return done ? json::object{} : json::object{{"error", done.error().detail}};
    }
    json::object connect_cm(const json::object& request) {
        if (!probe_) return {{"error", "no probe"}};
        auto made = fabric::cm_end::make();
        if (!made) return {{"error", made.error().detail}};
        const auto done = (*made)->connect(string_of(request, "own"), string_of(request, "to"),
                                           static_cast<std::uint16_t>(number_of(request, "port")),
                                           probe_->queue_pair_number(), cm_step_limit);
        if (!done) return {{"error", done.error().detail}};
        return {{"mtu", done->path_mtu_bytes}, {"ms", done->took.count()}};
    }

    json::object close() {
        accepted_ = {};
        probe_.reset();
        datagrams_.reset();
        return {};
    }

    json::object open_datagrams(const json::object& request) {
        datagrams_ = std::make_unique<datagrams>(string_of(request, "gid"));
        if (datagrams_->port() == 0) return {{"error", "cannot bind a datagram socket"}};
        return {{"port", datagrams_->port()}};
    }
    json::object send_datagrams(const json::object& request) {
        if (!datagrams_) return {{"error", "no datagram socket"}};
        return {{"refused", datagrams_->send(string_of(request, "to"),
                                             static_cast<std::uint16_t>(number_of(request, "port")),
                                             request.at("sizes").as_array())}};
    }

    [[nodiscard]] json::value counters() const {
        const auto port = std::filesystem::path("/sys/class/infiniband") / at_.device / "ports" /
                          std::to_string(at_.port) / "hw_counters";
        return to_json(inventory::read_counters_now(std::span(&port, 1)).front());
    }

    std::shared_ptr<fabric::device> device_;
    end_point at_;
    std::uint32_t seed_ = 0;
    std::unique_ptr<fabric::probe_end> probe_;
    std::unique_ptr<datagrams> datagrams_;
    std::future<result<void>> accepted_;
};

}  // namespace

std::unique_ptr<check_end> make_local_end() { return std::make_unique<local_end>(); }

}  // namespace rvget::diag
