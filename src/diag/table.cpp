#include "diag/table.hpp"

#include <array>

#include <boost/json/object.hpp>

#include "diag/judgement.hpp"

namespace rvget::diag {

namespace {

std::string padded(std::string text, std::size_t width) {
    if (text.size() < width) text.append(width - text.size(), ' ');
    return text + ' ';
}
std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }
std::string number_or_dash(std::uint32_t value) { return value == 0 ? "-" : text(value); }

}  // namespace

std::string device_table(const inventory::facts& facts, std::size_t most_gids) {
    std::string out;
    const auto row = [&](std::initializer_list<std::string> cells) {
        constexpr std::array widths{12, 8, 7, 12, 10, 5, 6, 5};
        std::size_t at = 0;
        for (const auto& cell : cells) {
            out += padded(cell, at < widths.size() ? static_cast<std::size_t>(widths[at]) : 0);
            ++at;
        }
        out.erase(out.find_last_not_of(' ') + 1);
        out += '\n';
    };
    row({"PORT", "STATE", "RATE", "NETDEV", "MTU", "PATH", "DRIVER", "NUMA", "PCI"});
    for (const auto& d : facts.devices) {
        for (const auto& p : d.ports) {
            const auto* n = facts.find_netdev(p.netdev);
            const auto numa = d.numa_node ? text(*d.numa_node) : std::string("-");
            row({d.name + "/" + text(p.number), or_dash(p.state),
                 p.rate_mbps == 0 ? "-" : text((p.rate_mbps + 500) / 1000) + "G", or_dash(p.netdev),
                 n == nullptr ? "-" : text(n->mtu_bytes), number_or_dash(p.active_mtu_bytes),
                 or_dash(d.driver), numa, or_dash(d.pci)});
            std::size_t shown = 0;
            for (const auto& g : ranked(facts, p)) {
                if (shown++ == most_gids) {
                    out += "  ... and " + text(p.gids.size() - most_gids) + " more GIDs\n";
                    break;
                }
                out += "  " + padded("gid " + text(g.entry->index), 8) +
                       padded(or_dash(g.entry->type), 8) + padded(g.entry->gid, 28) +
                       padded(or_dash(g.entry->netdev), 10) + std::string(g.reason) + '\n';
            }
        }
    }
    return out;
}

boost::json::array device_list(const inventory::facts& facts) {
    boost::json::array all;
    for (const auto& d : facts.devices) {
        for (const auto& p : d.ports) {
            const auto* n = facts.find_netdev(p.netdev);
            boost::json::array gids;
            for (const auto& g : ranked(facts, p)) {
                gids.push_back(boost::json::object{{"index", g.entry->index},
                                                   {"gid", g.entry->gid},
                                                   {"type", g.entry->type},
                                                   {"netdev", g.entry->netdev},
                                                   {"usable", g.rank > 0},
                                                   {"reason", g.reason}});
            }
            all.push_back(boost::json::object{{"device", d.name},
                                              {"port", p.number},
                                              {"state", p.state},
                                              {"driver", d.driver},
                                              {"link_layer", p.link_layer},
                                              {"rate_mbps", p.rate_mbps},
                                              {"netdev", p.netdev},
                                              {"netdev_mtu_bytes", n == nullptr ? 0 : n->mtu_bytes},
                                              {"active_mtu_bytes", p.active_mtu_bytes},
                                              {"pci", d.pci},
                                              {"gids", std::move(gids)}});
        }
    }
    return all;
}

}  // namespace rvget::diag
