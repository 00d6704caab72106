#include "perf_session.hpp"

#include <boost/json/array.hpp>

#include "perf_usage.hpp"

namespace rvget::tools {
namespace {

using namespace std::chrono_literals;

/// Staging fills memory, and in a guest the first touch of it is slow.
constexpr auto patience = 120s;
/// For counters alone, after which nothing is left to wait for.
constexpr auto usage_limit = 10s;

failure not_understood() {
    return {connection_errc::protocol,
            "the owner's answer is not what this rvget knows; use the same version on both sides"};
}

}  // namespace

perf_session::perf_session(perf_channel channel, std::string host, signal_watch& signals)
    : channel_(std::move(channel)), host_(std::move(host)), signals_(&signals) {}

result<perf_session> perf_session::open(const endpoint_address& at, const perf_owner_wish& wish,
                                        signal_watch& signals) {
    auto channel = perf_channel::connect(at, 10s);
    if (!channel) return channel.error();
    perf_session s(std::move(*channel), at.host, signals);
    auto greeting = s.channel_.ask({{"hello", "rvget.perf.control/1"},
                                    {"rdma_min_bytes", wish.rdma_min_bytes},
                                    {"inline_max", wish.inline_max},
                                    {"arena_bytes", wish.arena_bytes},
                                    {"lease_keys", wish.lease_keys}},
                                   signals, patience);
    if (!greeting) return greeting.error();
    s.greeting_ = std::move(*greeting);
    return s;
}

result<perf_session::slots> perf_session::stage(std::uint64_t bytes, std::uint64_t count,
                                                bool pinned) {
    boost::json::object question{{"stage", true}, {"bytes", bytes}, {"count", count}};
    if (!pinned) question["plain"] = true;
    auto answer = channel_.ask(question, *signals_, patience);
    if (!answer) return answer.error();
    const auto* urls = answer->if_contains("urls");
    const auto* is_pinned = answer->if_contains("pinned");
    const auto* why = answer->if_contains("why_plain");
    if (urls == nullptr || !urls->is_array() || urls->get_array().size() != count ||
        is_pinned == nullptr || !is_pinned->is_bool() || why == nullptr || !why->is_string()) {
        return not_understood();
    }
    slots s;
    s.pinned = is_pinned->get_bool();
    s.why_plain = why->get_string();
    for (const auto& text : urls->get_array()) {
        auto where = url::parse(text.is_string() ? std::string_view(text.get_string()) : "");
        if (!where) return not_understood();
        where->address.host = host_;
        s.urls.push_back(std::move(*where));
    }
    return s;
}

result<diag::end_usage> perf_session::usage() {
    auto answer = channel_.ask({{"usage", true}}, *signals_, usage_limit);
    if (!answer) return answer.error();
    return usage_from(*answer);
}

}  // namespace rvget::tools
