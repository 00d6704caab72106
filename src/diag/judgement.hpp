#pragma once
// What the tables of rules are written with.

#include <algorithm>
#include <initializer_list>

#include "diag/rule.hpp"

namespace rvget::diag {

/// A value seen, of any plain kind.
struct observation : boost::json::value {
    observation() = default;
    observation(const char* s) : value(std::string_view(s)) {}         // NOLINT
    observation(const std::string& s) : value(std::string_view(s)) {}  // NOLINT
    template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
    observation(Number n) : value(n) {}  // NOLINT
};

inline judgement pass(observation observed = {}) {
    return {outcome::pass, {}, {}, std::move(static_cast<boost::json::value&>(observed))};
}
inline judgement skip(std::string reason) { return {outcome::skip, std::move(reason)}; }
inline judgement warn(std::string message, std::vector<std::string> fix,
                      observation observed = {}) {
    return {outcome::warn, std::move(message), std::move(fix),
            std::move(static_cast<boost::json::value&>(observed))};
}
inline judgement fail(std::string message, std::vector<std::string> fix,
                      observation observed = {}) {
    return {outcome::fail, std::move(message), std::move(fix),
            std::move(static_cast<boost::json::value&>(observed))};
}

template <class Number>
std::string text(Number value) {
    return std::to_string(value);
}

inline bool is_roce(const inventory::port& p) { return p.link_layer == "Ethernet"; }
inline bool is_link_local(const std::string& address) {
    return address.starts_with("fe8") || address.starts_with("169.254.");
}
inline bool is_ipv4(const std::string& address) { return address.find(':') == std::string::npos; }

/// What counters grew by while they were watched, by any of these names; nullopt: nobody watched.
inline std::optional<std::uint64_t> growth(const subject& s, const inventory::counters& grown,
                                           std::initializer_list<const char*> names) {
    if (s.facts.host.watched_ms == 0) return std::nullopt;
    std::uint64_t sum = 0;
    for (const auto* name : names) {
        if (const auto found = grown.find(name); found != grown.end()) sum += found->second;
    }
    return sum;
}
inline judgement unwatched() { return skip("needs --watch SECONDS"); }

void add_host_rules(std::vector<rule>& table);
void add_device_rules(std::vector<rule>& table);
void add_network_rules(std::vector<rule>& table);
void add_gid_rules(std::vector<rule>& table);
void add_traffic_rules(std::vector<rule>& table);

}  // namespace rvget::diag
