// What `rvget perf` makes of its samples: percentiles, the schedule of an open loop, verdicts, and
// what is printed.

#include <algorithm>
#include <cmath>
#include <deque>
#include <random>
#include <vector>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/test/unit_test.hpp>

#include "diag/latency_histogram.hpp"
#include "diag/load_schedule.hpp"
#include "diag/perf_chart.hpp"
#include "diag/perf_limits.hpp"
#include "diag/perf_pattern.hpp"
#include "diag/perf_record.hpp"
#include "diag/perf_sweep.hpp"
#include "support/seed.hpp"

using namespace rvget::diag;
using namespace std::chrono_literals;
using std::chrono::nanoseconds;

namespace {

constexpr double three_digits = 0.001;

/// The same by sorting all samples.
nanoseconds sorted_percentile(std::vector<nanoseconds> samples, double share) {
    std::sort(samples.begin(), samples.end());
    const auto wanted = std::ceil(share * static_cast<double>(samples.size()));
    return samples[static_cast<std::size_t>(std::max(wanted, 1.0)) - 1];
}

perf_run run_of(std::uint64_t bytes_each, std::vector<nanoseconds> latencies) {
    perf_run r;
    for (const auto l : latencies) {
        r.latency.record(l);
        r.took += l;
        r.bytes += bytes_each;
        ++r.paths["rdma/ok"];
    }
    return r;
}

perf_point point_of(std::uint64_t bytes, const std::vector<std::vector<nanoseconds>>& runs) {
    perf_point p{.op = "get", .size_bytes = bytes, .policy = "prefer"};
    for (const auto& r : runs) p.runs.push_back(run_of(bytes, r));
    return p;
}

std::optional<std::uint64_t> plain_size(std::string_view text) {
    std::uint64_t value = 0;
    for (const char c : text) {
        if (c < '0' || c > '9') return std::nullopt;
        value = value * 10 + static_cast<std::uint64_t>(c - '0');
    }
    return text.empty() ? std::nullopt : std::optional(value);
}

perf_requirement required(std::string_view text) {
    return perf_requirement::parse(text, plain_size).value();
}

std::string json_lines(const std::vector<perf_point>& points) {
    std::string text = R"({"schema":"rvget.perf/1","type":"start"})"
                       "\n";
    for (const auto& p : points) text += boost::json::serialize(to_json(p)) + "\n";
    return text;
}

/// Latencies of a server that takes `service` for each operation, one at a time, and stands still
/// from `stall_at` for `stall`; in time of its own.
latency_histogram served(const load_options& options, nanoseconds service, nanoseconds stall_at,
                         nanoseconds stall) {
    using time_point = load_schedule::time_point;
    latency_histogram seen;
    const time_point start{};
    time_point now = start;
    load_schedule schedule(options, start);
    struct operation {
        time_point from;
        time_point done;
    };
    std::deque<operation> running;
    time_point server_free = start;
    while (!schedule.over(now)) {
        while (const auto from = schedule.begin(now)) {
            auto begins = std::max(now, server_free);
            if (begins >= start + stall_at && begins < start + stall_at + stall) {
                begins = start + stall_at + stall;
            }
            server_free = begins + service;
            running.push_back({*from, server_free});
        }
        const auto due = schedule.next_due(now);
        if (!running.empty() && (!due || running.front().done <= *due)) {
            now = std::max(now, running.front().done);
            seen.record(now - running.front().from);
            running.pop_front();
            schedule.ended();
        } else if (due) {
            now = std::max(now, *due);
        }
    }
    return seen;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(perf)

BOOST_AUTO_TEST_CASE(histogram_of_random_samples_agrees_with_a_sort_to_three_digits) {
    auto draw = rvget::test::seeded_generator();
    for (int round = 0; round < 50; ++round) {
        // Over all magnitudes from nanoseconds to a minute.
        std::uniform_real_distribution<double> exponent(0, 10.7);
        const std::size_t count = 1 + draw() % 3000;
        latency_histogram h;
        std::vector<nanoseconds> samples;
        double sum = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const nanoseconds sample(static_cast<std::int64_t>(std::pow(10, exponent(draw))));
            samples.push_back(sample);
            sum += static_cast<double>(sample.count());
            h.record(sample);
        }
        for (const double share : {0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0}) {
            const auto exact = sorted_percentile(samples, share);
            const auto got = h.percentile(share);
            BOOST_TEST(got >= exact);
            BOOST_TEST(static_cast<double>(got.count()) <=
                       static_cast<double>(exact.count()) * (1 + three_digits));
        }
        BOOST_TEST((h.min() == sorted_percentile(samples, 0)));
        BOOST_TEST((h.max() == sorted_percentile(samples, 1)));
        BOOST_TEST(h.count() == count);
        BOOST_TEST(h.mean_ns() == sum / static_cast<double>(count),
                   boost::test_tools::tolerance(1e-9));
    }
}

BOOST_AUTO_TEST_CASE(histogram_merged_is_that_of_all_samples) {
    latency_histogram one;
    latency_histogram other;
    latency_histogram both;
    for (int i = 1; i <= 1000; ++i) {
        const nanoseconds sample(i * i * 17);
        (i % 3 == 0 ? one : other).record(sample);
        both.record(sample);
    }
    latency_histogram merged;
    merged.merge(one);
    merged.merge(other);
    merged.merge(latency_histogram{});
    BOOST_TEST(merged.count() == 1000U);
    for (const double share : {0.0, 0.5, 0.99, 1.0}) {
        BOOST_TEST(merged.percentile(share).count() == both.percentile(share).count());
    }
    BOOST_TEST(merged.mean_ns() == both.mean_ns(), boost::test_tools::tolerance(1e-9));
    BOOST_TEST(merged.deviation_ns() == both.deviation_ns(), boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(histogram_beyond_its_range_counts_and_keeps_the_maximum) {
    latency_histogram h;
    h.record(1us);
    h.record(150s);
    BOOST_TEST(h.count() == 2U);
    BOOST_TEST(h.overflowed() == 1U);
    BOOST_TEST((h.max() == 150s));
    BOOST_TEST((h.percentile(1) == 150s));
    BOOST_TEST((h.percentile(0.5) == 1us));
}

BOOST_AUTO_TEST_CASE(histogram_without_samples_is_zero) {
    const latency_histogram h;
    BOOST_TEST(h.count() == 0U);
    BOOST_TEST(h.percentile(0.99).count() == 0);
    BOOST_TEST(h.deviation_ns() == 0.0);
}

BOOST_AUTO_TEST_CASE(open_loop_over_a_stall_shows_it_in_p999) {
    // 10 s at 1000 a second; a stall of 200 ms delays some 200 of 10,000 by up to as much.
    const load_options open{.depth = 4, .rate = 1000, .duration = 10s};
    const auto seen = served(open, 100us, 5s, 200ms);
    BOOST_TEST(seen.count() == 10'000U);
    BOOST_TEST((seen.percentile(0.5) < 101us));
    BOOST_TEST((seen.percentile(0.999) > 190ms));
    BOOST_TEST((seen.percentile(0.99) > 90ms));
    // A load that waits for each answer meets it once in ten thousand, and hides it.
    const load_options closed{.depth = 1, .iterations = 10'000};
    BOOST_TEST((served(closed, 100us, 500ms, 200ms).percentile(0.999) < 1ms));
}

BOOST_AUTO_TEST_CASE(open_loop_without_a_stall_has_the_service_time_only) {
    const load_options open{.depth = 4, .rate = 1000, .duration = 1s};
    const auto seen = served(open, 100us, 100s, 0s);
    BOOST_TEST(seen.count() == 1000U);
    BOOST_TEST((seen.max() == 100us));
}

BOOST_AUTO_TEST_CASE(open_loop_stalled_at_its_end_still_begins_what_was_due) {
    const load_options open{.depth = 1, .rate = 1000, .duration = 1s};
    const auto seen = served(open, 100us, 900ms, 500ms);
    BOOST_TEST(seen.count() == 1000U);
    BOOST_TEST((seen.percentile(0.999) > 400ms));
}

BOOST_AUTO_TEST_CASE(open_loop_that_cannot_catch_up_ends_and_counts_what_was_never_begun) {
    // 1000 a second are due for half a second, each takes 10 ms: another half second to catch up.
    const load_schedule::time_point start{};
    auto now = start;
    load_schedule s({.rate = 1000, .duration = 500ms}, start);
    std::uint64_t done = 0;
    while (!s.over(now)) {
        BOOST_REQUIRE((s.begin(now) == start + 1ms * done));
        now += 10ms;
        s.ended();
        ++done;
    }
    BOOST_TEST(done == 100U);
    BOOST_TEST(s.never_begun() == 400U);
}

BOOST_AUTO_TEST_CASE(open_loop_that_keeps_up_or_is_stopped_leaves_nothing_behind) {
    const load_schedule::time_point start{};
    load_schedule kept({.rate = 1000, .duration = 3ms}, start);
    for (int n = 0; n < 3; ++n) {
        BOOST_TEST_REQUIRE(kept.begin(start + n * 1ms).has_value());
        kept.ended();
    }
    BOOST_TEST(kept.over(start + 3ms));
    BOOST_TEST(kept.never_begun() == 0U);
    load_schedule stopped({.rate = 1000, .duration = 3ms}, start);
    stopped.stop();
    BOOST_TEST(stopped.over(start));
    BOOST_TEST(stopped.never_begun() == 0U);
    load_schedule fewer({.rate = 1000, .iterations = 2, .duration = 3ms}, start);
    BOOST_TEST_REQUIRE(fewer.begin(start).has_value());
    BOOST_TEST(fewer.never_begun() == 1U);
}

BOOST_AUTO_TEST_CASE(closed_loop_keeps_its_depth_and_ends_after_its_iterations) {
    const load_schedule::time_point now{};
    load_schedule s({.depth = 3, .iterations = 5}, now);
    for (int i = 0; i < 3; ++i) BOOST_TEST(s.begin(now).has_value());
    BOOST_TEST(!s.begin(now));
    BOOST_TEST(!s.next_due(now));
    s.ended();
    BOOST_TEST(s.begin(now).has_value());
    BOOST_TEST(!s.over(now));
    s.stop();
    BOOST_TEST(!s.begin(now));
    for (int i = 0; i < 3; ++i) s.ended();
    BOOST_TEST(s.over(now));
}

BOOST_AUTO_TEST_CASE(point_of_three_runs_has_their_median_and_spread) {
    const auto p = point_of(1000, {{1us, 1us}, {2us, 2us}, {4us, 4us}});
    const auto rate = p.gigabits_per_s();
    BOOST_TEST(rate.median == 4.0, boost::test_tools::tolerance(1e-9));
    BOOST_TEST(rate.low == 2.0, boost::test_tools::tolerance(1e-9));
    BOOST_TEST(rate.high == 8.0, boost::test_tools::tolerance(1e-9));
    BOOST_TEST(p.total().latency.count() == 6U);
    const auto flags = p.flags();
    BOOST_TEST(std::count(flags.begin(), flags.end(), "unstable") == 1);
    BOOST_TEST(std::count(flags.begin(), flags.end(), "lossy") == 0);
}

BOOST_AUTO_TEST_CASE(point_with_a_retry_is_lossy) {
    auto p = point_of(1000, {{1us}});
    p.runs.front().server.emplace().counters["rxe0/1 duplicate_request"] = 1;
    const auto flags = p.flags();
    BOOST_TEST(std::count(flags.begin(), flags.end(), "lossy") == 1);
}

BOOST_AUTO_TEST_CASE(point_says_where_there_is_less_than_was_wanted) {
    auto p = point_of(64, {{1us}, {1us}});
    BOOST_TEST(p.flags().empty());
    p.runs[1].never_begun = 3;
    BOOST_TEST(p.flags() == std::vector<std::string>{"overloaded"});
    BOOST_TEST(to_json(p).at("never_begun").to_number<int>() == 3);
    p.runs[1].never_begun = 0;
    p.broken_off = "the other side has hung up";
    BOOST_TEST(p.flags() == std::vector<std::string>{"incomplete"});
    BOOST_TEST(to_json(p).at("broken_off").as_string() == p.broken_off);
}

BOOST_AUTO_TEST_CASE(counters_that_were_reset_grew_by_their_value) {
    counter_growth grown;
    add_growth(grown, {{"a", 5}, {"b", 5}, {"c", 5}}, {{"a", 7}, {"b", 3}, {"c", 5}, {"d", 1}});
    BOOST_TEST((grown == counter_growth{{"a", 2}, {"b", 3}, {"d", 1}}));
}

BOOST_AUTO_TEST_CASE(requirement_holds_only_where_all_points_of_its_size_do) {
    const std::vector points{point_of(4096, {{10us, 10us}}), point_of(65536, {{30us, 30us}})};
    const auto held = [&](std::string_view text) {
        return judge({required(text)}, points).front().held;
    };
    BOOST_TEST(held("p50_us<=30"));
    BOOST_TEST(!held("p50_us<=29"));  // one of the two: a pass of the other must not hide it
    BOOST_TEST(held("p50_us<=11@4096"));
    BOOST_TEST(held("p50_us>=29@65536"));
    BOOST_TEST(!held("p50_us>=31@65536"));
    BOOST_TEST(!held("p50_us<=1000@8"));  // nothing was measured at that size
    BOOST_TEST(!judge({required("p50_us<=30")}, {}).front().held);
    BOOST_TEST(!judge({required("p50_us<=30")}, {perf_point{}}).front().held);
}

BOOST_AUTO_TEST_CASE(requirement_of_no_figure_or_bound_is_refused) {
    for (const auto* text : {"", "p50_us", "p50_us<30", "p50_us<=", "p50_us<=x", "nothing<=3",
                             "p50_us<=3@", "p50_us<=3@x", "p50_us<=3 "}) {
        BOOST_TEST(!perf_requirement::parse(text, plain_size), text);
    }
}

BOOST_AUTO_TEST_CASE(comparison_is_a_regression_only_outside_both_spreads) {
    const auto before =
        perf_baseline::parse(json_lines({point_of(4096, {{10us}, {11us}, {12us}})})).value();
    const auto held = [&](const std::vector<std::vector<nanoseconds>>& runs) {
        return compare(before, {point_of(4096, runs)}).front().held;
    };
    BOOST_TEST(held({{10us}, {11us}, {12us}}));
    BOOST_TEST(held({{5us}, {6us}, {7us}}));      // better
    BOOST_TEST(held({{12us}, {13us}, {14us}}));   // worse, but they meet
    BOOST_TEST(!held({{13us}, {14us}, {15us}}));  // worse
    BOOST_TEST(!compare(before, {point_of(8192, {{1us}})}).front().held);
}

BOOST_AUTO_TEST_CASE(baseline_without_points_is_refused) {
    for (const auto* text : {"", "{}", "not json\n", R"({"schema":"rvget.perf/1","type":"end"})",
                             R"({"schema":"rvget.perf/1","type":"point","key":7})"}) {
        BOOST_TEST(!perf_baseline::parse(text), text);
    }
}

BOOST_AUTO_TEST_CASE(json_of_a_point_parses_and_has_the_figures) {
    const auto text = boost::json::serialize(to_json(point_of(4096, {{10us, 20us, 30us}})));
    const auto o = boost::json::parse(text).as_object();
    BOOST_TEST(o.at("schema").as_string() == "rvget.perf/1");
    BOOST_TEST(o.at("count").to_number<int>() == 3);
    BOOST_TEST(o.at("latency_us").at("p50").to_number<double>() == 20.0,
               boost::test_tools::tolerance(three_digits));
    BOOST_TEST(o.at("paths").at("rdma/ok").to_number<int>() == 3);
    BOOST_TEST(o.at("cpu_s").at("server").is_null());
}

BOOST_AUTO_TEST_CASE(csv_has_as_many_fields_in_each_row_as_in_its_heading) {
    const auto text = to_csv({point_of(4096, {{10us}}), point_of(65536, {{10us}})});
    std::vector<std::ptrdiff_t> commas;
    for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
        const auto line = text.substr(at, text.find('\n', at) - at);
        commas.push_back(std::count(line.begin(), line.end(), ','));
    }
    BOOST_TEST(commas.size() == 3U);
    BOOST_TEST((commas == std::vector(3, commas.front())));
}

BOOST_AUTO_TEST_CASE(text_line_is_as_wide_as_its_heading) {
    const auto line = to_line(point_of(4096, {{10us}}));
    BOOST_TEST(line.find("rdma/ok") == perf_heading().find("path"));
}

BOOST_AUTO_TEST_CASE(pattern_with_any_one_byte_changed_does_not_match) {
    const perf_pattern pattern(1001);  // not whole words
    std::vector<std::byte> bytes(1001);
    pattern.fill(bytes, 3);
    BOOST_TEST(pattern.matches(bytes, 3));
    for (auto& b : bytes) {
        b ^= std::byte{0x10};
        BOOST_TEST(!pattern.matches(bytes, 3));
        b ^= std::byte{0x10};
    }
    BOOST_TEST(pattern.matches(bytes, 3));
}

BOOST_AUTO_TEST_CASE(pattern_of_one_slot_has_no_byte_of_another) {
    const perf_pattern pattern(300);
    std::vector<std::byte> one(300);
    std::vector<std::byte> other(300);
    pattern.fill(one, 0);
    for (std::size_t slot = 1; slot < 256; ++slot) {
        pattern.fill(other, slot);
        const auto alike = std::ranges::mismatch(one, other, std::ranges::not_equal_to{});
        BOOST_TEST((alike.in1 == one.end()));
    }
}

BOOST_AUTO_TEST_CASE(pattern_spoilt_has_a_wrong_byte_in_each_smallest_packet) {
    const perf_pattern pattern(4 * 256 + 7);
    std::vector<std::byte> right(4 * 256 + 7);
    pattern.fill(right, 1);
    auto spoilt = right;
    perf_pattern::spoil(spoilt);
    for (std::size_t at = 0; at < right.size(); at += 256) {
        const auto n = std::min<std::size_t>(256, right.size() - at);
        BOOST_TEST(!std::equal(&right[at], &right[at] + n, &spoilt[at]));
    }
}

BOOST_AUTO_TEST_CASE(sweep_keeps_first_transfers_out_of_the_warm_median) {
    std::vector<sweep_transfer> all;
    for (const auto* arm : {"get", "chunked"}) {
        for (std::uint64_t n = 0; n < 4; ++n) {
            const auto took = n == 0 ? 14ms : (arm[0] == 'g' ? 100us : 200us) * n;
            all.push_back({arm, 4096, n, true, n == 0 ? "rdma/ok" : "chunked/policy", took});
        }
    }
    const auto cells = summarise(all);
    BOOST_REQUIRE(cells.size() == 2U);
    BOOST_TEST(cells[0].first_us == 14'000.0);
    BOOST_TEST(cells[0].warm_us.median == 200.0);
    BOOST_TEST(cells[0].warm_us.high == 300.0);
    BOOST_TEST(cells[0].paths.size() == 2U);
    const auto records = to_json(cells);
    BOOST_REQUIRE(records.size() == 1U);
    BOOST_TEST(records[0].at("arms").at("chunked").at("times_the_first_arm").to_number<double>() ==
               2.0);
    BOOST_TEST(to_text(cells).find("4096") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(sweep_that_broke_off_has_no_figure_for_what_was_not_done) {
    const auto cells = summarise({{"get", 4096, 0, true, "rdma/ok", 14ms},
                                  {"get", 4096, 1, true, "rdma/ok", 1ms},
                                  {"chunked", 4096, 0, true, "chunked/policy", 15ms},
                                  {"get", 8192, 0, true, "rdma/ok", 14ms}});
    const auto records = to_json(cells);
    BOOST_REQUIRE(records.size() == 2U);
    BOOST_TEST(records[0].at("arms").at("get").at("warm_us").to_number<double>() == 1000.0);
    for (const auto* figure : {"warm_us", "warm_spread_us", "times_the_first_arm"})
        BOOST_TEST(records[0].at("arms").at("chunked").at(figure).is_null());
    const auto text = to_text(cells);
    BOOST_TEST(text.find(" 0.0 us") == std::string::npos, text);
    BOOST_TEST(text.find("- us") != std::string::npos, text);
}

BOOST_AUTO_TEST_CASE(chart_draws_each_series_inside_the_picture) {
    const auto svg = to_svg({point_of(4096, {{10us}}), point_of(65536, {{20us, 40us}})});
    BOOST_TEST(svg.starts_with("<svg "));
    BOOST_TEST(svg.ends_with("</svg>\n"));
    BOOST_TEST(svg.find("nan") == std::string::npos);
    BOOST_TEST(svg.find("inf") == std::string::npos);
    std::size_t circles = 0;
    for (auto at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1)) {
        ++circles;
    }
    BOOST_TEST(circles == 4U);
    BOOST_TEST(to_svg({}).ends_with("</svg>\n"));
}

BOOST_AUTO_TEST_SUITE_END()
