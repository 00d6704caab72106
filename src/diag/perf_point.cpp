#include "diag/perf_point.hpp"

#include <array>
#include <string_view>

namespace rvget::diag {
namespace {

/// Parts of counter names that only grow when packets were lost, late or refused.
constexpr std::array<std::string_view, 10> signs_of_loss{"retry",       "rnr",
                                                         "seq_err",     "out_of_sequence",
                                                         "out_of_seq",  "duplicate_request",
                                                         "ack_timeout", "out_of_buffer",
                                                         "send_err",    "discards"};

bool lossy(const counter_growth& counters) {
    for (const auto& [name, grown] : counters) {
        for (const auto sign : signs_of_loss) {
            if (grown != 0 && name.find(sign) != std::string::npos) return true;
        }
    }
    return false;
}

void add(end_usage& to, const end_usage& more) {
    to.cpu_s += more.cpu_s;
    for (const auto& [name, grown] : more.counters) to.counters[name] += grown;
}

double us(std::chrono::nanoseconds t) { return static_cast<double>(t.count()) / 1e3; }

}  // namespace

perf_run perf_point::total() const {
    perf_run all;
    for (const auto& r : runs) {
        all.latency.merge(r.latency);
        all.took += r.took;
        all.bytes += r.bytes;
        all.errors += r.errors;
        all.never_begun += r.never_begun;
        all.verified += r.verified;
        all.wrong += r.wrong;
        if (all.first_error.empty()) all.first_error = r.first_error;
        for (const auto& [path, count] : r.paths) all.paths[path] += count;
        all.acquire += r.acquire;
        all.transfer += r.transfer;
        all.copy += r.copy;
        add(all.client, r.client);
        if (!r.server) continue;
        if (!all.server) all.server.emplace();
        add(*all.server, *r.server);
    }
    return all;
}

spread perf_point::gigabits_per_s() const {
    std::vector<double> values;
    for (const auto& r : runs) values.push_back(r.bytes_per_s() * 8 / 1e9);
    return spread::of(std::move(values));
}

spread perf_point::typical_us() const {
    std::vector<double> values;
    for (const auto& r : runs) values.push_back(us(r.latency.percentile(0.5)));
    return spread::of(std::move(values));
}

std::vector<std::string> perf_point::flags() const {
    constexpr double most_apart = 0.1;
    const auto all = total();
    std::vector<std::string> set;
    if (cold) set.emplace_back("cold");
    if (all.paths.size() > 1) set.emplace_back("mixed");
    if (lossy(all.client.counters) || (all.server && lossy(all.server->counters))) {
        set.emplace_back("lossy");
    }
    if (gigabits_per_s().relative() > most_apart || typical_us().relative() > most_apart) {
        set.emplace_back("unstable");
    }
    if (all.never_begun > 0) set.emplace_back("overloaded");
    if (!broken_off.empty()) set.emplace_back("incomplete");
    return set;
}

std::vector<std::pair<std::string, double>> perf_point::figures() const {
    const auto all = total();
    const auto& l = all.latency;
    const auto count = static_cast<double>(l.count());
    const double gib = static_cast<double>(all.bytes) / (1 << 30);
    const auto per_gib = [&](double seconds) { return gib == 0 ? 0 : seconds / gib; };
    const auto each = [&](std::chrono::nanoseconds sum) {
        return count == 0 ? 0 : us(sum) / count;
    };
    const auto gigabits = gigabits_per_s();
    return {{"count", count},
            {"errors", static_cast<double>(all.errors)},
            {"wrong", static_cast<double>(all.wrong)},
            {"min_us", us(l.min())},
            {"max_us", us(l.max())},
            {"p50_us", us(l.percentile(0.5))},
            {"mean_us", l.mean_ns() / 1e3},
            {"stdev_us", l.deviation_ns() / 1e3},
            {"p90_us", us(l.percentile(0.9))},
            {"p99_us", us(l.percentile(0.99))},
            {"p999_us", us(l.percentile(0.999))},
            {"p9999_us", us(l.percentile(0.9999))},
            {"acquire_us", each(all.acquire)},
            {"transfer_us", each(all.transfer)},
            {"copy_us", each(all.copy)},
            {"bw_gbps", gigabits.median},
            {"bw_gbytes_s", gigabits.median / 8},
            {"msg_s", all.took.count() == 0 ? 0 : count / all.seconds()},
            {"client_cpu_s_per_gib", per_gib(all.client.cpu_s)},
            {"server_cpu_s_per_gib", per_gib(all.server ? all.server->cpu_s : 0)},
            {"never_begun", static_cast<double>(all.never_begun)}};
}

std::string perf_point::key() const {
    return op + " of " + std::to_string(size_bytes) + " bytes, depth " + std::to_string(depth) +
           (rate > 0 ? ", " + std::to_string(rate) + "/s" : ", closed loop") + ", policy " +
           policy + (cold ? ", cold" : "");
}

void add_growth(counter_growth& growth, const counter_growth& before, const counter_growth& now) {
    for (const auto& [name, value] : now) {
        const auto old = before.find(name);
        const auto base = old == before.end() || old->second > value ? 0 : old->second;
        if (value != base) growth[name] += value - base;
    }
}

}  // namespace rvget::diag
