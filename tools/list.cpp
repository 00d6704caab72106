// rvget list: devices, ports, netdevs and GIDs in one short table.

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "commands.hpp"
#include "console.hpp"
#include "diag/table.hpp"
#include "diagnosis.hpp"

namespace rvget::tools {

int list(const arguments& given) {
    command_line line("list [OPTION...]",
                      "Shows every RDMA port with its netdev, MTUs and GIDs, the best GID first.\n"
                      "What is wrong with them, `rvget doctor` tells.\n",
                      diagnostic_exits());
    add_facts_options(line);
    line.add("gids", "N", "show at most N GIDs of a port (default 8)");
    if (const auto status = line.parse(given)) return *status;
    const auto most = line.bytes("gids");
    if (!most) return line.wrong(sentence_of(most.error()));
    auto facts = collect_facts(line);
    if (!facts) return line.wrong(sentence_of(facts.error()));
    if (line.has("redact")) diag::redact(*facts);
    auto shown = diag::device_table(*facts, most->value_or(8));
    shown.pop_back();
    if (line.json()) {
        shown = boost::json::serialize(boost::json::object{{"schema", "rvget.list/1"},
                                                           {"host", facts->host.name},
                                                           {"ports", diag::device_list(*facts)},
                                                           {"exit", 0}});
    } else if (facts->devices.empty()) {
        shown = "no RDMA device; `rvget doctor` says why";
    }
    const auto printed = print_line(stdout, shown);
    return printed ? 0 : report_error(static_cast<exit_status>(3), sentence_of(printed.error()));
}

}  // namespace rvget::tools
