#include "diag/report.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>

#include <boost/json/array.hpp>

#include "base/printable.hpp"

namespace rvget::diag {

namespace {

std::size_t count(const std::vector<finding>& all, outcome o) {
    return static_cast<std::size_t>(
        std::count_if(all.begin(), all.end(), [o](const auto& f) { return f.outcome == o; }));
}

std::string utc_now() {
    const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    std::tm parts{};
    ::gmtime_r(&now, &parts);
    std::array<char, 32> text{};
    return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

boost::json::object to_object(const finding& f) {
    return {{"id", f.id},
            {"outcome", to_string(f.outcome)},
            {"subject", f.subject},
            {"observed", f.observed},
            {"expected", f.expected},
            {"message", f.message},
            {"fix", boost::json::array(f.fix.begin(), f.fix.end())},
            {"evidence", boost::json::array(f.evidence.begin(), f.evidence.end())},
            {"doc", "docs/diagnostics.md#" + f.id}};
}

constexpr std::array all_outcomes{outcome::pass, outcome::warn, outcome::fail, outcome::skip,
                                  outcome::error};

/// JSON is UTF-8; what a person gave as a file's name, or sysfs as a device's, may not be.
void make_utf8(boost::json::value& v) {
    if (auto* text = v.if_string()) {
        *text = printable(*text);
    } else if (auto* list = v.if_array()) {
        for (auto& one : *list) make_utf8(one);
    } else if (auto* object = v.if_object()) {
        for (auto& one : *object) make_utf8(one.value());
    }
}

}  // namespace

void report::select(const report_options& options) {
    const auto named = [](const std::vector<std::string>& words, const finding& f) {
        return std::any_of(words.begin(), words.end(),
                           [&](const auto& word) { return selects(word, f.id); });
    };
    std::erase_if(findings, [&](const finding& f) {
        return (!options.only.empty() && !named(options.only, f)) || named(options.skip, f);
    });
}

void report::subtract(const boost::json::value& baseline) {
    const auto* object = baseline.if_object();
    const auto* list = object == nullptr ? nullptr : object->if_contains("findings");
    const auto* old = list == nullptr ? nullptr : list->if_array();
    if (old == nullptr) return;
    std::erase_if(findings, [&](const finding& f) {
        return std::any_of(old->begin(), old->end(), [&](const boost::json::value& one) {
            const auto* o = one.if_object();
            const auto is = [&](const char* key, std::string_view wanted) {
                const auto* value = o == nullptr ? nullptr : o->if_contains(key);
                return value != nullptr && value->is_string() && value->get_string() == wanted;
            };
            return is("id", f.id) && is("subject", f.subject) &&
                   is("outcome", to_string(f.outcome));
        });
    });
    // Nothing new is an answer, not the absence of one.
    if (findings.empty()) {
        findings.push_back(
            {.id = "run.baseline", .subject = "host", .message = "as in the baseline"});
    }
}

int report::exit_status(const report_options& options) const {
    return exit_status_of(findings, options.strict, options.nagios);
}

boost::json::object report::to_json(int exit) const {
    boost::json::array list;
    for (const auto& f : findings) list.push_back(to_object(f));
    boost::json::object summary;
    for (const auto o : all_outcomes) summary[to_string(o)] = count(findings, o);
    boost::json::value all{{"schema", "rvget." + tool + "/1"},
                           {"tool", "rvget " + tool},
                           {"host", host},
                           {"time", utc_now()},
                           {"facts", facts},
                           {"findings", std::move(list)},
                           {"summary", std::move(summary)},
                           {"exit", exit}};
    make_utf8(all);
    return std::move(all.get_object());
}

std::string report::to_text(const report_options& options) const {
    std::string out;
    for (const auto& line : lines) out += printable(line) + '\n';
    constexpr std::array shown{outcome::error, outcome::fail, outcome::warn};
    static constexpr std::array names{"PASS", "SKIP", "WARN", "FAIL", "ERROR"};
    const auto show = [&](const finding& f) {
        // Names of devices, files and the other host's words are among it.
        out += std::string(names[static_cast<std::size_t>(f.outcome)]) + ' ' + f.id + "  " +
               printable(f.subject) + "  " + printable(f.message) + '\n';
        for (const auto& line : f.evidence) out += "     saw: " + printable(line) + '\n';
        for (const auto& line : f.fix) out += "     fix: " + printable(line) + '\n';
    };
    for (const auto o : shown) {
        for (const auto& f : findings) {
            if (f.outcome == o) show(f);
        }
    }
    if (options.verbose) {
        for (const auto& f : findings) {
            if (f.outcome == outcome::skip || f.outcome == outcome::pass) show(f);
        }
    }
    for (const auto o : all_outcomes) {
        out += std::to_string(count(findings, o)) + ' ' + std::string(to_string(o)) +
               (o == outcome::error ? "\n" : ", ");
    }
    out.pop_back();
    return out;
}

std::string report::to_nagios(int exit) const {
    static constexpr std::array states{"OK", "WARNING", "CRITICAL", "UNKNOWN"};
    std::string line =
        "RVGET " + std::string(states[static_cast<std::size_t>(std::clamp(exit, 0, 3))]);
    for (const auto o : {outcome::error, outcome::fail, outcome::warn}) {
        for (const auto& f : findings) {
            if (f.outcome == o)
                return line + " - " + f.id + " " + printable(f.subject + ": " + f.message);
        }
    }
    return line + " - " + std::to_string(count(findings, outcome::pass)) + " checks passed";
}

}  // namespace rvget::diag
