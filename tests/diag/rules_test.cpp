// The table of rules against recorded machines (tests/fixtures). Every rule has a case in which it
// does not hold and one in which it does; docs/diagnostics.md is what the table and the cases say.

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/test/unit_test.hpp>

#include "diag/described.hpp"
#include "diag/facts_file.hpp"
#include "diag/report.hpp"
#include "diag/rule.hpp"

namespace json = boost::json;
using namespace rvget::diag;

namespace {

const std::string source = RVGET_SOURCE_DIR;
constexpr std::uint64_t budget = std::uint64_t{1} << 30;

json::value fixture(const std::string& name) {
    return read_json(source + "/tests/fixtures/" + name).value();
}

/// The healthy machine with every member there, so that each can be changed.
json::value healthy() { return to_value(facts_from(fixture("healthy.json")).value()); }

inventory::facts with(const json::object& changes) {
    auto machine = healthy();
    for (const auto& [pointer, value] : changes) {
        json::error_code error;
        auto* at = machine.find_pointer(pointer, error);
        BOOST_REQUIRE_MESSAGE(at != nullptr, "no member " << std::string(pointer));
        *at = value;
    }
    return facts_from(machine).value();
}

expectations expected() {
    expectations e;
    e.devices = 3;
    e.pci = {"0000:3b:00.0", "0000:4b:00.0", "0000:5b:00.0"};
    e.rate_mbps = 400'000;
    e.mtu_bytes = 9000;
    e.gid_family = "IPv4";
    return e;
}

std::vector<finding> findings_of(const json::object& one) {
    const auto e = one.contains("expect") ? expectations{} : expected();
    return judge(with(one.at("set").as_object()), e, budget);
}

/// The finding that the case is about: the worst of its id.
const finding* worst(const std::vector<finding>& all, std::string_view id) {
    const finding* found = nullptr;
    for (const auto& f : all) {
        if (f.id == id && (found == nullptr || f.outcome > found->outcome)) found = &f;
    }
    return found;
}

std::string text(const json::value& v) { return std::string(v.as_string()); }

}  // namespace

BOOST_AUTO_TEST_SUITE(diag_rules)

BOOST_AUTO_TEST_CASE(healthy_machine_passes_every_rule_and_is_usable) {
    const auto facts = facts_from(healthy()).value();
    const auto all = judge(facts, expected(), budget);
    std::set<std::string> passed;
    for (const auto& f : all) {
        BOOST_TEST((f.outcome <= outcome::skip), f.id << " " << f.subject << ": " << f.message);
        if (f.outcome == outcome::pass) passed.insert(f.id);
    }
    for (const auto& r : rules()) {
        BOOST_TEST(passed.contains(std::string(r.id)), r.id << " passes nowhere");
    }
    for (const auto& v : verdicts(facts, all)) BOOST_TEST(v.usable, v.subject << ": " << v.reason);
    BOOST_TEST(exit_status_of(all, true, false) == 0);
}

BOOST_AUTO_TEST_CASE(each_rule_violated_gives_its_outcome_with_message_and_fix) {
    std::set<std::string> seen;
    const auto cases = fixture("rules.json");
    for (const auto& one : cases.as_array()) {
        const auto& c = one.as_object();
        const auto id = text(c.at("id"));
        seen.insert(id);
        const auto all = findings_of(c);
        const auto* f = worst(all, id);
        BOOST_REQUIRE_MESSAGE(f != nullptr, "no finding " << id);
        BOOST_TEST(to_string(f->outcome) == text(c.at("outcome")),
                   json::serialize(c) << " gave " << to_string(f->outcome) << ": " << f->message);
        if (f->outcome <= outcome::skip) continue;
        BOOST_TEST(!f->message.empty());
        BOOST_TEST(!f->fix.empty(), id << " has no fix");
        // Performance hints never fail the machine: only a failure may make it unusable.
        if (f->outcome == outcome::warn) {
            for (const auto& v : verdicts(with(c.at("set").as_object()), all)) {
                BOOST_TEST(v.id != id);
            }
        }
    }
    for (const auto& r : rules()) {
        BOOST_TEST(seen.contains(std::string(r.id)), r.id << " has no case that violates it");
    }
}

