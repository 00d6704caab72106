// rvget route: which device, port and GID would be used towards a peer, and why not the others.

#include <string>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "api/explain.hpp"
#include "commands.hpp"
#include "console.hpp"
#include "fabric/fabric.hpp"
#include "route_pins.hpp"

namespace rvget::tools {
namespace {

constexpr int nothing_usable = 2, not_known = 3;

constexpr exit_convention route_exits{static_cast<int>(exit_status::diagnostic_usage),
                                      "Exit status:\n"
                                      "  0  there is a choice\n"
                                      "  2  RDMA cannot be used towards PEER\n"
                                      "  3  PEER does not resolve, or the kernel has no route\n"
                                      "  64  usage\n"};

std::string describe(const route_candidate& c) {
    auto text = c.device;
    if (c.port != 0) text += " port " + std::to_string(c.port);
    if (!c.gid.empty()) {
        text.append(" GID ").append(c.gid);
        text.append(" (index ").append(std::to_string(c.gid_index)).append(", ").append(c.type);
        if (!c.netdev.empty()) text.append(", ").append(c.netdev);
        text.append(", MTU ").append(std::to_string(c.mtu_bytes)).append(")");
    }
    return text.append(": ").append(c.reason);
}

std::string as_text(const route_explanation& e) {
    auto text = e.peer;
    if (e.local) text += " is this machine,";
    text.append(" from ").append(e.source).append(" by ").append(e.netdev);
    if (!e.gateway.empty()) text.append(" over ").append(e.gateway);
    for (const auto& c : e.candidates) {
        text.append(&c == e.winner() ? "\n* " : c.usable ? "\n  " : "\n- ").append(describe(c));
    }
    if (!e.refusal.empty()) text.append("\nno RDMA: ").append(e.refusal);
    return text;
}

boost::json::object as_json(const route_explanation& e, int status) {
    boost::json::array candidates;
    for (const auto& c : e.candidates) {
        boost::json::object one{
            {"device", c.device},       {"port", c.port},     {"gid", nullptr},
            {"gid_index", nullptr},     {"type", c.type},     {"netdev", c.netdev},
            {"mtu_bytes", c.mtu_bytes}, {"usable", c.usable}, {"chosen", &c == e.winner()},
            {"reason", c.reason}};
        if (!c.gid.empty()) {
            one["gid"] = c.gid;
            one["gid_index"] = c.gid_index;
        }
        candidates.push_back(std::move(one));
    }
    return {{"schema", "rvget.route/1"},
            {"peer", e.peer},
            {"local", e.local},
            {"source", e.source},
            {"netdev", e.netdev},
            {"gateway", e.gateway},
            {"candidates", std::move(candidates)},
            {"refusal", e.refusal},
            {"exit", status}};
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
    add_route_pins(line);
    if (const auto status = line.parse(given)) return *status;
    if (line.operands().size() != 1) return line.wrong("give one PEER");
    const auto pins = read_route_pins(line);
    if (!pins) return line.wrong(sentence_of(pins.error()));

    const auto refuse = [&](const failure& f) {
        return report_error(static_cast<exit_status>(not_known), sentence_of(f), line.json());
    };
    const auto devices = fabric::make_verbs_provider()->list();
    const auto told = explain_route(line.operands().front(), [&](const route::control_path& way) {
        if (devices) {
            return route::choose(*devices, way,
                                 {.device = pins->device,
                                  .gid = route::parse_gid(pins->gid),
                                  .gid_index = pins->gid_index});
        }
        route::choice none;
        none.refusal = devices.error().message();
        return none;
    });
    if (!told) return refuse(told.error());
    const int status = told->winner() != nullptr ? 0 : nothing_usable;
    const auto printed = print_line(
        stdout, line.json() ? boost::json::serialize(as_json(*told, status)) : as_text(*told));
    return printed ? status : refuse(printed.error());
}

}  // namespace rvget::tools
