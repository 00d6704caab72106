#include "diag/perf_chart.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>

namespace rvget::diag {
namespace {

constexpr double left = 80;
constexpr double width = 620;
constexpr double height = 260;
constexpr double gap = 90;
constexpr double top = 50;
/// Told apart also by those who do not see all colours (Okabe and Ito).
constexpr std::array colours{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"};

struct sample {
    double size;
    double gigabits;
    double shortest;
    double typical;
    double p99;
};
using series = std::map<std::string, std::vector<sample>>;

series series_of(const std::vector<perf_point>& points) {
    series all;
    for (const auto& p : points) {
        const auto total = p.total();
        if (total.latency.count() == 0 || p.size_bytes == 0) continue;
        const auto us = [](std::chrono::nanoseconds t) {
            return std::max(static_cast<double>(t.count()) / 1e3, 1e-3);
        };
        auto& s = all[p.op + ", " + p.policy + ", depth " + std::to_string(p.depth)];
        s.push_back({static_cast<double>(p.size_bytes), std::max(p.gigabits_per_s().median, 1e-6),
                     us(total.latency.min()), us(total.latency.percentile(0.5)),
                     us(total.latency.percentile(0.99))});
    }
    for (auto& [name, s] : all) {
        std::sort(s.begin(), s.end(), [](const auto& a, const auto& b) { return a.size < b.size; });
    }
    return all;
}

template <class... Values>
std::string format(const char* pattern, Values... values) {
    std::array<char, 256> text{};
    // The patterns are literals of this file.
    std::snprintf(text.data(), text.size(), pattern, values...);
    return text.data();
}

/// A logarithmic axis of whole steps of `base`.
class axis {
public:
    axis(double base, double from, double to, double begin, double end)
        : base_(base),
          first_(std::floor(std::log(from) / std::log(base))),
          last_(std::max(std::ceil(std::log(to) / std::log(base)), first_ + 1)),
          begin_(begin),
          end_(end) {}
    [[nodiscard]] double at(double value) const {
        return begin_ +
               (std::log(value) / std::log(base_) - first_) / (last_ - first_) * (end_ - begin_);
    }
    [[nodiscard]] std::vector<double> ticks() const {
        std::vector<double> all;
        const double step = std::ceil((last_ - first_) / 14);
        for (double n = first_; n <= last_; n += step) all.push_back(std::pow(base_, n));
        return all;
    }

private:
    double base_, first_, last_, begin_, end_;
};

std::string size_text(double bytes) {
    constexpr std::array units{"", "K", "M", "G"};
    std::size_t unit = 0;
    while (bytes >= 1024 && unit + 1 < units.size()) bytes /= 1024, ++unit;
    return format("%.4g%s", bytes, units[unit]);
}

std::string frame(const axis& x, const axis& y, double up, const char* title) {
    std::string out =
        format("<text x=\"%.0f\" y=\"%.0f\" class=\"title\">%s</text>\n", left, up - 12, title);
    for (const double v : x.ticks()) {
        out += format("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>",
                      x.at(v), up, x.at(v), up + height);
        out += format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", x.at(v),
                      up + height + 16, size_text(v).c_str());
    }
    for (const double v : y.ticks()) {
        out += format("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>",
                      left, y.at(v), left + width, y.at(v));
        out += format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n", left - 6,
                      y.at(v) + 4, v);
    }
    return out;
}

std::string line(const std::vector<sample>& s, const axis& x, const axis& y, double sample::*value,
                 const char* colour) {
    std::string out = "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"" + std::string(colour) +
                      "\" points=\"";
    for (const auto& p : s) out += format("%.1f,%.1f ", x.at(p.size), y.at(p.*value));
    out += "\"/>\n";
    for (const auto& p : s) {
        out += format("<circle r=\"3\" cx=\"%.1f\" cy=\"%.1f\" fill=\"%s\"/>", x.at(p.size),
                      y.at(p.*value), colour);
    }
    return out + '\n';
}

std::string band(const std::vector<sample>& s, const axis& x, const axis& y, const char* colour) {
    std::string out = "<polygon opacity=\"0.15\" fill=\"" + std::string(colour) + "\" points=\"";
    for (const auto& p : s) out += format("%.1f,%.1f ", x.at(p.size), y.at(p.p99));
    for (auto p = s.rbegin(); p != s.rend(); ++p) {
        out += format("%.1f,%.1f ", x.at(p->size), y.at(p->shortest));
    }
    return out + "\"/>\n";
}

}  // namespace

std::string to_svg(const std::vector<perf_point>& points) {
    const auto all = series_of(points);
    sample least{1e18, 1e18, 1e18, 1e18, 1e18};
    sample most{1, 1e-6, 1e-3, 1e-3, 1e-3};
    for (const auto& [name, s] : all) {
        for (const auto& p : s) {
            least = {std::min(least.size, p.size), std::min(least.gigabits, p.gigabits),
                     std::min(least.shortest, p.shortest), 0, 0};
            most = {std::max(most.size, p.size), std::max(most.gigabits, p.gigabits), 0, 0,
                    std::max(most.p99, p.p99)};
        }
    }
    if (all.empty()) least = {1, 1, 1, 1, 1};
    const double lower = top + height + gap;
    const double total = lower + height + 50 + 18 * static_cast<double>(all.size());
    const axis x(2, least.size, most.size, left, left + width);
    const axis rate(10, least.gigabits, most.gigabits, top + height, top);
    const axis time(10, least.shortest, most.p99, lower + height, lower);
    std::string out =
        format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\">\n",
               left + width + 40, total);
    out +=
        "<style>text{font:11px sans-serif}.title{font-size:13px;font-weight:bold}"
        ".grid{stroke:#ddd}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
    out += frame(x, rate, top, "Bandwidth, Gb/s, against size in bytes");
    out +=
        frame(x, time, lower,
              "Latency, us, against size in bytes: typical, with a band from the shortest to 99 %");
    std::size_t n = 0;
    for (const auto& [name, s] : all) {
        const char* colour = colours[n % colours.size()];
        out += line(s, x, rate, &sample::gigabits, colour);
        out += band(s, x, time, colour) + line(s, x, time, &sample::typical, colour);
        const double y = lower + height + 40 + 18 * static_cast<double>(n++);
        out += format("<rect x=\"%.0f\" y=\"%.0f\" width=\"12\" height=\"12\" fill=\"%s\"/>", left,
                      y - 10, colour);
        // Names consist of operations, policies and numbers: nothing to escape.
        out += format("<text x=\"%.0f\" y=\"%.0f\">%s</text>\n", left + 18, y, name.c_str());
    }
    return out + "</svg>\n";
}

}  // namespace rvget::diag
