#include "diag/perf_limits.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include <boost/json/parse.hpp>

#include "diag/perf_record.hpp"

namespace rvget::diag {
namespace {

std::string number(double value) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.4g", value);
    return text.data();
}

std::optional<double> figure_of(const perf_point& p, std::string_view name) {
    for (const auto& [known, value] : p.figures()) {
        if (known == name) return value;
    }
    return std::nullopt;
}

perf_verdict judge_one(const perf_requirement& r, const std::vector<perf_point>& points) {
    perf_verdict v{.subject = r.text};
    bool any = false;
    for (const auto& p : points) {
        if (r.size_bytes && *r.size_bytes != p.size_bytes) continue;
        any = true;
        const double value = figure_of(p, r.figure).value_or(0);
        const bool counted = p.total().latency.count() != 0;
        if (counted && (r.at_least ? value >= r.bound : value <= r.bound)) continue;
        v.held = false;
        v.message += (v.message.empty() ? "" : "; ") + p.key() +
                     (counted ? ": " + number(value) : ": nothing was measured");
    }
    if (!any) {
        v.held = false;
        v.message = "no point of that size was measured";
    }
    return v;
}

std::optional<spread> spread_of(const boost::json::object& point, const char* name, double median) {
    const auto* all = point.if_contains("spread");
    const auto* pair =
        all != nullptr && all->is_object() ? all->get_object().if_contains(name) : nullptr;
    if (pair == nullptr || !pair->is_array() || pair->get_array().size() != 2) return std::nullopt;
    const auto& ends = pair->get_array();
    if (!ends[0].is_number() || !ends[1].is_number()) return std::nullopt;
    return spread{median, ends[0].to_number<double>(), ends[1].to_number<double>()};
}

std::optional<double> at(const boost::json::value& record, const char* pointer) {
    boost::json::error_code error;
    const auto* value = record.find_pointer(pointer, error);
    if (value == nullptr || !value->is_number()) return std::nullopt;
    return value->to_number<double>();
}

}  // namespace

result<perf_requirement> perf_requirement::parse(
    std::string_view text, std::optional<std::uint64_t> (*size)(std::string_view)) {
    const auto refuse = [&](const std::string& why) {
        return failure{request_errc::invalid_argument,
                       "requirement '" + std::string(text) + "': " + why +
                           "; give FIGURE>=NUMBER or FIGURE<=NUMBER, with @SIZE for one size"};
    };
    const auto sign = text.find_first_of("<>");
    if (sign == std::string_view::npos || sign + 1 >= text.size() || text[sign + 1] != '=') {
        return refuse("no <= or >=");
    }
    perf_requirement r;
    r.text = text;
    r.figure = text.substr(0, sign);
    r.at_least = text[sign] == '>';
    if (!figure_of(perf_point{}, r.figure)) return refuse("no figure has the name " + r.figure);
    auto bound = text.substr(sign + 2);
    if (const auto mark = bound.find('@'); mark != std::string_view::npos) {
        r.size_bytes = size(bound.substr(mark + 1));
        if (!r.size_bytes) return refuse("what follows the @ is no size");
        bound = bound.substr(0, mark);
    }
    const auto [rest, error] = std::from_chars(bound.data(), bound.data() + bound.size(), r.bound);
    if (error != std::errc{} || rest != bound.data() + bound.size() || !std::isfinite(r.bound)) {
        return refuse("the bound is no number");
    }
    return r;
}

std::vector<perf_verdict> judge(const std::vector<perf_requirement>& required,
                                const std::vector<perf_point>& points) {
    std::vector<perf_verdict> all;
    all.reserve(required.size());
    for (const auto& r : required) all.push_back(judge_one(r, points));
    return all;
}

result<perf_baseline> perf_baseline::parse(std::string_view json_lines) {
    perf_baseline b;
    while (!json_lines.empty()) {
        const auto line = json_lines.substr(0, json_lines.find('\n'));
        json_lines.remove_prefix(std::min(line.size() + 1, json_lines.size()));
        boost::json::error_code error;
        const auto value = boost::json::parse(line, error);
        const auto* o = error ? nullptr : value.if_object();
        const auto is = [&](const char* key, std::string_view wanted) {
            const auto* v = o == nullptr ? nullptr : o->if_contains(key);
            return v != nullptr && v->is_string() && v->get_string() == wanted;
        };
        if (!is("schema", perf_schema) || !is("type", "point")) continue;
        const auto* key = o->if_contains("key");
        const auto gigabits = at(value, "/bw_gbps");
        const auto typical = at(value, "/latency_us/p50");
        if (key == nullptr || !key->is_string() || !gigabits || !typical) continue;
        const auto rate = spread_of(*o, "bw_gbps", *gigabits);
        const auto latency = spread_of(*o, "p50_us", *typical);
        if (rate && latency) b.points[std::string(key->get_string())] = {*rate, *latency};
    }
    if (!b.points.empty()) return b;
    return failure{request_errc::invalid_argument,
                   "no point of schema " + std::string(perf_schema) +
                       " in it; give what 'rvget perf --json' printed"};
}

std::vector<perf_verdict> compare(const perf_baseline& before, const std::vector<perf_point>& now) {
    std::vector<perf_verdict> all;
    for (const auto& p : now) {
        perf_verdict v{.subject = p.key()};
        const auto found = before.points.find(v.subject);
        if (found == before.points.end()) {
            v.held = false;
            v.message = "not in the baseline: measure the same sizes and depths";
            all.push_back(std::move(v));
            continue;
        }
        const auto& old = found->second;
        const auto rate = p.gigabits_per_s();
        const auto latency = p.typical_us();
        const auto ratio = [](const spread& a, const spread& b) {
            return b.median == 0 ? std::string("-")
                                 : number(a.median / b.median) + " (now " + number(a.low) + ".." +
                                       number(a.high) + ", then " + number(b.low) + ".." +
                                       number(b.high) + ")";
        };
        v.held = rate.high >= old.gigabits_per_s.low && latency.low <= old.typical_us.high;
        v.message = "bandwidth x" + ratio(rate, old.gigabits_per_s) + ", typical latency x" +
                    ratio(latency, old.typical_us);
        all.push_back(std::move(v));
    }
    return all;
}

}  // namespace rvget::diag
