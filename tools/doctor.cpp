// rvget doctor: is this machine fit for RDMA, and if not, why.

#include <fstream>
#include <sstream>
#include <thread>

#include <boost/json/serialize.hpp>

#include <rvget/config.hpp>

#include "commands.hpp"
#include "console.hpp"
#include "diag/described.hpp"
#include "diag/table.hpp"
#include "diag/trial.hpp"
#include "diagnosis.hpp"
#include "fabric/fabric.hpp"
#include "fabric/inventory/collect.hpp"
#include "output_file.hpp"

namespace rvget::tools {
namespace {

using namespace std::chrono_literals;

struct doctor_settings {
    diag::expectations expected;
    std::uint64_t budget_bytes = 0;
    std::chrono::milliseconds watch{0};
    std::string save;
};

command_line describe() {
    command_line line("doctor [OPTION...]",
                      "Says for each RDMA device and port whether it can be used, or the first "
                      "reason why not and "
                      "the\ncommand that mends it; then everything else that is wrong or slow. "
                      "Changes nothing and "
                      "needs no root.\nBefore a pair of machines is blamed, see `rvget check`.\n",
                      diagnostic_exits());
    add_report_options(line);
    add_facts_options(line);
    line.add("expect", "FILE",
             "what the machine should be: devices, pci, rate_mbps, mtu_bytes, "
             "firmware, gid_family (JSON; bandwidth_mbps is check's)");
    line.add("save", "FILE", "also write the facts to FILE, for a report of a fault");
    line.add("watch", "SECONDS", "judge how counters grow in that time");
    line.add("budget", "BYTES", "memory that will be registered (default 1G)");
    line.add("no-trial", nullptr, "make no queue pair and register nothing");
    return line;
}

int explain(const command_line& line, const std::string& id) {
    for (const auto& r : diag::rules()) {
        if (r.id != id) continue;
        const boost::json::object told{{"schema", "rvget.explain/1"},
                                       {"id", r.id},
                                       {"source", r.source},
                                       {"rule", r.holds},
                                       {"needs", r.needs}};
        const auto text = std::string(r.id) + "\n  from:  " + std::string(r.source) +
                          "\n  rule:  " + std::string(r.holds) +
                          (r.needs.empty() ? "" : "\n  needs: " + std::string(r.needs)) +
                          "\n  see docs/diagnostics.md";
        const auto printed = print_line(stdout, line.json() ? boost::json::serialize(told) : text);
        return printed ? 0 : 3;
    }
    return line.wrong("--explain '" + id + "' is no finding of doctor's");
}

result<doctor_settings> read(const command_line& line) {
    doctor_settings s;
    const auto budget = line.bytes("budget");
    const auto seconds = line.bytes("watch");
    if (!budget) return budget.error();
    if (!seconds) return seconds.error();
    s.budget_bytes = budget->value_or(node_options::from_environment().registered_budget_bytes);
    s.watch = std::chrono::seconds(std::min<std::uint64_t>(seconds->value_or(0), 86'400));
    if (s.watch > 0ms && wants_recorded(line)) {
        return failure{request_errc::invalid_argument, "--watch needs this machine's own counters"};
    }
    s.save = line.text("save").value_or("");
    if (line.has("save")) {
        if (auto place = can_be_written(s.save); !place) {
            return failure{place.error().code, "--save: " + sentence_of(place.error())};
        }
    }
    if (const auto file = line.text("expect")) {
        auto expected = diag::read_expectations(*file);
        if (!expected) {
            return failure{expected.error().code, "--expect: " + sentence_of(expected.error())};
        }
        s.expected = std::move(*expected);
    }
    return s;
}

/// What a get would run with, per device.
boost::json::array rendezvous_facts(const diag::inventory::facts& facts, std::uint64_t budget,
                                    std::vector<std::string>& lines) {
    boost::json::array all;
    for (const auto& d : facts.devices) {
        const auto* trial = d.trials.empty() ? nullptr : &d.trials.front();
        const bool region = trial != nullptr && trial->loop == "ok";
        const auto inline_bytes = trial == nullptr ? 0 : trial->inline_bytes;
        const auto* proven = trial == nullptr ? "not tried" : region ? "region" : "none";
        const auto path = d.fast_path.empty() ? "verbs" : d.fast_path;
        const auto& limit = facts.host.memlock_bytes;
        const auto memlock = facts.host.ipc_lock || !limit ? "unlimited" : std::to_string(*limit);
        all.push_back(boost::json::object{
            {"device", d.name},
            {"provider", d.driver},
            {"fast_path", path},
            {"fast_path_detail", d.fast_path_detail},
            {"lease_key_proven", proven},
            {"read_depth", d.max_read_depth},
            {"inline_bytes", inline_bytes},
            {"memlock_bytes", limit ? boost::json::value(*limit) : boost::json::value("unlimited")},
            {"memlock_counts", !facts.host.ipc_lock},
            {"budget_bytes", budget}});
        auto line = d.name + ": provider " + d.driver + " by " + path;
        if (!d.fast_path_detail.empty()) line.append(" (").append(d.fast_path_detail).append(")");
        line.append("; lease keys proven: ").append(proven);
        line.append("; READ depth ").append(std::to_string(d.max_read_depth));
        line.append("; inline ").append(std::to_string(inline_bytes));
        line.append("; memlock ").append(memlock);
        line.append(" of ").append(std::to_string(budget)).append(" wanted");
        lines.push_back(std::move(line));
    }
    return all;
}

void add_verdicts(diag::report& r, const diag::inventory::facts& facts) {
    boost::json::array all;
    for (const auto& v : diag::verdicts(facts, r.findings)) {
        all.push_back(boost::json::object{{"subject", v.subject},
                                          {"usable", v.usable},
                                          {"reason", v.reason},
                                          {"id", v.id},
                                          {"fix", v.fix}});
        r.lines.push_back(
            v.subject + ": " +
            (v.usable ? "usable for RDMA" : "NOT usable: " + v.reason + " [" + v.id + "]"));
        if (!v.usable && !v.fix.empty()) r.lines.push_back("     fix: " + v.fix);
    }
    r.facts["verdicts"] = std::move(all);
}

result<void> save(const std::string& file, const diag::inventory::facts& facts) {
    std::ofstream out(file, std::ios::trunc);
    out << boost::json::serialize(diag::to_value(facts)) << '\n';
    out.close();
    if (out) return {};
    return failure{request_errc::io, "cannot write " + file + "; see --save"};
}

diag::report report_on(diag::inventory::facts facts, const doctor_settings& s, bool masked) {
    if (masked) diag::redact(facts);
    diag::report r;
    r.tool = "doctor";
    r.host = facts.host.name;
    r.facts["ports"] = diag::device_list(facts);
    std::istringstream table(facts.devices.empty() ? "" : diag::device_table(facts, 4));
    for (std::string line; std::getline(table, line);) r.lines.push_back(line);
    r.facts["rendezvous"] = rendezvous_facts(facts, s.budget_bytes, r.lines);
    r.findings = diag::judge(facts, s.expected, s.budget_bytes);
    add_verdicts(r, facts);
    return r;
}

result<diag::report> examine(const command_line& line, const doctor_settings& s, progress& so_far) {
    so_far.doing("reading what the kernel tells");
    auto facts = collect_facts(line);
    if (!facts) return facts.error();
    const bool masked = line.has("redact");
    // What is known without touching a device comes first: touching may take long.
    so_far.publish(report_on(*facts, s, masked));

    if (!wants_recorded(line) && !line.has("no-trial")) {
        so_far.doing("trying the devices out (see --no-trial)");
        diag::try_devices(*fabric::make_provider(node_options::from_environment().mlx5), *facts);
    }
    if (s.watch > 0ms) {
        so_far.doing("watching the counters (--watch)");
        std::this_thread::sleep_for(s.watch);
        diag::inventory::add_growth(*facts, static_cast<std::uint64_t>(s.watch.count()));
    }
    if (masked) diag::redact(*facts);
    if (!s.save.empty()) {
        if (auto saved = save(s.save, *facts); !saved) return saved.error();
    }
    return report_on(*facts, s, false);
}

}  // namespace

int doctor(const arguments& given) {
    auto line = describe();
    if (const auto status = line.parse(given)) return *status;
    if (const auto id = line.text("explain")) return explain(line, *id);
    const auto s = read(line);
    if (!s) return line.wrong(sentence_of(s.error()));
    std::vector<std::string_view> ids;
    for (const auto& r : diag::rules()) ids.push_back(r.id);
    const auto shown =
        read_report_options(line, {.tool = "doctor", .ids = ids, .timeout = 20s + s->watch});
    if (!shown) return line.wrong(sentence_of(shown.error()));
    diag::report first;
    first.tool = "doctor";
    return run_diagnosis(*shown, std::move(first),
                         [&](progress& so_far) { return examine(line, *s, so_far); });
}

}  // namespace rvget::tools
