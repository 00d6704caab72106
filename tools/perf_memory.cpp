#include "perf_memory.hpp"

#include <array>
#include <cstdio>
#include <string>

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>

#include "console.hpp"
#include "diag/memory_costs.hpp"
#include "diag/perf_record.hpp"
#include "perf_settings.hpp"

namespace rvget::tools {
namespace {

constexpr std::uint32_t live_blocks = 10'000;
constexpr std::uint64_t largest_lent = std::uint64_t{1} << 20;

boost::json::array ends_of(const diag::spread& s) { return {s.low, s.high}; }

result<void> print(bool json, const boost::json::object& o, const std::string& text) {
    return print_line(stdout, json ? boost::json::serialize(o) : text);
}

result<std::shared_ptr<fabric::device>> open_device(fabric::provider& p,
                                                    const std::string& wanted) {
    if (!wanted.empty()) return p.open(wanted);
    auto all = p.list();
    if (!all) return all.error();
    if (!all->empty()) return p.open(all->front().name);
    return failure{device_errc::none, "no RDMA device; see 'rvget doctor'"};
}

result<void> measure(const command_line& line, const std::vector<std::uint64_t>& sizes,
                     std::uint32_t repetitions) {
    auto provider = fabric::make_verbs_provider();
    auto device = open_device(*provider, line.text("device").value_or(""));
    if (!device) return device.error();
    const auto costs = diag::measure_registration(**device, sizes, repetitions);
    if (!costs) return costs.error();
    std::array<char, 160> text{};
    for (const auto& c : *costs) {
        auto o = diag::perf_record("registration");
        o["device"] = (*device)->facts().name;
        o["size_bytes"] = c.size_bytes;
        o["register_us"] = c.register_us.median;
        o["register_spread_us"] = ends_of(c.register_us);
        o["deregister_us"] = c.deregister_us.median;
        o["deregister_spread_us"] = ends_of(c.deregister_us);
        std::snprintf(text.data(), text.size(),
                      "%10llu bytes: register %10.2f us, deregister %10.2f us",
                      static_cast<unsigned long long>(c.size_bytes), c.register_us.median,
                      c.deregister_us.median);
        if (auto printed = print(line.json(), o, text.data()); !printed) return printed;
    }
    std::vector<std::uint64_t> lent;
    for (const auto size : sizes) {
        if (size <= largest_lent) lent.push_back(size);
    }
    if (lent.empty()) return {};
    const auto pools = diag::measure_pool(*device, lent, live_blocks, repetitions);
    if (!pools) return pools.error();
    for (const auto& c : *pools) {
        auto o = diag::perf_record("pool");
        o["size_bytes"] = c.size_bytes;
        o["live_blocks"] = c.live_blocks;
        o["allocate_and_free_ns"] = c.pair_ns.median;
        o["allocate_and_free_spread_ns"] = ends_of(c.pair_ns);
        std::snprintf(text.data(), text.size(),
                      "%10llu bytes: allocate and free from the pool %8.1f ns, %u others on loan",
                      static_cast<unsigned long long>(c.size_bytes), c.pair_ns.median,
                      c.live_blocks);
        if (auto printed = print(line.json(), o, text.data()); !printed) return printed;
    }
    return {};
}

}  // namespace

int measure_memory(const command_line& line) {
    const auto sizes = parse_sizes(line.text("size").value_or("4K..64M:x4"));
    if (!sizes) return line.wrong(sentence_of(sizes.error()));
    constexpr std::uint32_t repetitions = 30;
    const auto done = measure(line, *sizes, repetitions);
    const int status = done ? 0 : perf_not_started;
    if (!done) note(sentence_of(done.error()));
    if (!line.json()) return status;
    auto o = diag::perf_record("end");
    o["message"] = done ? "" : sentence_of(done.error());
    o["exit"] = status;
    return print_line(stdout, boost::json::serialize(o)) ? status : perf_not_started;
}

}  // namespace rvget::tools
