#include "perf_measure.hpp"

#include <algorithm>

#include "console.hpp"
#include "perf_usage.hpp"

namespace rvget::tools {
namespace {

void note_route(diag::perf_point& p, const perf_load& load) {
    if (!load.route() || !p.device.empty()) return;
    p.device = load.route()->device;
    p.port = load.route()->port;
    p.gid = load.route()->gid;
    p.path_mtu_bytes = load.route()->path_mtu_bytes;
}

}  // namespace

perf_measure::perf_measure(const perf_settings& settings, perf_session& owner,
                           signal_watch& signals)
    : settings_(&settings), owner_(&owner), signals_(&signals) {}

result<perf_measure> perf_measure::begin(const perf_settings& settings, perf_session& owner,
                                         signal_watch& signals) {
    perf_measure m(settings, owner, signals);
    auto started = start_consumer(settings);
    if (!started) return started.error();
    m.node_.emplace(std::move(*started));
    return m;
}

result<node> perf_measure::start_consumer(const perf_settings& s) {
    auto o = node_options::from_environment();
    s.pins.apply(o);
    o.wireup = s.wireup.value_or(o.wireup);
    o.rdma_min_bytes = s.wish.rdma_min_bytes;
    // Where no more is lent than what is in flight, and what a caller still holds.
    const auto largest = *std::ranges::max_element(s.sizes);
    const auto deepest = *std::ranges::max_element(s.depths);
    const auto wanted = (largest + 4096) * (deepest + 2);
    o.first_arena_bytes = std::clamp<std::size_t>(wanted, 64 << 10, 64 << 20);
    o.registered_budget_bytes = std::max<std::size_t>(2 * wanted, std::size_t{1} << 30);
    return node::start(o);
}

result<void> perf_measure::warm_up(perf_load_settings load, const std::vector<url>& slots,
                                   const diag::perf_pattern& pattern) {
    // At least one get in each lane, whatever it takes: connection, queue pair, first touches.
    load.load.rate = 0;
    load.verify = true;
    for (const bool first : {true, false}) {
        load.load.iterations = first ? std::optional<std::uint64_t>(load.load.depth) : std::nullopt;
        load.load.duration = first ? std::nullopt : std::optional(settings_->warmup);
        if (!first && settings_->warmup.count() == 0) break;
        perf_load warm(*node_, load, slots, pattern);
        if (auto ready = warm.prepare(); !ready) return ready.error();
        const auto run = warm.run(*signals_, {}, {});
        if (run.errors + run.wrong > 0) return failure{request_errc::refused, run.first_error};
        if (signals_->received()) break;
    }
    return {};
}

result<diag::perf_run> perf_measure::run_once(const perf_load_settings& load,
                                              const std::vector<url>& slots,
                                              const diag::perf_pattern& pattern,
                                              diag::perf_point& point,
                                              const perf_load::watcher& watch) {
    perf_load timed(*node_, load, slots, pattern);
    if (auto ready = timed.prepare(); !ready) return ready.error();
    const auto server_before = owner_->usage();
    if (!server_before) return server_before.error();
    const auto before = usage_now();
    auto run = timed.run(*signals_, settings_->interval, watch);
    run.client = usage_since(before);
    note_route(point, timed);
    // After a signal the owner is not asked: the answer would be waited for.
    if (signals_->received()) {
        point.broken_off = "ended by a signal";
        return run;
    }
    const auto server_after = owner_->usage();
    if (server_after) run.server = difference(*server_before, *server_after);
    // What was done before the owner was lost is done all the same.
    if (!server_after) point.broken_off = sentence_of(server_after.error());
    if (run.errors + run.wrong > 0) point.broken_off = run.first_error;
    return run;
}

result<diag::perf_run> perf_measure::run_cold(perf_load_settings load,
                                              const std::vector<url>& slots,
                                              const diag::perf_pattern& pattern,
                                              diag::perf_point& point) {
    diag::perf_point each;
    load.load.iterations = 1;
    for (std::uint64_t n = 0; n < settings_->iterations.value_or(1); ++n) {
        if (signals_->received()) break;
        node_.reset();
        auto fresh = start_consumer(*settings_);
        auto run = fresh ? result<diag::perf_run>(diag::perf_run{}) : fresh.error();
        if (fresh) {
            node_.emplace(std::move(*fresh));
            run = run_once(load, slots, pattern, point, {});
        }
        if (!run && each.runs.empty()) return run.error();
        if (!run) point.broken_off = sentence_of(run.error());
        if (run) each.runs.push_back(std::move(*run));
        if (!point.broken_off.empty()) break;
    }
    return each.total();
}

result<diag::perf_point> perf_measure::measure(perf_operation operation, std::uint64_t bytes,
                                               std::uint32_t depth,
                                               const perf_load::watcher& watch) {
    auto staged = owner_->stage(bytes, perf_slots, settings_->pinned);
    if (!staged) return staged.error();
    const diag::perf_pattern pattern(bytes);
    diag::perf_point p;
    p.op = to_string(operation);
    p.size_bytes = bytes;
    p.depth = depth;
    p.rate = settings_->rate;
    p.policy = rvget::to_string(settings_->policy);
    p.cold = settings_->cold;
    p.pinned = staged->pinned;
    const perf_load_settings load{.operation = operation,
                                  .bytes = bytes,
                                  .load = {.depth = depth,
                                           .rate = settings_->rate,
                                           .iterations = settings_->iterations,
                                           .duration = settings_->duration},
                                  .policy = settings_->policy,
                                  .deadline = settings_->deadline,
                                  .verify = settings_->verify_all || settings_->cold,
                                  .registered = settings_->registered};
    if (!settings_->cold) {
        if (auto warm = warm_up(load, staged->urls, pattern); !warm) return warm.error();
    }
    for (std::uint32_t n = 0; n < settings_->repeat && !signals_->received(); ++n) {
        auto run = settings_->cold ? run_cold(load, staged->urls, pattern, p)
                                   : run_once(load, staged->urls, pattern, p, watch);
        if (!run && p.runs.empty()) return run.error();
        if (!run) p.broken_off = sentence_of(run.error());
        if (run) p.runs.push_back(std::move(*run));
        if (!p.broken_off.empty()) return p;
    }
    if (p.runs.size() < settings_->repeat) p.broken_off = "ended by a signal";
    return p;
}

}  // namespace rvget::tools
