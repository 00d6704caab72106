// gid.*: the table from which a queue pair gets its address.

#include <set>

#include "diag/judgement.hpp"

namespace rvget::diag {

namespace {

bool is_overlay(const subject& s, const std::string& netdev) {
    const auto* n = s.facts.find_netdev(netdev);
    const std::string kind = n == nullptr ? "" : n->kind;
    if (kind == "veth" || kind == "macvlan" || kind == "ipvlan" || kind == "tun") return true;
    return netdev.starts_with("docker") || netdev.starts_with("cni") ||
           netdev.starts_with("cali") || netdev.starts_with("flannel");
}

const ranked_gid* best(const std::vector<ranked_gid>& all) {
    return !all.empty() && all.front().rank > 0 ? all.data() : nullptr;
}

judgement any(const subject& s) {
    if (!s.port->gids.empty()) return pass(s.port->gids.size());
    if (s.port->foreign_gids > 0) {
        return fail(
            "all " + text(s.port->foreign_gids) + " GIDs belong to another network namespace",
            {"docker run --network=host ..."}, 0);
    }
    return fail("the GID table is empty",
                {"ip link set " + s.port->netdev + " up",
                 "ip address add 192.0.2.1/24 dev " + s.port->netdev + "  # one of your own"},
                0);
}

judgement v2(const subject& s) {
    const auto all = ranked(s.facts, *s.port);
    const bool has_v2 = std::any_of(all.begin(), all.end(),
                                    [](const auto& g) { return g.entry->type == "RoCE v2"; });
    const auto netdev = s.port->netdev;
    if (!has_v2) {
        return fail(
            "only RoCE v1 GIDs, which do not cross routers",
            {"cma_roce_mode -d " + s.device->name + " -p " + text(s.port->number) + " -m 2"});
    }
    const bool routable = std::any_of(all.begin(), all.end(), [](const auto& g) {
        return g.entry->type == "RoCE v2" && !is_link_local(g.entry->gid);
    });
    if (routable) return pass(all.front().entry->gid);
    return warn("only link-local RoCE v2 GIDs: peers must be on this link",
                {"ip address add 192.0.2.1/24 dev " + netdev + "  # one of your own"});
}

judgement missing(const subject& s) {
    for (const auto& a : s.net->addresses) {
        const bool there = std::any_of(s.port->gids.begin(), s.port->gids.end(),
                                       [&](const auto& g) { return g.gid == a.text; });
        // The kernel makes no GID of an address that duplicate detection refused.
        if (there || a.duplicate) continue;
        const auto again = a.text + "/" + text(a.prefix) + " dev " + s.net->name;
        return fail(a.text + " on " + s.net->name + " has no GID",
                    {"ip address del " + again, "ip address add " + again}, a.text);
    }
    return pass();
}

judgement stale(const subject& s) {
    for (const auto& g : s.port->gids) {
        const auto* n = s.facts.find_netdev(g.netdev);
        if (g.netdev.empty() || is_link_local(g.gid)) continue;  // made of the MAC, not an address
        if (n != nullptr) {
            const auto& a = n->addresses;
            if (std::any_of(a.begin(), a.end(), [&](const auto& one) { return one.text == g.gid; }))
                continue;
        }
        return fail("index " + text(g.index) + " is " + g.gid + ", an address that " + g.netdev +
                        " does not have (any more)",
                    {"ip address show dev " + g.netdev,
                     "rdma resource show qp dev " + s.device->name + "  # restart the owner"},
                    g.index);
    }
    return pass();
}

judgement v6_state(const subject& s) {
    for (const auto& a : s.net->addresses) {
        if (!a.tentative && !a.deprecated) continue;
        return warn(a.text + " is " +
                        (a.tentative ? "tentative: its GID exists before duplicate detection ended"
                                     : "deprecated"),
                    {"ip -6 address show dev " + s.net->name + "  # again in a second"}, a.text);
    }
    return pass();
}

judgement range(const subject& s) {
    const auto& gids = s.port->gids;
    const auto over =
        std::count_if(gids.begin(), gids.end(), [](const auto& g) { return g.index > 255; });
    if (over == 0) return pass();
    return warn(text(over) + " GIDs are at indices over 255, which no queue pair can name",
                {"ip address show dev " + s.port->netdev + "  # remove addresses that nobody uses"},
                over);
}

judgement pinned(const subject& s) {
    const auto& pins = s.facts.host.pins;
    if (pins.empty()) return skip("no GID index is pinned in the environment");
    const auto all = ranked(s.facts, *s.port);
    const auto* top = best(all);
    for (const auto& [name, value] : pins) {
        const auto index = static_cast<std::uint32_t>(std::strtoul(value.c_str(), nullptr, 10));
        const auto at = std::find_if(all.begin(), all.end(),
                                     [&](const auto& g) { return g.entry->index == index; });
        std::string pin = name;
        pin.append("=").append(value).append(" on ").append(s.device->name).append(" is ");
        const auto says = [&](std::string_view what, std::string_view why = {}) {
            std::string words = pin;
            words += what;
            if (top != nullptr) words += "; auto would take " + text(top->entry->index);
            return words.append(why);
        };
        const std::vector<std::string> fix{"unset " + name};
        if (at == all.end()) return fail(says("an empty entry"), fix, value);
        if (is_link_local(at->entry->gid) || at->entry->type != "RoCE v2") {
            return fail(says(at->reason), fix, value);
        }
        if (top != nullptr && at->rank != top->rank) {
            return warn(says(at->reason, " (" + std::string(top->reason) + ")"), fix, value);
        }
    }
    return pass();
}

judgement same_index(const subject& s) {
    std::set<std::uint32_t> indices;
    std::string where;
    for (const auto& d : s.facts.devices) {
        for (const auto& p : d.ports) {
            const auto all = ranked(s.facts, p);
            const auto* top = is_roce(p) ? best(all) : nullptr;
            if (top == nullptr) continue;
            indices.insert(top->entry->index);
            where += (where.empty() ? "" : ", ") + text(top->entry->index) + " on " + d.name;
        }
    }
    if (indices.size() < 2) return pass(where);
    return warn("the best GID index is " + where + ": never pin one number",
                {"unset NCCL_IB_GID_INDEX UCX_IB_GID_INDEX MC_GID_INDEX"}, where);
}

judgement operable(const subject& s) {
    std::string refused;
    bool any_ok = false;
    for (const auto& g : s.port->gids) {
        if (g.operable == "ok") any_ok = true;
        if (g.operable.empty() || g.operable == "ok") continue;
        if (refused.empty()) refused = "entry " + text(g.index) + ": " + g.operable;
    }
    if (refused.empty()) return any_ok ? pass() : skip("no address handle was tried");
    const std::vector<std::string> fix{"ip address show", "rvget list"};
    return any_ok ? warn(refused, fix) : fail("no GID can be used; " + refused, fix);
}

judgement overlay(const subject& s) {
    const auto all = ranked(s.facts, *s.port);
    const auto* top = best(all);
    if (top == nullptr || !is_overlay(s, top->entry->netdev)) return pass();
    return warn(
        "the best GID " + top->entry->gid + " belongs to an overlay (" + top->entry->netdev + ")",
        {"ip address show dev " + s.port->netdev + "  # give the physical netdev an address"},
        top->entry->netdev);
}

judgement family(const subject& s) {
    const auto& wanted = s.expected.gid_family;
    if (wanted.empty()) return skip("needs --expect FILE with gid_family");
    const auto all = ranked(s.facts, *s.port);
    const auto* top = best(all);
    if (top != nullptr && is_ipv4(top->entry->gid) == (wanted == "IPv4")) return pass(wanted);
    return fail("the best GID is not " + wanted, {"ip address show dev " + s.port->netdev});
}

judgement cm_mode(const subject& s) {
    const auto& mode = s.port->cm_mode;
    if (mode.empty()) return skip("needs root and configfs: cma_roce_mode -d " + s.device->name);
    if (mode == "RoCE v2") return pass(mode);
    return warn("RDMA-CM's default is " + mode,
                {"cma_roce_mode -d " + s.device->name + " -p " + text(s.port->number) + " -m 2"},
                mode);
}

}  // namespace

std::vector<ranked_gid> ranked(const inventory::facts& facts, const inventory::port& port) {
    const expectations none;
    const subject s{.facts = facts, .expected = none};
    std::vector<ranked_gid> all;
    for (const auto& g : port.gids) {
        ranked_gid r{.entry = &g};
        if (g.index > 255) {
            r.reason = "index over 255, which no queue pair can name";
        } else if (g.type == "RoCE v1") {
            r.reason = "RoCE v1, not routable";
        } else if (g.type == "iWARP") {
            r.rank = 4, r.reason = "a hardware address";
        } else if (is_overlay(s, g.netdev)) {
            r.rank = 1, r.reason = "of an overlay network";
        } else if (is_link_local(g.gid)) {
            r.rank = 2, r.reason = "link-local";
        } else if (!is_ipv4(g.gid)) {
            r.rank = 3, r.reason = g.type == "IB" ? "InfiniBand" : "global IPv6";
        } else {
            r.rank = 4, r.reason = "IPv4";
        }
        all.push_back(r);
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.rank > b.rank; });
    return all;
}

