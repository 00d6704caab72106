#include "route/choose.hpp"

#include <algorithm>
#include <string_view>
#include <tuple>

namespace rvget::route {

namespace {

/// An address-handle names its GID by an 8-bit index (sgid_index), while tables may be longer.
constexpr std::uint32_t max_gid_index = 255;

bool is_loopback(const gid& address) noexcept {
    if (address.is_ipv4_mapped()) return address.bytes[12] == 127;
    return std::all_of(address.bytes.begin(), address.bytes.end() - 1,
                       [](std::uint8_t b) { return b == 0; }) &&
           address.bytes.back() == 1;
}

std::string_view family_name(bool ipv4) noexcept { return ipv4 ? "IPv4" : "IPv6"; }

struct question {
    gid own;
    gid peer;
    bool loopback = false;
    const pins& wishes;
};

std::string index_text(const candidate& c) {
    return "GID " + c.entry.gid.to_string() + " at index " + std::to_string(c.entry.index);
}

/// Why `c` cannot be used at all; empty if it can.
std::string unusable_because(const candidate& c, port_state state, const question& q) {
    const auto& wishes = q.wishes;
    if (!wishes.device.empty() && c.device != wishes.device) {
        return "not the pinned device " + wishes.device;
    }
    if (state != port_state::active) {
        return "port " + std::to_string(c.port) + " is not active: check link and `ip link set up`";
    }
    if (c.entry.gid.is_zero()) return "the port has no GID: give its netdev an address";
    if (wishes.gid && c.entry.gid != *wishes.gid) {
        return "not the pinned GID " + wishes.gid->to_string();
    }
    if (wishes.gid_index && c.entry.index != *wishes.gid_index) {
        return "not the pinned GID index " + std::to_string(*wishes.gid_index);
    }
    // The GIDs of iWARP say nothing of addresses: RDMA-CM finds the way by those of the netdev.
    if (c.link_layer != link_layer::ethernet) return {};
    if (c.entry.index > max_gid_index) {
        return index_text(c) + " cannot be named by a queue pair (8-bit index): remove addresses";
    }
    const bool ipv4 = c.entry.gid.is_ipv4_mapped();
    if (!q.loopback && ipv4 != q.peer.is_ipv4_mapped()) {
        return std::string("the GID is ") + std::string(family_name(ipv4)) + ", the peer " +
               q.peer.to_string() + " is " + std::string(family_name(q.peer.is_ipv4_mapped()));
    }
    return {};
}

/// What makes one usable candidate better than another, the first member first.
struct rank {
    bool routable_type = false;  ///< RoCE v2 (or InfiniBand); v1 does not cross routers
    bool ipv4_on_loopback = false;
    bool own_address = false;
    bool routable_scope = false;
    std::uint32_t mtu = 0;

    [[nodiscard]] auto tie() const noexcept {
        return std::tie(routable_type, ipv4_on_loopback, own_address, routable_scope, mtu);
    }
};

rank rank_of(const candidate& c, const question& q) {
    return {.routable_type = c.entry.type != gid_type::roce_v1,
            .ipv4_on_loopback = q.loopback && c.entry.gid.is_ipv4_mapped(),
            .own_address = c.entry.gid == q.own,
            .routable_scope = !c.entry.gid.is_link_local(),
            .mtu = c.active_mtu};
}

std::string won_because(const candidate& c, const rank& r, const question& q) {
    std::string why = index_text(c);
    if (r.own_address) return why + " is the control connection's own address";
    if (q.loopback) return why + " suits a peer on this host";
    if (c.link_layer == link_layer::infiniband) return why + " is on an active InfiniBand port";
    if (c.link_layer == link_layer::iwarp) return why + " is on an active iWARP port";
    why += std::string(" is of the peer's family ") +
           std::string(family_name(c.entry.gid.is_ipv4_mapped()));
    why += r.routable_scope ? ", routable" : ", though link-local: the peer must be on this link";
    return why;
}

std::string lost_because(const rank& loser, const rank& winner, const candidate& c) {
    if (loser.routable_type != winner.routable_type) return "RoCE v1 comes after RoCE v2";
    if (loser.ipv4_on_loopback != winner.ipv4_on_loopback) return "IPv4 comes first on this host";
    if (loser.own_address != winner.own_address) {
        return "not the control connection's own address, which the winner is";
    }
    if (loser.routable_scope != winner.routable_scope) return "link-local comes last";
    if (loser.mtu != winner.mtu) {
        return "active MTU " + std::to_string(c.active_mtu) + " is below the winner's " +
               std::to_string(winner.mtu);
    }
    return "as good as the winner, which comes first in the list";
}

/// Every candidate of one device, with its port's state alongside.
template <class Visit>
void for_each_candidate(const device_facts& device, Visit&& visit) {
    candidate c{.device = device.name};
    if (device.ports.empty()) visit(c, port_state::down);
    for (const auto& port : device.ports) {
        c.port = port.number;
        c.active_mtu = port.active_mtu;
        c.lid = port.lid;
        c.link_layer = port.link_layer;
        c.entry = {};
        if (port.gids.empty()) visit(c, port.state);
        for (const auto& entry : port.gids) {
            c.entry = entry;
            visit(c, port.state);
        }
    }
}

std::string refusal_text(const choice& c, const question& q) {
    if (c.candidates.empty())
        return "this host has no RDMA device; see `ibv_devinfo -v` and `rdma link`";
    std::string text = "no usable GID towards " + q.peer.to_string() + ":";
    constexpr std::size_t shown = 4;  // a table may hold hundreds; that is no text for one line
    for (std::size_t i = 0; i < std::min(shown, c.candidates.size()); ++i) {
        const auto& one = c.candidates[i];
        text += " [" + one.device + "/" + std::to_string(one.port);
        if (!one.entry.gid.is_zero()) text += " " + one.entry.gid.to_string();
        text += "] " + one.reason + ";";
    }
    if (c.candidates.size() > shown) {
        text += " and " + std::to_string(c.candidates.size() - shown) + " more;";
    }
    return text + " see `ibv_devinfo -v` and `rdma link`";
}

}  // namespace

choice choose(std::span<const device_facts> devices, const control_path& control,
              const pins& wishes) {
    choice result;
    const auto own = parse_gid(control.own_address);
    const auto peer = parse_gid(control.peer_address);
    if (!own || !peer) {
        result.refusal = "'" + (own ? control.peer_address : control.own_address) +
                         "' is not an IPv4 or IPv6 address";
        return result;
    }
    const question q{*own, *peer, is_loopback(*own) || is_loopback(*peer), wishes};

    std::vector<candidate> unusable;
    for (const auto& device : devices) {
        for_each_candidate(device, [&](candidate c, port_state state) {
            c.reason = unusable_because(c, state, q);
            c.usable = c.reason.empty();
            (c.usable ? result.candidates : unusable).push_back(std::move(c));
        });
    }
    auto& usable = result.candidates;
    std::stable_sort(usable.begin(), usable.end(), [&](const candidate& a, const candidate& b) {
        return rank_of(b, q).tie() < rank_of(a, q).tie();
    });
    if (!usable.empty()) {
        const auto best = rank_of(usable.front(), q);
        usable.front().reason = won_because(usable.front(), best, q);
        for (auto c = usable.begin() + 1; c != usable.end(); ++c) {
            c->reason = lost_because(rank_of(*c, q), best, *c);
        }
    }
    const bool none = usable.empty();
    std::move(unusable.begin(), unusable.end(), std::back_inserter(result.candidates));
    if (none) result.refusal = refusal_text(result, q);
    return result;
}

}  // namespace rvget::route
