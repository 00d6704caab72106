#include "perf_owner.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>

#include <rvget/node.hpp>

#include "console.hpp"
#include "diag/perf_pattern.hpp"
#include "diag/perf_record.hpp"
#include "lease_keys.hpp"
#include "listen_address.hpp"
#include "perf_channel.hpp"
#include "perf_settings.hpp"
#include "perf_usage.hpp"
#include "quantity.hpp"

namespace rvget::tools {
namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;
namespace json = boost::json;

/// The number at `key`, or `otherwise`.
std::uint64_t number(const json::object& o, std::string_view key, std::uint64_t otherwise) {
    const auto* value = o.if_contains(key);
    error_code wrong;
    const auto given = value == nullptr ? otherwise : value->to_number<std::uint64_t>(wrong);
    return wrong ? otherwise : given;
}

/// One consumer, with a node of the kind that it wants.
class consumer_session {
public:
    consumer_session(const perf_owner_settings& settings, perf_channel channel,
                     signal_watch& signals)
        : settings_(settings), channel_(std::move(channel)), signals_(signals) {}

    /// Ends well when the consumer hangs up. Who comes to `others` meanwhile hears that it is
    /// taken.
    result<void> run(perf_listener& others) {
        std::optional<std::chrono::milliseconds> limit = 10s;  // it greets at once
        if (settings_.idle > 0ms) limit = std::min(*limit, settings_.idle);
        for (;;) {
            auto question = channel_.receive(signals_, limit, node_ ? &others : nullptr);
            if (!question) {
                const bool over = node_ && question.error().code == connection_errc::lost;
                return over ? result<void>() : question.error();
            }
            if (auto sent = channel_.send(answer(*question)); !sent) return sent.error();
            limit.reset();
        }
    }

    /// Whether it was a consumer: what only connects, or says something else, is none.
    [[nodiscard]] bool greeted() const noexcept { return node_.has_value(); }

private:
    json::object answer(const json::object& question) {
        if (question.contains("hello")) return greet(question);
        if (!node_) return {{"error", "no hello came first"}};
        if (question.contains("stage")) return stage(question);
        if (question.contains("usage")) return to_json(usage_now());
        return {{"error", "this owner does not know what was asked"}};
    }

    json::object greet(const json::object& wish) {
        if (node_) return {{"error", "a second hello"}};
        auto o = node_options::from_environment();
        o.listen = endpoint_address{channel_.local_host(), 0};
        settings_.pins.apply(o);
        o.rdma_min_bytes = number(wish, "rdma_min_bytes", o.rdma_min_bytes);
        o.inline_max = number(wish, "inline_max", o.inline_max);
        o.first_arena_bytes = number(wish, "arena_bytes", o.first_arena_bytes);
        o.registered_budget_bytes = std::max<std::size_t>(settings_.most_bytes, 2 << 20);
        o.first_arena_bytes = std::min(o.first_arena_bytes, o.registered_budget_bytes);
        if (const auto* keys = wish.if_contains("lease_keys")) {
            const auto* name = keys->if_string();
            const auto known = name == nullptr ? std::nullopt : lease_keys_of(*name);
            if (!known) return {{"error", "no such lease keys"}};
            o.lease_keys = *known;
        }
        // A first get waits for its queue pair: that is measured, and no reason for chunks.
        o.wireup_wait = 10s;
        auto started = node::start(o);
        if (!started) return {{"error", sentence_of(started.error())}};
        node_.emplace(std::move(*started));
        const auto rdma = node_->rdma();
        return {{"rvget", RVGET_VERSION},
                {"rdma", rdma.usable},
                {"reason", to_string(rdma.reason)},
                {"detail", rdma.detail},
                {"device", rdma.device},
                {"lease_keys", name_of(rdma.lease_keys)}};
    }

