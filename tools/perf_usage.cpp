#include "perf_usage.hpp"

#include <string>
#include <utility>
#include <vector>

#include <sys/resource.h>

#include "fabric/inventory/files.hpp"

namespace rvget::tools {
namespace {

double seconds(const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
}

}  // namespace

diag::end_usage usage_now() {
    namespace inventory = fabric::inventory;
    diag::end_usage u;
    rusage spent{};
    ::getrusage(RUSAGE_SELF, &spent);
    u.cpu_s = seconds(spent.ru_utime) + seconds(spent.ru_stime);
    const std::filesystem::path devices("/sys/class/infiniband");
    std::vector<std::filesystem::path> directories;
    std::vector<std::string> names;
    for (const auto& device : inventory::names_in(devices)) {
        const auto ports = devices / device / "ports";
        for (const auto& port : inventory::names_in(ports)) {
            directories.push_back(ports / port / "hw_counters");
            names.push_back(std::string(device).append("/").append(port).append(" "));
        }
    }
    const auto counted = inventory::read_counters_now(directories);
    for (std::size_t i = 0; i < names.size(); ++i) {
        for (const auto& [name, value] : counted[i]) u.counters[names[i] + name] = value;
    }
    return u;
}

diag::end_usage difference(const diag::end_usage& before, const diag::end_usage& after) {
    diag::end_usage grown{.cpu_s = after.cpu_s - before.cpu_s};
    diag::add_growth(grown.counters, before.counters, after.counters);
    return grown;
}

diag::end_usage usage_since(const diag::end_usage& before) {
    return difference(before, usage_now());
}

boost::json::object to_json(const diag::end_usage& usage) {
    boost::json::object counters;
    for (const auto& [name, value] : usage.counters) counters[name] = value;
    return {{"cpu_s", usage.cpu_s}, {"counters", std::move(counters)}};
}

result<diag::end_usage> usage_from(const boost::json::object& o) {
    const auto* cpu = o.if_contains("cpu_s");
    const auto* counters = o.if_contains("counters");
    const auto bad = failure{connection_errc::protocol,
                             "the owner's usage is not what this rvget knows; use the same version "
                             "on both sides"};
    if (cpu == nullptr || !cpu->is_number() || counters == nullptr || !counters->is_object()) {
        return bad;
    }
    diag::end_usage u{.cpu_s = cpu->to_number<double>()};
    for (const auto& [name, value] : counters->get_object()) {
        boost::system::error_code wrong;
        u.counters[std::string(name)] = value.to_number<std::uint64_t>(wrong);
        if (wrong) return bad;
    }
    return u;
}

}  // namespace rvget::tools