BOOST_AUTO_TEST_CASE(whole_machines_have_the_right_first_cause) {
    const auto machines = fixture("machines.json");
    for (const auto& one : machines.as_array()) {
        const auto& m = one.as_object();
        BOOST_TEST_CONTEXT(text(m.at("name"))) {
            const auto facts = with(m.at("set").as_object());
            const auto all = judge(facts, {}, budget);
            std::map<std::string, std::string> got;
            for (const auto& v : verdicts(facts, all)) got[v.subject] = v.id;
            std::map<std::string, std::string> wanted;
            for (const auto& [subject, id] : m.at("verdicts").as_object()) {
                wanted[subject] = text(id);
            }
            BOOST_TEST(json::serialize(to_json(got)) == json::serialize(to_json(wanted)));
            for (const auto& [id, o] : m.at("findings").as_object()) {
                const auto* f = worst(all, id);
                BOOST_REQUIRE(f != nullptr);
                BOOST_TEST(to_string(f->outcome) == text(o), f->id << ": " << f->message);
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(recorded_soft_roce_guest_is_usable_with_the_driver_quirk) {
    const auto facts = facts_from(fixture("rxe.json")).value();
    const auto all = judge(facts, {}, budget);
    for (const auto& v : verdicts(facts, all)) BOOST_TEST(v.usable, v.reason);
    BOOST_TEST((worst(all, "dev.driver_quirk")->outcome == outcome::warn));
    BOOST_TEST((worst(all, "self.loop")->outcome == outcome::pass));
    BOOST_TEST((worst(all, "net.mtu_active")->outcome == outcome::pass));
    BOOST_TEST((worst(all, "gid.missing")->outcome == outcome::pass));
}

BOOST_AUTO_TEST_CASE(dependents_of_a_failure_are_skipped_not_judged) {
    const auto all = judge(with({{"/devices/0/ports/0/state", "DOWN"}}), expected(), budget);
    for (const auto& f : all) {
        if (f.subject == "mlx5_0/1" && (f.id == "self.alloc" || f.id == "self.loop")) {
            BOOST_TEST(to_string(f.outcome) == "skip");
        }
        if (f.subject == "mlx5_1/1") BOOST_TEST((f.outcome <= outcome::skip), f.id);
    }
}

BOOST_AUTO_TEST_CASE(address_that_rdma_cm_does_not_find_is_the_one_to_look_for) {
    const auto fix_with = [](const char* trials) {
        const auto all =
            judge(with({{"/devices/0/trials", json::parse(trials)}}), expected(), budget);
        return worst(all, "self.cm")->fix.back();
    };
    BOOST_TEST(fix_with(R"([{"port": 1, "gid": "10.0.0.1", "cm": "ok"},
                            {"port": 2, "gid": "10.0.0.2", "cm": "ENODEV"},
                            {"port": 1, "gid": "10.0.0.3", "cm": "ENODEV"}])") ==
               "ip route get 10.0.0.3");
    // Facts of an older version do not say which it was.
    BOOST_TEST(fix_with(R"([{"port": 1, "cm": "ENODEV"}])") == "ip route show table local");
}

BOOST_AUTO_TEST_CASE(ids_are_unique_and_their_needs_come_first) {
    std::set<std::string> seen;
    for (const auto& r : rules()) {
        BOOST_TEST(seen.insert(std::string(r.id)).second, r.id);
        BOOST_TEST((r.needs.empty() || seen.contains(std::string(r.needs))), r.id);
    }
}

BOOST_AUTO_TEST_CASE(facts_round_trip_and_older_ones_keep_defaults) {
    const auto value = healthy();
    BOOST_TEST(json::serialize(to_value(facts_from(value).value())) == json::serialize(value));
    const auto sparse = facts_from(json::parse(R"({"devices": [{"name": "x"}]})")).value();
    BOOST_TEST(sparse.devices.at(0).name == "x");
    BOOST_TEST(sparse.host.open_files == 0);
}

BOOST_AUTO_TEST_CASE(facts_of_the_wrong_kind_are_refused_with_the_member) {
    for (const auto* bad :
         {"[]", "7", R"({"schema": "rvget.facts/9"})", R"({"devices": 3})",
          R"({"host": {"open_files": "many"}})", R"({"netdevs": [{"mtu_bytes": -1}]})"}) {
        BOOST_TEST(!facts_from(json::parse(bad)), bad);
    }
    const auto refused = facts_from(json::parse(R"({"host": {"open_files": "many"}})"));
    BOOST_TEST(refused.error().detail.find("open_files") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(redacted_facts_give_the_same_findings_and_hold_no_address) {
    for (const auto* name : {"healthy.json", "rxe.json"}) {
        const auto facts = facts_from(fixture(name)).value();
        auto masked = facts;
        redact(masked);
        const auto before = judge(facts, {}, budget);
        const auto after = judge(masked, {}, budget);
        BOOST_REQUIRE(before.size() == after.size());
        for (std::size_t i = 0; i < before.size(); ++i) {
            BOOST_TEST(to_string(before[i].outcome) == to_string(after[i].outcome), before[i].id);
        }
    }
    auto masked = facts_from(healthy()).value();
    redact(masked);
    const auto shown = json::serialize(to_value(masked));
    for (const auto* secret :
         {"10.0.0.1", "10.0.1.1", "node-a", "0200:0000", "02:00:00:00:00:00"}) {
        BOOST_TEST(shown.find(secret) == std::string::npos, secret);
    }
}

BOOST_AUTO_TEST_CASE(exit_status_follows_the_worst_outcome) {
    const auto of = [](std::initializer_list<outcome> all, bool strict = false) {
        std::vector<finding> findings;
        for (const auto o : all) findings.push_back({.id = "x.y", .outcome = o});
        return exit_status_of(findings, strict, false);
    };
    BOOST_TEST(of({outcome::pass, outcome::skip}) == 0);
    BOOST_TEST(of({outcome::pass, outcome::warn}) == 0);
    BOOST_TEST(of({outcome::pass, outcome::warn}, true) == 1);
    BOOST_TEST(of({outcome::pass, outcome::warn, outcome::fail}, true) == 2);
    BOOST_TEST(of({outcome::skip}) == 3);
    BOOST_TEST(of({}) == 3);
    BOOST_TEST(of({outcome::pass, outcome::error}) == 3);
}

BOOST_AUTO_TEST_CASE(baseline_leaves_only_what_changed) {
    report r;
    r.tool = "doctor";
    r.findings = {{.id = "a.b", .outcome = outcome::warn, .subject = "x"},
                  {.id = "a.c", .outcome = outcome::fail, .subject = "x"}};
    const json::value old = r.to_json(2);
    r.findings[0].outcome = outcome::fail;
    r.subtract(old);
    BOOST_REQUIRE(r.findings.size() == 1);
    BOOST_TEST(r.findings[0].id == "a.b");
    r.subtract(json::value(r.to_json(2)));
    BOOST_TEST(r.exit_status({}) == 0);  // nothing new
}

/// Between the marks in docs/diagnostics.md stands what is generated here.
BOOST_AUTO_TEST_CASE(documentation_says_what_the_table_and_the_cases_say) {
    std::map<std::string, finding> examples;
    const auto cases = fixture("rules.json");
    for (const auto& one : cases.as_array()) {
        const auto& c = one.as_object();
        const auto all = findings_of(c);
        const auto* f = worst(all, text(c.at("id")));
        auto& kept = examples[f->id];
        if (kept.outcome < f->outcome) kept = *f;
    }
    static const std::map<scope, std::string> about{{scope::host, "host"},
                                                    {scope::device, "device"},
                                                    {scope::port, "port"},
                                                    {scope::roce, "RoCE port"}};
    std::ostringstream made;
    for (const auto& r : rules()) {
        const auto& f = examples[std::string(r.id)];
        made << "\n### " << r.id << "\n\n- About: each " << about.at(r.scope)
             << "; from: " << r.source << ".\n- Rule: " << r.holds << ".\n";
        if (!r.needs.empty()) made << "- Skipped where `" << r.needs << "` fails.\n";
        if (!f.message.empty()) made << "- Says, for instance: *" << f.message << "*\n";
        for (const auto& fix : f.fix) made << "- Fix: `" << fix << "`\n";
    }
    made << "\n";
    const auto file = source + "/docs/diagnostics.md";
    std::ifstream in(file);
    std::stringstream page;
    page << in.rdbuf();
    auto content = page.str();
    const std::string begin = "<!-- rules: begin -->\n";
    const auto from = content.find(begin);
    const auto to = content.find("<!-- rules: end -->");
    BOOST_REQUIRE(from != std::string::npos);
    BOOST_REQUIRE(to != std::string::npos);
    const auto there = content.substr(from + begin.size(), to - from - begin.size());
    if (std::getenv("RVGET_WRITE_DOCS") != nullptr) {
        std::ofstream(file) << content.replace(from + begin.size(), there.size(), made.str());
        return;
    }
    BOOST_TEST(there == made.str(),
               "docs/diagnostics.md is out of date: run this test with RVGET_WRITE_DOCS=1");
}

BOOST_AUTO_TEST_SUITE_END()
