// The metrics of a node: that they say what happened, that names and labels are bounded, and that
// no result can look like another.

#include <set>
#include <sstream>
#include <string>

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>
#include <boost/test/unit_test.hpp>

#include "api/metrics.hpp"
#include "api/nodes.hpp"
#include "api/raw_peer.hpp"

namespace rvget::test {
namespace {

/// The value of one line of the text format, or -1 where there is none.
double value_of(const std::string& text, const std::string& name_and_labels) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
        if (line.starts_with(name_and_labels + " "))
            return std::stod(line.substr(name_and_labels.size() + 1));
    return -1;
}

BOOST_AUTO_TEST_SUITE(metrics)

BOOST_AUTO_TEST_CASE(contract_9_1_gets_count_on_both_sides_by_path_and_reason) {
    tcp_nodes n;
    const auto inline_url = n.stage(100);
    const auto chunked_url = n.stage(100'000);
    for (int i = 0; i < 3; ++i) BOOST_REQUIRE(n.consumer.get(chunked_url));
    BOOST_REQUIRE(n.consumer.get(inline_url));
    const auto at_consumer = n.consumer.metrics();
    const auto at_owner = n.owner.metrics();
    const std::string decisions = "rvget_path_decisions_total{side=\"";
    BOOST_TEST(value_of(at_consumer, decisions + "consumer\",path=\"chunked\",reason=\"" +
                                         "not_configured\"}") == 3);
    BOOST_TEST(value_of(at_consumer, decisions + "consumer\",path=\"inline\",reason=\"" +
                                         "not_configured\"}") == 1);
    BOOST_TEST(value_of(at_owner, decisions + "owner\",path=\"chunked\",reason=\"no_offer\"}") ==
               3);
    BOOST_TEST(value_of(at_consumer, "rvget_gets_total{result=\"ok\"}") == 0);
    BOOST_TEST(value_of(at_consumer, "rvget_gets_total{result=\"other_path\"}") == 4);
    BOOST_TEST(value_of(at_consumer, "rvget_gets_total{result=\"error\"}") == 0);
    BOOST_TEST(value_of(at_consumer, "rvget_gets_running") == 0);
    BOOST_TEST(value_of(at_consumer, "rvget_get_duration_seconds_count") == 4);
    BOOST_TEST(value_of(at_consumer, "rvget_get_duration_seconds_bucket{le=\"+Inf\"}") == 4);
    BOOST_TEST(value_of(at_consumer, "rvget_acquire_duration_seconds_count") == 4);
    BOOST_TEST(value_of(at_consumer, "rvget_get_duration_seconds_sum") > 0);
    BOOST_TEST(value_of(at_owner, "rvget_slots") == 2);
    // No READ ran, so nothing may say ok.
    BOOST_TEST(value_of(at_owner,
                        "rvget_rdma_info{reason=\"not_configured\",device=\"none\","
                        "lease_keys=\"none\"}") == 1);
    BOOST_TEST(at_consumer.find("reason=\"ok\"") == std::string::npos);
    BOOST_TEST(at_owner.find("reason=\"ok\"") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(contract_9_1_failed_get_is_an_error_and_no_decision) {
    tcp_nodes n;
    auto missing = n.stage(100);
    ++missing.handle.slot;
    BOOST_REQUIRE(!n.consumer.get(missing));
    const auto text = n.consumer.metrics();
    BOOST_TEST(value_of(text, "rvget_gets_total{result=\"error\"}") == 1);
    BOOST_TEST(value_of(text, "rvget_gets_total{result=\"other_path\"}") == 0);
    BOOST_TEST(value_of(text, "rvget_get_duration_seconds_count") == 0);
    BOOST_TEST(text.find("rvget_path_decisions_total{") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(contract_9_1_leases_add_up_and_connections_show_their_state) {
    tcp_nodes n;
    BOOST_REQUIRE(n.consumer.get(n.stage(100'000)));
    const auto owner = n.owner.metrics();
    BOOST_TEST(value_of(owner, "rvget_leases_granted_total") == 1);
    BOOST_TEST(value_of(owner, "rvget_leases_granted_total") ==
               value_of(owner, "rvget_leases_released_total") +
                   value_of(owner, "rvget_leases_expired_total") +
                   value_of(owner, "rvget_leases_active"));
    BOOST_TEST(value_of(owner, "rvget_connections{side=\"owner\",state=\"up\"}") == 1);
    BOOST_TEST(value_of(owner, "rvget_connections{side=\"owner\",state=\"handshaking\"}") == 0);
    BOOST_TEST(
        value_of(n.consumer.metrics(), "rvget_connections{side=\"consumer\",state=\"up\"}") == 1);
}

BOOST_AUTO_TEST_CASE(stranger_is_counted_while_it_waits_and_when_it_is_refused) {
    auto owner = start_tcp_node(listening());
    const auto shown = [&](const std::string& name, double wanted) {
        const auto end = std::chrono::steady_clock::now() + patience;
        while (value_of(owner.metrics(), name) != wanted)
            if (std::chrono::steady_clock::now() > end) return false;
        return true;
    };
    auto stranger = connect_raw(*owner.address());
    BOOST_TEST(shown("rvget_connections{side=\"owner\",state=\"handshaking\"}", 1));
    stranger.close();
    BOOST_TEST(shown("rvget_strangers_refused_total", 1));
    BOOST_TEST(shown("rvget_connections{side=\"owner\",state=\"handshaking\"}", 0));
}

BOOST_AUTO_TEST_CASE(contract_9_1_no_label_names_a_peer_and_no_value_a_handle) {
    tcp_nodes n;
    const auto from = n.stage(100'000);
    BOOST_REQUIRE(n.consumer.get(from));
    for (const auto& text : {n.owner.metrics(), n.consumer.metrics()}) {
        BOOST_TEST(text.find("127.0.0.1") == std::string::npos);
        BOOST_TEST(text.find(std::to_string(from.address.port)) == std::string::npos);
        BOOST_TEST(text.find(from.handle.to_string().substr(16)) == std::string::npos);
    }
}

BOOST_AUTO_TEST_CASE(metrics_after_shutdown_are_the_last_ones_and_after_the_node_none) {
    std::shared_ptr<prometheus::Collectable> source;
    {
        tcp_nodes n;
        source = n.consumer.metrics_source();
        BOOST_REQUIRE(n.consumer.get(n.stage(100'000)));
        BOOST_REQUIRE(n.consumer.shutdown(10s));
        BOOST_TEST(value_of(n.consumer.metrics(), "rvget_gets_total{result=\"other_path\"}") == 1);
        BOOST_TEST(!source->Collect().empty());
    }
    BOOST_TEST(source->Collect().empty());
}

BOOST_AUTO_TEST_CASE(contract_9_1_every_family_has_help_and_a_fixed_set_of_labels) {
    metrics_snapshot s;
    for (auto* table : {&s.counts.owner_decisions, &s.counts.consumer_results})
        for (auto& row : *table) row.fill(1);
    std::set<std::string> names;
    for (const auto& f : metric_families(s)) {
        BOOST_TEST(names.insert(f.name).second, f.name);
        BOOST_TEST(f.name.starts_with("rvget_"));
        BOOST_TEST(!f.help.empty());
        BOOST_TEST(f.name.ends_with("_total") == (f.type == prometheus::MetricType::Counter),
                   f.name);
        const std::set<std::string> known{"side",   "path",   "reason", "state",
                                          "status", "result", "device", "lease_keys"};
        for (const auto& m : f.metric)
            for (const auto& l : m.label) BOOST_TEST(known.contains(l.name), l.name);
        BOOST_TEST(f.metric.size() <= 2 * 3 * engine::counters::reasons, f.name);
    }
}

BOOST_AUTO_TEST_CASE(durations_fall_into_the_bucket_of_their_bound) {
    engine::duration_histogram h;
    h.record(10us);  // on a bound: not above it
    h.record(11us);
    h.record(1s);
    h.record(31s);
    BOOST_TEST(h.counts()[0] == 1u);
    BOOST_TEST(h.counts()[1] == 1u);
    BOOST_TEST(h.counts()[10] == 1u);
    BOOST_TEST(h.counts().back() == 1u);
    BOOST_TEST(h.sum_seconds() == 32.000021, boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace rvget::test