    json::object stage(const json::object& wanted) {
        for (const auto& h : staged_) static_cast<void>(node_->release(h));
        staged_.clear();
        const auto bytes = number(wanted, "bytes", 0);
        const auto count = number(wanted, "count", 0);
        // A slot takes whole pages of the pool, and something besides.
        constexpr std::uint64_t most_slots = 65'536;
        constexpr std::uint64_t page = 4096;
        if (count == 0 || bytes == 0 || count > most_slots ||
            std::max(bytes, page) > settings_.most_bytes / count) {
            return {{"error", std::to_string(count) + " slots of " + std::to_string(bytes) +
                                  " bytes are nothing, or more than " +
                                  format_bytes(settings_.most_bytes) +
                                  ": give the owner a larger --budget"}};
        }
        const auto* plain = wanted.if_contains("plain");
        const bool pinned = plain == nullptr;
        const diag::perf_pattern pattern(bytes);
        json::array urls;
        std::string why_plain;
        for (std::uint64_t slot = 0; slot < count && !signals_.received(); ++slot) {
            auto memory = node_->make_staging(bytes, pinned);
            if (!memory) return {{"error", sentence_of(memory.error())}};
            if (!memory->pinned()) {
                why_plain =
                    std::string(to_string(memory->why_plain())) + " " + memory->why_plain_detail();
            }
            pattern.fill(memory->bytes(), slot);
            auto staged = node_->stage(std::move(*memory));
            if (!staged) return {{"error", sentence_of(staged.error())}};
            staged_.push_back(*staged);
            urls.emplace_back(node_->url_of(*staged).to_string());
        }
        return {{"urls", std::move(urls)}, {"pinned", why_plain.empty()}, {"why_plain", why_plain}};
    }

    const perf_owner_settings& settings_;
    perf_channel channel_;
    signal_watch& signals_;
    std::optional<node> node_;
    std::vector<handle> staged_;
};

result<void> announce(const perf_owner_settings& s, const endpoint_address& at) {
    if (!is_loopback(at)) {
        note("WARNING: open without authentication on " + at.to_string() +
             ": whoever reaches it can make this process stage up to " +
             format_bytes(s.most_bytes) + " of a pattern; keep it to a trusted network");
    }
    auto told = diag::perf_record("listening");
    told["address"] = at.to_string();
    return print_line(stdout, s.json ? json::serialize(told) : "listening on " + at.to_string());
}

}  // namespace

int own_perf(const perf_owner_settings& settings) {
    std::uint64_t consumers = 0;
    const auto end = [&](int status, const std::string& message) {
        if (!message.empty()) note(message);
        if (!settings.json) return status;
        auto o = diag::perf_record("end");
        o["consumers"] = consumers;
        o["message"] = message;
        o["exit"] = status;
        return print_line(stdout, json::serialize(o)) ? status : perf_not_started;
    };
    signal_watch signals;
    auto listener = perf_listener::open(settings.listen);
    if (!listener) return end(perf_not_started, sentence_of(listener.error()));
    if (auto told = announce(settings, listener->address()); !told) {
        return end(perf_not_started, sentence_of(told.error()));
    }
    // From the last consumer on: what only connects is none.
    for (auto last = clock::now(); !signals.received() && (settings.keep || consumers == 0);) {
        std::optional<std::chrono::milliseconds> limit;
        if (settings.idle > 0ms) {
            limit = std::max(0ms, std::chrono::ceil<std::chrono::milliseconds>(
                                      last + settings.idle - clock::now()));
        }
        auto channel = listener->accept(signals, limit);
        if (!channel) {
            const bool idle = channel.error().code == request_errc::deadline_exceeded;
            if (signals.received() || (idle && consumers > 0)) break;
            if (channel.error().code == connection_errc::lost) continue;
            return end(perf_not_started, idle ? "no consumer came within " +
                                                    std::to_string(settings.idle.count()) +
                                                    " ms; see --idle"
                                              : sentence_of(channel.error()));
        }
        consumer_session session(settings, std::move(*channel), signals);
        if (auto done = session.run(*listener); !done && !signals.received()) {
            note(sentence_of(done.error()));
        }
        if (!session.greeted()) continue;
        ++consumers;
        last = clock::now();
    }
    // Whoever waits hears more than the end of the connection.
    constexpr int most_told = 8;
    for (int told = 0; told < most_told && listener->somebody_waits(); ++told) {
        listener->refuse(signals,
                         "it ends now; 'rvget perf --listen ADDR --keep' serves one "
                         "consumer after the other");
    }
    // That a signal ends it is how it is meant to end.
    return end(0, "");
}

}  // namespace rvget::tools
