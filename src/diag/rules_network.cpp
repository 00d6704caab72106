// net.*: the network device under a RoCE port.

#include <arpa/inet.h>

#include <cmath>

#include "diag/judgement.hpp"
#include "route/mtu.hpp"

namespace rvget::diag {

namespace {

constexpr std::uint32_t largest_step = 4096;

std::uint32_t needed(const subject& s, std::uint32_t step = largest_step) {
    return route::netdev_mtu_for_path(s.device->driver, step);
}
std::string set_mtu(const std::string& netdev, std::uint32_t mtu) {
    return "ip link set " + netdev + " mtu " + text(mtu);
}

judgement mapped(const subject& s) {
    const auto& p = *s.port;
    if (!is_roce(p)) return skip("RoCE only");
    if (!p.netdev.empty() && !p.netdev_elsewhere && s.net != nullptr) return pass(p.netdev);
    if (p.netdev_elsewhere) {
        return fail(
            "its netdev " + (p.netdev.empty() ? "" : p.netdev + " ") +
                "is in another network namespace",
            {"docker run --network=host ...", "rdma dev set " + s.device->name + " netns PID"},
            p.netdev);
    }
    return fail("no netdev for this port: its Ethernet driver is not bound",
                {"rdma link show " + s.device->name, "dmesg | grep -i " + s.device->driver});
}

judgement up(const subject& s) {
    const auto& n = *s.net;
    if (n.up && n.carrier) return pass();
    return fail(n.name + (n.up ? " has no carrier" : " is down"),
                {n.up ? "ethtool " + n.name + "  # the cable, and the port at its other end"
                      : "ip link set " + n.name + " up"});
}

judgement mtu_active(const subject& s) {
    const auto& p = *s.port;
    if (p.active_mtu_bytes == 0) return skip("the device was not queried");
    auto wanted = route::path_mtu_for_netdev(s.device->driver, s.net->mtu_bytes);
    if (p.max_mtu_bytes != 0) wanted = std::min(wanted, p.max_mtu_bytes);
    if (p.active_mtu_bytes >= wanted) return pass(p.active_mtu_bytes);
    return warn(s.net->name + " has MTU " + text(s.net->mtu_bytes) + ", which gives " +
                    text(wanted) + ", but the port reports " + text(p.active_mtu_bytes),
                {set_mtu(s.net->name, s.net->mtu_bytes) + "  # again; else reload the driver"},
                p.active_mtu_bytes);
}

judgement mtu_step(const subject& s) {
    const auto mtu = s.net->mtu_bytes;
    for (const std::uint32_t step : {4096U, 2048U, 1024U, 512U}) {
        if (mtu < step || mtu >= needed(s, step)) continue;
        return warn(
            "MTU " + text(mtu) + " gives only " + text(step / 2) + ": " + text(needed(s, step)) +
                " is needed for " + text(step),
            {set_mtu(s.net->name, step + 104), set_mtu(s.net->name, 9000) + "  # site-wide"}, mtu);
    }
    return pass(mtu);
}

judgement mtu_default(const subject& s) {
    if (s.net->mtu_bytes != 1500) return pass(s.net->mtu_bytes);
    return warn("MTU 1500 gives a path MTU of 1024: correct, but four times the packets of 4096",
                {set_mtu(s.net->name, 9000) + "  # on every host and switch port at once"}, 1500);
}

judgement mtu_mixed(const subject& s) {
    if (s.expected.mtu_bytes && *s.expected.mtu_bytes != s.net->mtu_bytes) {
        return fail("MTU " + text(s.net->mtu_bytes) + ", expected " + text(*s.expected.mtu_bytes),
                    {set_mtu(s.net->name, *s.expected.mtu_bytes)}, s.net->mtu_bytes);
    }
    for (const auto& d : s.facts.devices) {
        for (const auto& p : d.ports) {
            const auto* other = s.facts.find_netdev(p.netdev);
            if (!is_roce(p) || other == nullptr || other->mtu_bytes <= s.net->mtu_bytes) continue;
            return warn("MTU " + text(s.net->mtu_bytes) + " here, " + text(other->mtu_bytes) +
                            " on " + other->name + ": rails would differ",
                        {set_mtu(s.net->name, other->mtu_bytes)}, s.net->mtu_bytes);
        }
    }
    return pass(s.net->mtu_bytes);
}

judgement mtu_upper(const subject& s) {
    for (const auto& upper : s.facts.netdevs) {
        const auto& below = upper.lower;
        if (std::find(below.begin(), below.end(), s.net->name) == below.end()) continue;
        if (upper.mtu_bytes > s.net->mtu_bytes) {
            return fail(upper.name + " (" + text(upper.mtu_bytes) + ") is larger than " +
                            s.net->name + " (" + text(s.net->mtu_bytes) + ") beneath it",
                        {set_mtu(s.net->name, upper.mtu_bytes)}, upper.mtu_bytes);
        }
        const auto own = route::path_mtu_for_netdev(s.device->driver, s.net->mtu_bytes);
        const auto its = route::path_mtu_for_netdev(s.device->driver, upper.mtu_bytes);
        if (its < own) {
            return warn(upper.name + " (" + text(upper.mtu_bytes) + ") is on " + s.net->name +
                            " (" + text(s.net->mtu_bytes) + "): its GIDs announce " + text(own) +
                            ", of which only " + text(its) + " fits",
                        {set_mtu(upper.name, s.net->mtu_bytes)}, upper.mtu_bytes);
        }
    }
    return pass();
}

judgement mtu_ipv6(const subject& s) {
    if (s.net->mtu_bytes >= 1280) return pass(s.net->mtu_bytes);
    return warn("under MTU 1280 the kernel removes IPv6 addresses, and their GIDs with them",
                {set_mtu(s.net->name, 1500)}, s.net->mtu_bytes);
}

judgement address(const subject& s) {
    for (const auto& a : s.net->addresses) {
        if (!is_link_local(a.text)) return pass(a.text);
    }
    return fail("no routable address on " + s.net->name + ": only link-local GIDs",
                {"ip address add 192.0.2.1/24 dev " + s.net->name + "  # one of your own"});
}

/// The network part of an IPv4 address; nullopt for others.
std::optional<std::uint32_t> network_of(const inventory::address& a) {
    in_addr raw{};
    if (a.prefix == 0 || a.prefix > 31 || ::inet_pton(AF_INET, a.text.c_str(), &raw) != 1) {
        return std::nullopt;
    }
    return ntohl(raw.s_addr) & ~((1U << (32 - a.prefix)) - 1);
}

/// Another RDMA port's netdev with an address in the same subnet.
const inventory::netdev* neighbour_in_subnet(const subject& s) {
    for (const auto& d : s.facts.devices) {
        for (const auto& p : d.ports) {
            const auto* other = s.facts.find_netdev(p.netdev);
            if (other == nullptr || other == s.net) continue;
            for (const auto& theirs : other->addresses) {
                for (const auto& ours : s.net->addresses) {
                    const auto network = network_of(ours);
                    if (network && network == network_of(theirs)) return other;
                }
            }
        }
    }
    return nullptr;
}

judgement same_subnet(const subject& s) {
    const auto* other = neighbour_in_subnet(s);
    if (other == nullptr) return pass();
    return warn(s.net->name + " and " + other->name +
                    " have addresses in one subnet: replies may leave by the other port",
                {"sysctl net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2",
                 "ip rule add from ADDRESS table N  # or separate subnets"},
                other->name);
}

judgement reverse_path(const subject& s) {
    if (!s.net->rp_filter) return skip("no setting found");
    if (*s.net->rp_filter != 1 || neighbour_in_subnet(s) == nullptr) return pass(*s.net->rp_filter);
    return warn(
        "strict reverse path filtering with two ports in one subnet drops packets",
        {"sysctl net.ipv4.conf." + s.net->name + ".rp_filter=2 net.ipv4.conf.all.rp_filter=2"}, 1);
}

judgement duplicate(const subject& s) {
    for (const auto& a : s.net->addresses) {
        if (!a.duplicate) continue;
        return fail(
            "address " + a.text + " is in use by another host (duplicate address detection)",
            {"ip address del " + a.text + "/" + text(a.prefix) + " dev " + s.net->name}, a.text);
    }
    return pass();
}

judgement firewall(const subject& s) {
    const auto& rule = s.facts.host.firewall;
    if (rule.empty()) return skip("not looked at");
    if (rule.starts_with("unknown")) return skip(rule + "; see `nft list ruleset`");
    if (rule == "open") return pass(rule);
    return fail(
        "the packet filter drops RoCE (UDP 4791): " + rule,
        {"nft -a list ruleset | grep 4791  # then: nft delete rule FAMILY TABLE CHAIN handle N"},
        rule);
}

judgement flap(const subject& s) {
    const auto& h = s.facts.host;
    if (!s.net->carrier_changes) return skip("not counted");
    if (h.uptime_s < 1800) return skip("within 30 minutes of the boot links come and go");
    const double days = std::max(1.0, static_cast<double>(h.uptime_s) / 86'400);
    const auto changes = *s.net->carrier_changes;
    const double per_day = static_cast<double>(changes) / days;
    const auto words =
        "the link changed " + text(changes) + " times in " + text(std::lround(days)) + " days";
    const std::vector<std::string> fix{"ethtool -m " + s.net->name +
                                       "  # the module; then the cable"};
    if (per_day > 10) return fail(words, fix, changes);
    return per_day >= 3 ? warn(words, fix, changes) : pass(changes);
}

judgement pause(const subject& s) {
    const auto& n = *s.net;
    if (!n.pause_rx && !n.pfc_enabled) return skip("the driver has neither");
    const bool global = n.pause_rx.value_or(false) || n.pause_tx.value_or(false);
    const bool priority = n.pfc_enabled.value_or(0) != 0;
    if (global != priority) return pass(global ? "global" : "priority");
    if (global) {
        return warn("global pause and priority flow control are both on: they exclude each other",
                    {"ethtool -A " + n.name + " rx off tx off"});
    }
    return warn(
        "neither priority flow control nor global pause: a full switch buffer drops packets",
        {"dcb pfc set dev " + n.name + " prio-pfc all:off 3:on  # 3: your RoCE priority"});
}

judgement port_errors(const subject& s) {
    if (s.net->counters.empty()) return skip("the driver counts none");
    const auto grown = growth(s, s.net->growth,
                              {"rx_crc_errors_phy", "rx_symbol_err_phy", "rx_pcs_symbol_err_phy",
                               "link_down_events_phy"});
    const auto lost = growth(s, s.net->growth, {"rx_discards_phy", "tx_discards_phy"});
    if (!grown) return unwatched();
    if (*grown > 0) {
        return fail(text(*grown) + " symbol or CRC errors while watched: the cable or the module",
                    {"ethtool -S " + s.net->name + " | grep -E 'crc|symbol'"}, *grown);
    }
    if (*lost == 0) return pass(0);
    return warn(text(*lost) + " packets discarded while watched: congestion without flow control",
                {"dcb pfc show dev " + s.net->name}, *lost);
}

judgement oversize(const subject& s) {
    const auto names = {"rx_oversize_pkts_phy", "rx_out_of_range_len_phy"};
    const auto& c = s.net->counters;
    if (std::none_of(names.begin(), names.end(), [&](const auto* n) { return c.contains(n); })) {
        return skip("the driver does not count them");
    }
    const std::string what = "a neighbour sends larger frames than this port takes: MTU mismatch";
    const std::vector<std::string> fix{set_mtu(s.net->name, 9000) + "  # as the neighbour",
                                       "rvget check HOST"};
    const auto grown =
        growth(s, s.net->growth, {"rx_oversize_pkts_phy", "rx_out_of_range_len_phy"});
    if (grown.value_or(0) > 0)
        return fail(what + " (" + text(*grown) + " while watched)", fix, *grown);
    std::uint64_t ever = 0;
    for (const auto* name : names) {
        if (const auto found = c.find(name); found != c.end()) ever += found->second;
    }
    return ever > 0 ? warn(what + " (" + text(ever) + " since the driver was loaded)", fix, ever)
                    : pass(0);
}

judgement ring(const subject& s) {
    const auto& n = *s.net;
    if (!n.ring_rx || n.ring_rx_max.value_or(0) == 0)
        return skip("the driver has no rings to tell of");
    if (*n.ring_rx >= std::min(1024U, *n.ring_rx_max)) return pass(*n.ring_rx);
    return warn("receive ring of " + text(*n.ring_rx) + " of at most " + text(*n.ring_rx_max) +
                    " entries: bursts of the control connection are dropped",
                {"ethtool -G " + n.name + " rx " + text(std::min(8192U, *n.ring_rx_max))},
                *n.ring_rx);
}

judgement coalesce(const subject& s) {
    const auto& n = *s.net;
    if (!n.coalesce_rx_us) return skip("the driver does not coalesce");
    if (n.coalesce_adaptive.value_or(false) || *n.coalesce_rx_us <= 32)
        return pass(*n.coalesce_rx_us);
    return warn(
        "interrupts are held back " + text(*n.coalesce_rx_us) + " us: the control round trip waits",
        {"ethtool -C " + n.name + " adaptive-rx on"}, *n.coalesce_rx_us);
}

judgement offload(const subject& s) {
    if (!s.net->checksum_offload) return skip("the driver does not tell");
    if (*s.net->checksum_offload) return pass(true);
    return warn("receive checksum offload is off: the CPU checks every TCP byte",
                {"ethtool -K " + s.net->name + " rx on tx on tso on gro on"}, false);
}

judgement irq(const subject& s) {
    if (!s.net->irq_on_node) return skip("no interrupts of its own, or no NUMA node");
    if (*s.net->irq_on_node) return pass(true);
    return warn("interrupts of the NIC run on other NUMA nodes than its own",
                {"systemctl stop irqbalance && set_irq_affinity_bynode.sh " +
                 text(s.device->numa_node.value_or(0)) + " " + s.net->name},
                false);
}

}  // namespace

void add_network_rules(std::vector<rule>& table) {
    const auto roce = scope::roce;
    table.insert(
        table.end(),
        {
            {"net.mapped", scope::port, "", "RDMA netlink, sysfs",
             "fail: a RoCE port without netdev here", mapped},
            {"net.up", roce, "", "sysfs flags, carrier", "fail: down or no carrier", up},
            {"net.mtu_active", roce, "env.provider", "sysfs mtu, ibv_query_port",
             "warn: the port's active MTU is below what the netdev's MTU gives with this driver",
             mtu_active},
            {"net.mtu_step", roce, "", "sysfs mtu", "warn: just short of the next path MTU",
             mtu_step},
            {"net.mtu_default", roce, "", "sysfs mtu", "warn: 1500", mtu_default},
            {"net.mtu_mixed", roce, "", "sysfs mtu, --expect",
             "warn: other ports have more; fail: not the expected", mtu_mixed},
            {"net.mtu_upper", roce, "", "sysfs lower_*",
             "warn: VLAN, bond or bridge above has a smaller path MTU; fail: a larger MTU",
             mtu_upper},
            {"net.mtu_ipv6", roce, "", "sysfs mtu", "warn: under 1280", mtu_ipv6},
            {"net.address", roce, "", "getifaddrs, if_inet6", "fail: only link-local ones",
             address},
            {"net.same_subnet", roce, "", "addresses", "warn: two RDMA netdevs in one subnet",
             same_subnet},
            {"net.rp_filter", roce, "", "rp_filter", "warn: strict, with two netdevs in one subnet",
             reverse_path},
            {"net.duplicate_ip", roce, "", "if_inet6 flags",
             "fail: duplicate address detection failed", duplicate},
            {"net.firewall", scope::host, "", "nft list ruleset (root)",
             "fail: a rule drops UDP 4791", firewall},
            {"net.flap", roce, "", "carrier_changes, uptime",
             "warn: 3 changes a day; fail: more than 10", flap},
            {"net.pause", roce, "", "ethtool, DCB netlink", "warn: neither, or both", pause},
            {"net.errors", roce, "", "ethtool -S, --watch",
             "warn: discards grow; fail: CRC or symbol errors grow", port_errors},
            {"net.oversize", roce, "", "ethtool -S, --watch", "warn: not 0; fail: grows", oversize},
            {"net.ring", roce, "", "ethtool", "warn: receive ring under 1024 entries", ring},
            {"net.coalesce", roce, "", "ethtool", "warn: over 32 us and not adaptive", coalesce},
            {"net.offload", roce, "", "ethtool", "warn: receive checksums off", offload},
            {"net.irq", roce, "", "effective_affinity_list", "warn: off the NIC's NUMA node", irq},
        });
}

}  // namespace rvget::diag
