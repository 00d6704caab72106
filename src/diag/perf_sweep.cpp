#include "diag/perf_sweep.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include <boost/json/array.hpp>

#include "diag/perf_record.hpp"

namespace rvget::diag {
namespace {

double us(std::chrono::nanoseconds t) { return static_cast<double>(t.count()) / 1e3; }

template <class T, class Member>
std::vector<Member> distinct(const std::vector<T>& all, Member T::*member) {
    std::vector<Member> values;
    for (const auto& one : all) {
        if (std::ranges::find(values, one.*member) == values.end()) values.push_back(one.*member);
    }
    return values;
}

const sweep_cell* cell_of(const std::vector<sweep_cell>& cells, std::uint64_t size,
                          const std::string& arm) {
    const auto found = std::ranges::find_if(
        cells, [&](const sweep_cell& c) { return c.size_bytes == size && c.arm == arm; });
    return found == cells.end() ? nullptr : &*found;
}

std::string column(int width, std::optional<double> us) {
    std::array<char, 64> text{};
    if (us) {
        std::snprintf(text.data(), text.size(), "  %*.1f us", width, *us);
    } else {
        std::snprintf(text.data(), text.size(), "  %*s us", width, "-");
    }
    return text.data();
}

std::string joined(const std::vector<std::string>& words) {
    std::string text;
    for (const auto& word : words) text += (text.empty() ? "" : ",") + word;
    return text;
}

}  // namespace

std::vector<sweep_cell> summarise(const std::vector<sweep_transfer>& transfers) {
    std::vector<sweep_cell> cells;
    for (const auto size : distinct(transfers, &sweep_transfer::size_bytes)) {
        for (const auto& arm : distinct(transfers, &sweep_transfer::arm)) {
            sweep_cell c{.arm = arm, .size_bytes = size};
            std::vector<double> warm;
            bool any = false;
            for (const auto& t : transfers) {
                if (t.size_bytes != size || t.arm != arm) continue;
                any = true;
                if (t.repetition == 0) {
                    c.first_us = us(t.took);
                } else {
                    warm.push_back(us(t.took));
                }
                if (std::ranges::find(c.paths, t.path) == c.paths.end()) c.paths.push_back(t.path);
            }
            c.warm_count = warm.size();
            c.warm_us = spread::of(std::move(warm));
            if (any) cells.push_back(std::move(c));
        }
    }
    return cells;
}

boost::json::object to_json(const sweep_transfer& t) {
    auto o = perf_record("transfer");
    o["arm"] = t.arm;
    o["size_bytes"] = t.size_bytes;
    o["repetition"] = t.repetition;
    o["pinned"] = t.pinned;
    o["path"] = t.path;
    o["took_us"] = us(t.took);
    return o;
}

std::vector<boost::json::object> to_json(const std::vector<sweep_cell>& cells) {
    std::vector<boost::json::object> records;
    for (const auto size : distinct(cells, &sweep_cell::size_bytes)) {
        auto o = perf_record("sweep");
        o["size_bytes"] = size;
        boost::json::object arms;
        double base = 0;
        for (const auto& c : cells) {
            if (c.size_bytes != size) continue;
            if (base == 0) base = c.warm_us.median;
            boost::json::object arm{{"first_us", c.first_us},
                                    {"warm_us", nullptr},
                                    {"warm_spread_us", nullptr},
                                    {"times_the_first_arm", nullptr},
                                    {"paths", boost::json::array(c.paths.begin(), c.paths.end())}};
            if (c.warm_count > 0) {
                arm["warm_us"] = c.warm_us.median;
                arm["warm_spread_us"] = boost::json::array{c.warm_us.low, c.warm_us.high};
                if (base > 0) arm["times_the_first_arm"] = c.warm_us.median / base;
            }
            arms[c.arm] = std::move(arm);
        }
        o["arms"] = std::move(arms);
        records.push_back(std::move(o));
    }
    return records;
}

std::string to_text(const std::vector<sweep_cell>& cells) {
    const auto arms = distinct(cells, &sweep_cell::arm);
    std::array<char, 128> part{};
    std::string text = "    #bytes";
    for (const auto& arm : arms) {
        std::snprintf(part.data(), part.size(), "  %14s first %14s warm", arm.c_str(), arm.c_str());
        text += part.data();
    }
    text += "  paths\n";
    for (const auto size : distinct(cells, &sweep_cell::size_bytes)) {
        std::snprintf(part.data(), part.size(), "%10llu", static_cast<unsigned long long>(size));
        text += part.data();
        std::string paths;
        for (const auto& arm : arms) {
            const auto* c = cell_of(cells, size, arm);
            text += column(17, c == nullptr ? std::nullopt : std::optional(c->first_us));
            const bool warm = c != nullptr && c->warm_count > 0;
            text += column(16, warm ? std::optional(c->warm_us.median) : std::nullopt);
            if (c != nullptr) paths += ' ' + joined(c->paths);
        }
        text += ' ' + paths + '\n';
    }
    return text;
}

}  // namespace rvget::diag
