#include "diag/perf_record.hpp"

#include <array>
#include <cstdio>

#include <boost/json/array.hpp>

namespace rvget::diag {
namespace {

boost::json::array pair_of(const spread& s) { return {s.low, s.high}; }

boost::json::object usage_of(const counter_growth& counters) {
    boost::json::object o;
    for (const auto& [name, grown] : counters) o[name] = grown;
    return o;
}

/// "rdma", or all paths with their counts where there is more than one.
std::string paths_of(const perf_run& all) {
    std::string text;
    for (const auto& [path, count] : all.paths) {
        if (!text.empty()) text += ',';
        text += path;
        if (all.paths.size() > 1) text += '=' + std::to_string(count);
    }
    return text.empty() ? "-" : text;
}

constexpr std::array latency_names{"min_us", "max_us", "p50_us",  "mean_us", "stdev_us",
                                   "p90_us", "p99_us", "p999_us", "p9999_us"};

}  // namespace

boost::json::object perf_record(std::string_view type) {
    return {{"schema", perf_schema}, {"type", type}};
}

boost::json::object to_json(const perf_point& p) {
    const auto all = p.total();
    boost::json::object figures;
    for (const auto& [name, value] : p.figures()) figures[name] = value;
    auto o = perf_record("point");
    o["op"] = p.op;
    o["size_bytes"] = p.size_bytes;
    o["depth"] = p.depth;
    o["mode"] = p.rate > 0 ? "open" : "closed";
    o["rate_target"] = p.rate;
    o["policy"] = p.policy;
    o["pinned"] = p.pinned;
    o["key"] = p.key();
    o["route"] = nullptr;
    if (!p.device.empty()) {
        o["route"] = boost::json::object{{"device", p.device},
                                         {"port", p.port},
                                         {"gid", p.gid},
                                         {"path_mtu_bytes", p.path_mtu_bytes}};
    }
    o["runs"] = p.runs.size();
    o["count"] = all.latency.count();
    o["errors"] = all.errors;
    o["first_error"] = all.first_error;
    o["never_begun"] = all.never_begun;
    o["broken_off"] = p.broken_off;
    o["verified"] = all.verified;
    o["wrong"] = all.wrong;
    o["overflowed"] = all.latency.overflowed();
    o["duration_s"] = all.seconds();
    for (const auto* name : {"bw_gbps", "bw_gbytes_s", "msg_s"}) o[name] = figures[name];
    boost::json::object latency;
    for (const auto* name : latency_names) {
        const std::string_view whole = name;
        latency[whole.substr(0, whole.size() - 3)] = figures[name];
    }
    o["latency_us"] = std::move(latency);
    o["spread"] = boost::json::object{{"bw_gbps", pair_of(p.gigabits_per_s())},
                                      {"p50_us", pair_of(p.typical_us())}};
    o["split_us"] = boost::json::object{{"acquire", figures["acquire_us"]},
                                        {"transfer", figures["transfer_us"]},
                                        {"copy", figures["copy_us"]}};
    boost::json::object cpu{{"client", all.client.cpu_s}, {"server", nullptr}};
    boost::json::object per_gib{{"client", figures["client_cpu_s_per_gib"]}, {"server", nullptr}};
    boost::json::object counters{{"client", usage_of(all.client.counters)}, {"server", nullptr}};
    if (all.server) {
        cpu["server"] = all.server->cpu_s;
        per_gib["server"] = figures["server_cpu_s_per_gib"];
        counters["server"] = usage_of(all.server->counters);
    }
    o["cpu_s"] = std::move(cpu);
    o["cpu_s_per_gib"] = std::move(per_gib);
    o["counters_delta"] = std::move(counters);
    boost::json::object paths;
    for (const auto& [path, count] : all.paths) paths[path] = count;
    o["paths"] = std::move(paths);
    const auto set = p.flags();
    o["flags"] = boost::json::array(set.begin(), set.end());
    return o;
}

std::string perf_heading() {
    return " #op           #bytes depth  #iterations  t_min[us]  t_max[us] t_typical[us]  "
           "t_avg[us] "
           "t_stdev[us]    99%[us]  99.9%[us] 99.99%[us]   BW[Gb/s]   BW[GB/s]  Msg[1/s] "
           "CPU[s/GiB] peer[s/GiB]  path";
}

std::string to_line(const perf_point& p) {
    boost::json::object f;
    for (const auto& [name, value] : p.figures()) f[name] = value;
    const auto value = [&](const char* name) { return f[name].to_number<double>(); };
    std::array<char, 512> text{};
    std::snprintf(text.data(), text.size(),
                  " %-10s %9llu %5u %12llu %10.2f %10.2f %13.2f %10.2f %11.2f %10.2f %10.2f %10.2f "
                  "%10.3f %10.3f %9.0f %10.3f %11.3f  ",
                  p.op.c_str(), static_cast<unsigned long long>(p.size_bytes), p.depth,
                  static_cast<unsigned long long>(value("count")), value("min_us"), value("max_us"),
                  value("p50_us"), value("mean_us"), value("stdev_us"), value("p99_us"),
                  value("p999_us"), value("p9999_us"), value("bw_gbps"), value("bw_gbytes_s"),
                  value("msg_s"), value("client_cpu_s_per_gib"), value("server_cpu_s_per_gib"));
    std::string line = text.data() + paths_of(p.total());
    for (const auto& flag : p.flags()) line += " [" + flag + "]";
    return line;
}

std::string to_csv(const std::vector<perf_point>& points) {
    std::string text;
    for (const auto& p : points) {
        const auto figures = p.figures();
        if (text.empty()) {
            text = "op,size_bytes,depth,mode,rate_target,policy,cold,paths,flags";
            for (const auto& [name, value] : figures) text += ',' + name;
            text += '\n';
        }
        std::array<char, 32> number{};
        std::snprintf(number.data(), number.size(), "%.6g", p.rate);
        text += p.op + ',' + std::to_string(p.size_bytes) + ',' + std::to_string(p.depth) + ',' +
                (p.rate > 0 ? "open," : "closed,") + number.data() + ',' + p.policy + ',' +
                (p.cold ? "1," : "0,");
        // Within a field blanks separate: commas separate fields.
        for (const auto& [path, count] : p.total().paths) {
            text += path + '=' + std::to_string(count) + ' ';
        }
        text += ',';
        for (const auto& flag : p.flags()) text += flag + ' ';
        for (const auto& [name, value] : figures) {
            std::snprintf(number.data(), number.size(), "%.9g", value);
            text += std::string(",") + number.data();
        }
        text += '\n';
    }
    return text;
}

}  // namespace rvget::diag
