// rvget route: which device, port and GID would be used towards a peer, and why not the others.

#include <charconv>
#include <cstdint>
#include <string>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "commands.hpp"
#include "console.hpp"
#include "fabric/fabric.hpp"
#include "fabric/inventory/kernel_route.hpp"
#include "route/choose.hpp"

namespace rvget::tools {
namespace {

using fabric::inventory::kernel_route;

constexpr int nothing_usable = 2, not_known = 3;

constexpr exit_convention route_exits{static_cast<int>(exit_status::diagnostic_usage),
                                      "Exit status:\n"
                                      "  0  there is a choice\n"
                                      "  2  RDMA cannot be used towards PEER\n"
                                      "  3  PEER does not resolve, or the kernel has no route\n"
                                      "  64  usage\n"};

std::string_view type_of(const route::candidate& c) noexcept {
    if (c.entry.gid.is_zero()) return "none";
    switch (c.entry.type) {
        case route::gid_type::roce_v1:
            return "RoCE v1";
        case route::gid_type::roce_v2:
            return "RoCE v2";
        case route::gid_type::iwarp:
            return "iWARP";
        case route::gid_type::infiniband:
            break;
    }
    return "InfiniBand";
}

std::string describe(const route::candidate& c) {
    auto text = c.device;
    if (c.port != 0) text += " port " + std::to_string(c.port);
    if (!c.entry.gid.is_zero()) {
        text.append(" GID ").append(c.entry.gid.to_string()).append(" (index ");
        text.append(std::to_string(c.entry.index)).append(", ").append(type_of(c));
        if (!c.entry.netdev.empty()) text.append(", ").append(c.entry.netdev);
        text.append(", MTU ").append(std::to_string(c.active_mtu)).append(")");
    }
    return text.append(": ").append(c.reason);
}

std::string as_text(const std::string& peer, const kernel_route& way, const route::choice& choice) {
    auto text = peer;
    if (way.local) text += " is this machine,";
    text.append(" from ").append(way.source).append(" by ").append(way.netdev);
    if (!way.gateway.empty()) text.append(" over ").append(way.gateway);
    for (const auto& c : choice.candidates) {
        text.append(&c == choice.winner() ? "\n* "
                    : c.usable            ? "\n  "
                                          : "\n- ")
            .append(describe(c));
    }
    if (!choice.refusal.empty()) text.append("\nno RDMA: ").append(choice.refusal);
    return text;
}

boost::json::object as_json(const std::string& peer, const kernel_route& way,
                            const route::choice& choice, int status) {
    boost::json::array candidates;
    for (const auto& c : choice.candidates) {
        boost::json::object one{
            {"device", c.device},        {"port", c.port},     {"gid", nullptr},
            {"gid_index", nullptr},      {"type", type_of(c)}, {"netdev", c.entry.netdev},
            {"mtu_bytes", c.active_mtu}, {"usable", c.usable}, {"chosen", &c == choice.winner()},
            {"reason", c.reason}};
        if (!c.entry.gid.is_zero()) {
            one["gid"] = c.entry.gid.to_string();
            one["gid_index"] = c.entry.index;
        }
        candidates.push_back(std::move(one));
    }
    return {{"schema", "rvget.route/1"},
            {"peer", peer},
            {"local", way.local},
            {"source", way.source},
            {"netdev", way.netdev},
            {"gateway", way.gateway},
            {"candidates", std::move(candidates)},
            {"refusal", choice.refusal},
            {"exit", status}};
}

result<route::pins> pins_of(const command_line& line) {
    route::pins pins{.device = line.text("device").value_or("")};
    if (const auto text = line.text("gid-index")) {
        std::uint32_t index = 0;
        const auto* const end = text->data() + text->size();
        if (std::from_chars(text->data(), end, index).ptr != end || text->empty()) {
            return failure{request_errc::invalid_argument,
                           "--gid-index '" + *text +
                               "' is no place of a GID table; give a number, "
                               "such as 1"};
        }
        pins.gid_index = index;
    }
    if (const auto text = line.text("gid")) {
        pins.gid = route::parse_gid(*text);
        if (!pins.gid) {
            return failure{request_errc::invalid_argument,
                           "--gid '" + *text + "' is no address; copy one of `rvget list`"};
        }
    }
    return pins;
}

}  // namespace

int show_route(const arguments& given) {
    command_line line(
        "route [OPTION...] PEER",
        "Shows which device, port and GID would be used towards PEER (a name or an\n"
        "address), and of every other why it lost: '*' is chosen, '-' cannot be used.\n"
        "Looks only; whether packets get through, `rvget check PEER` tells.\n",
        route_exits);
    line.take_operands("peer");
    line.add("device", "NAME", "consider this RDMA device only");
    line.add("gid", "ADDRESS", "consider this GID only");
    line.add("gid-index", "N", "consider this place of the GID table only; places move");
    if (const auto status = line.parse(given)) return *status;
    if (line.operands().size() != 1) return line.wrong("give one PEER");
    const auto pins = pins_of(line);
    if (!pins) return line.wrong(sentence_of(pins.error()));

    const auto refuse = [&](const failure& f) {
        return report_error(static_cast<exit_status>(not_known), sentence_of(f), line.json());
    };
    const auto addresses = fabric::inventory::resolve(line.operands().front());
    if (!addresses) return refuse(addresses.error());
    const auto& peer = addresses->front();
    const auto way = fabric::inventory::route_to(peer);
    if (!way) return refuse(way.error());
    const auto devices = fabric::make_verbs_provider()->list();
    route::choice choice;
    if (devices) {
        choice = route::choose(*devices, {way->source, peer}, *pins);
    } else {
        choice.refusal = devices.error().message();
    }
    const int status = choice.winner() != nullptr ? 0 : nothing_usable;
    const auto printed =
        print_line(stdout, line.json() ? boost::json::serialize(as_json(peer, *way, choice, status))
                                       : as_text(peer, *way, choice));
    return printed ? status : refuse(printed.error());
}

}  // namespace rvget::tools
