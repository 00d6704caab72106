#include "perf_sweep.hpp"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include <boost/json/serialize.hpp>

#include "console.hpp"
#include "diag/perf_record.hpp"
#include "diag/perf_sweep.hpp"
#include "perf_measure.hpp"
#include "perf_owner_process.hpp"

namespace rvget::tools {
namespace {

struct arm {
    const char* name;
    perf_operation operation;
    path_policy policy;
};
/// The first is what the others are compared with. Chunks come from the same pinned memory: only
/// the path differs.
constexpr std::array arms{arm{"get", perf_operation::get, path_policy::prefer},
                          arm{"get chunked", perf_operation::get, path_policy::never},
                          arm{"get_pinned", perf_operation::get_pinned, path_policy::prefer}};

class sweep {
public:
    sweep(const perf_settings& s, signal_watch& signals) : settings_(s), signals_(signals) {}

    /// Each arm has a fresh pair of nodes, so that its first transfer is a first one.
    result<void> run(const arm& a, const endpoint_address& at) {
        auto owner = perf_session::open(at, settings_.wish, signals_);
        if (!owner) return owner.error();
        auto consumer = perf_measure::start_consumer(settings_);
        if (!consumer) return consumer.error();
        for (const auto bytes : settings_.sizes) {
            const auto repetitions = settings_.iterations.value_or(10);
            auto staged = owner->stage(bytes, repetitions, settings_.pinned);
            if (!staged) return staged.error();
            const diag::perf_pattern pattern(bytes);
            perf_load_settings load{.operation = a.operation,
                                    .bytes = bytes,
                                    .load = {.iterations = 1},
                                    .policy = a.policy,
                                    .deadline = settings_.deadline};
            for (std::uint64_t n = 0; n < repetitions; ++n) {
                load.first_slot = n;
                perf_load one(*consumer, load, staged->urls, pattern);
                const auto r = one.run(signals_, {}, {});
                if (signals_.received()) return failure{request_errc::cancelled, "interrupted"};
                if (r.errors + r.wrong > 0) {
                    return failure{request_errc::refused, r.first_error};
                }
                transfers_.push_back(
                    {a.name, bytes, n, staged->pinned, r.paths.begin()->first, r.latency.max()});
                if (!settings_.json) continue;
                const auto text = boost::json::serialize(to_json(transfers_.back()));
                if (auto printed = print_line(stdout, text); !printed) return printed.error();
            }
        }
        return {};
    }

    [[nodiscard]] bool empty() const noexcept { return transfers_.empty(); }

    /// Of what there is.
    result<void> print_summary() const {
        if (empty()) return {};
        const auto cells = diag::summarise(transfers_);
        if (!settings_.json) {
            auto text = diag::to_text(cells);
            text.pop_back();
            return print_line(stdout, text);
        }
        for (const auto& record : diag::to_json(cells)) {
            if (auto printed = print_line(stdout, boost::json::serialize(record)); !printed) {
                return printed.error();
            }
        }
        return {};
    }

private:
    const perf_settings& settings_;
    signal_watch& signals_;
    std::vector<diag::sweep_transfer> transfers_;
};

}  // namespace

int sweep_perf(const perf_settings& settings) {
    signal_watch signals;
    sweep all(settings, signals);
    const auto end = [&](int status, const std::string& message) {
        if (!message.empty()) note(message);
        if (!settings.json) return status;
        auto o = diag::perf_record("end");
        o["message"] = message;
        o["exit"] = status;
        const auto printed = print_line(stdout, boost::json::serialize(o));
        return printed ? status : perf_not_started;
    };
    std::optional<perf_owner_process> own;
    auto at = settings.owner;
    if (!at) {
        auto started = perf_owner_process::start(settings.own_at, settings.pins,
                                                 settings.budget_bytes, signals);
        if (!started) return end(perf_not_started, sentence_of(started.error()));
        own.emplace(std::move(*started));
        at = own->address();
    }
    for (const auto& a : arms) {
        if (auto done = all.run(a, *at); !done) {
            const auto signal = signals.received();
            // What was done before it broke off is shown, and what could not start is no failure.
            const int status = all.empty() ? perf_not_started : perf_not_good;
            const auto shown = all.print_summary();
            return end(signal ? 128 + *signal : status,
                       sentence_of(shown ? done.error() : shown.error()));
        }
    }
    const auto printed = all.print_summary();
    return printed ? end(0, "") : end(perf_not_started, sentence_of(printed.error()));
}

}  // namespace rvget::tools
