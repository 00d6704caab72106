#include "api/metrics.hpp"

#include <cctype>
#include <limits>
#include <utility>

#include "fabric/fabric.hpp"

namespace rvget {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using labels = std::vector<ClientMetric::Label>;

MetricFamily family(const char* name, const char* help, MetricType type) {
    return {std::string("rvget_") + name, help, type, {}};
}

/// One number of a counter or gauge.
void add(MetricFamily& f, labels of, double value) {
    ClientMetric m;
    m.label = std::move(of);
    (f.type == MetricType::Counter ? m.counter.value : m.gauge.value) = value;
    f.metric.push_back(std::move(m));
}

MetricFamily counter(const char* name, const char* help, std::uint64_t value) {
    auto f = family(name, help, MetricType::Counter);
    add(f, {}, static_cast<double>(value));
    return f;
}

MetricFamily gauge(const char* name, const char* help, std::uint64_t value) {
    auto f = family(name, help, MetricType::Gauge);
    add(f, {}, static_cast<double>(value));
    return f;
}

MetricFamily histogram(const char* name, const char* help, const engine::duration_histogram& h) {
    auto f = family(name, help, MetricType::Histogram);
    ClientMetric m;
    for (std::size_t i = 0; i < h.counts().size(); ++i) {
        m.histogram.sample_count += h.counts()[i];
        const bool last = i == engine::duration_histogram::bounds.size();
        m.histogram.bucket.push_back(
            {m.histogram.sample_count, last ? std::numeric_limits<double>::infinity()
                                            : engine::duration_histogram::bounds[i]});
    }
    m.histogram.sample_sum = h.sum_seconds();
    f.metric.push_back(std::move(m));
    return f;
}

std::string label_of(std::string_view sentence) {
    std::string label;
    for (const char c : sentence) {
        const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
        if (plain || (!label.empty() && label.back() != '_')) label += plain ? c : '_';
    }
    return label;
}

/// Only what has happened: all that could are too many to show as zeros.
MetricFamily decisions(const engine::counters& c) {
    auto f = family("path_decisions_total",
                    "Owner: acquires by the path given and why. Consumer: gets that have all "
                    "their bytes, by the path that they took and why; ok is a completed READ.",
                    MetricType::Counter);
    const std::pair<const char*, const decltype(c.owner_decisions)*> sides[] = {
        {"owner", &c.owner_decisions}, {"consumer", &c.consumer_results}};
    for (const auto& [side, table] : sides)
        for (std::size_t p = 0; p < table->size(); ++p)
            for (std::size_t r = 0; r < (*table)[p].size(); ++r)
                if ((*table)[p][r] != 0)
                    add(f,
                        {{"side", side},
                         {"path", std::string(to_string(static_cast<path>(p)))},
                         {"reason", std::string(to_string(static_cast<reason>(r)))}},
                        static_cast<double>((*table)[p][r]));
    return f;
}

MetricFamily completion_errors(const engine::counters& c) {
    auto f = family("completion_errors_total",
                    "Work requests of any kind that took their queue pair to error, by status.",
                    MetricType::Counter);
    for (std::size_t s = 0; s < c.completion_errors.size(); ++s)
        if (const auto status = static_cast<fabric::completion_status>(s);
            status != fabric::completion_status::success)
            add(f, {{"status", label_of(to_string(status))}},
                static_cast<double>(c.completion_errors[s]));
    return f;
}

MetricFamily connections(const engine::node_core::connection_counts& c) {
    auto f = family("connections", "Control connections, by side and state.", MetricType::Gauge);
    add(f, {{"side", "owner"}, {"state", "handshaking"}},
        static_cast<double>(c.accepted_handshaking));
    add(f, {{"side", "owner"}, {"state", "up"}}, static_cast<double>(c.accepted_up));
    add(f, {{"side", "consumer"}, {"state", "connecting"}}, static_cast<double>(c.made_connecting));
    add(f, {{"side", "consumer"}, {"state", "up"}}, static_cast<double>(c.made_up));
    return f;
}

std::string_view name_of(lease_key_choice c) {
    switch (c) {
        case lease_key_choice::window:
            return "window";
        case lease_key_choice::exact:
            return "exact";
        case lease_key_choice::fence:
            return "fence";
        case lease_key_choice::strongest:
            break;
    }
    return "none";
}

/// Always 1: what it says is in its labels.
MetricFamily rdma(const rdma_status& r) {
    auto f = family("rdma_info",
                    "Whether RDMA is usable (reason ok) or why not, over which device, and the "
                    "keys that leases granted here have.",
                    MetricType::Gauge);
    add(f,
        {{"reason", std::string(to_string(r.usable ? reason::ok : r.reason))},
         {"device", r.usable ? r.device : "none"},
         {"lease_keys", std::string(r.usable ? name_of(r.lease_keys) : "none")}},
        1);
    return f;
}

MetricFamily gets(const engine::counters& c) {
    auto f = family("gets_total",
                    "Gets that were answered: ok by a completed READ, with their bytes by another "
                    "path, or with an error.",
                    MetricType::Counter);
    const auto ok = c.consumer_results[static_cast<std::size_t>(path::rdma)]
                                      [static_cast<std::size_t>(reason::ok)];
    add(f, {{"result", "ok"}}, static_cast<double>(ok));
    add(f, {{"result", "other_path"}}, static_cast<double>(c.gets_answered - c.gets_failed - ok));
    add(f, {{"result", "error"}}, static_cast<double>(c.gets_failed));
    return f;
}

MetricFamily queue_pairs(const engine::counters& c) {
    auto f = family("queue_pairs_total", "Queue pairs, by what became of them at their making.",
                    MetricType::Counter);
    add(f, {{"result", "made"}}, static_cast<double>(c.lanes_made));
    add(f, {{"result", "failed"}}, static_cast<double>(c.lanes_failed));
    return f;
}

}  // namespace