void add_gid_rules(std::vector<rule>& table) {
    const auto roce = scope::roce;
    table.insert(
        table.end(),
        {
            {"gid.any", scope::port, "port.state", "sysfs gids", "fail: the table is empty", any},
            {"gid.v2", roce, "gid.any", "sysfs gid_attrs/types",
             "warn: only link-local v2; fail: only v1", v2},
            {"gid.missing", roce, "gid.any", "addresses against the table",
             "fail: an address without GID", missing},
            {"gid.stale", roce, "gid.any", "table against addresses",
             "fail: a GID whose address is gone", stale},
            {"gid.v6_state", roce, "", "if_inet6 flags", "warn: tentative or deprecated", v6_state},
            {"gid.range", scope::port, "", "sysfs gids", "warn: indices over 255 in use", range},
            {"gid.pinned", roce, "gid.any", "NCCL_IB_GID_INDEX, UCX_IB_GID_INDEX, MC_GID_INDEX",
             "warn: another class than the best; fail: empty, link-local or v1", pinned},
            {"gid.same_index", scope::host, "dev.present", "the best GID of each port",
             "warn: at different indices", same_index},
            {"gid.operable", scope::port, "gid.any", "ibv_create_ah to itself",
             "warn: some refused; fail: all refused", operable},
            {"gid.overlay", roce, "gid.any", "kind and name of the netdev",
             "warn: the best GID is of an overlay", overlay},
            {"gid.family", roce, "gid.any", "--expect", "fail: the best GID is of another family",
             family},
            {"gid.cm_mode", roce, "", "configfs default_roce_mode (root)", "warn: not RoCE v2",
             cm_mode},
        });
}

}  // namespace rvget::diag