std::vector<MetricFamily> metric_families(const metrics_snapshot& s) {
    const auto& c = s.counts;
    return {
        rdma(s.rdma),
        decisions(c),
        gets(c),
        gauge("gets_running", "Gets that were begun and not answered yet.",
              c.gets_started - c.gets_answered),
        histogram("get_duration_seconds", "Gets that brought their bytes.", c.gets),
        histogram("acquire_duration_seconds", "From asking an owner to its answer.", c.acquires),
        histogram("wireup_duration_seconds", "From wanting a queue pair to having it.", c.wireups),
        counter("fallbacks_total", "Gets that went on in chunks after an RDMA answer.",
                c.acquires_without_offer_after_rdma),
        counter("rekeys_total",
                "READs begun anew because their queue pair went down for another's.",
                c.gets_rekeyed),
        counter("leases_granted_total", "Leases; granted = released + expired + active.",
                c.leases_granted),
        counter("leases_released_total", "Leases that their consumer ended.", c.leases_released),
        counter("leases_expired_total", "Leases that were revoked.", c.leases_expired),
        gauge("leases_active", "Leases.", c.leases_active),
        counter("revocations_total", "Of leases that their consumer did not end in time.",
                c.revocations),
        gauge("slots", "Staged slots.", s.slots),
        gauge("registered_bytes", "Registered memory of the pool, whole pages.",
              s.memory.registered_bytes),
        gauge("arenas", "Registered arenas.", s.memory.arenas),
        gauge("arena_used_bytes", "On loan from the arenas, whole granules.", s.memory.used_bytes),
        gauge("regions", "Memory that callers registered.", s.regions),
        connections(s.connections),
        counter("strangers_refused_total", "Accepted connections that ended before they greeted.",
                c.strangers_refused),
        queue_pairs(c),
        gauge("spare_queue_pairs", "Queue pairs made ahead of need.", s.spare_queue_pairs),
        counter("spare_queue_pairs_used_total", "Queue pairs that had been made ahead of need.",
                c.spares_used),
        counter("queue_pairs_leaked_total", "Queue pairs that were never proven quiet.",
                c.lanes_leaked),
        completion_errors(c),
        counter("checksum_mismatches_total", "Ranges that arrived with another CRC-32C.",
                c.checksum_mismatches),
        counter("copied_bytes_total", "Copied by the CPU between arrival and destination.",
                c.bytes_copied),
    };
}

}  // namespace rvget
