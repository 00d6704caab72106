// What a check asks its two ends, and what it takes of their answers.

#include <algorithm>
#include <chrono>
#include <functional>
#include <set>
#include <stdexcept>

#include <boost/json/serialize.hpp>
#include <boost/test/unit_test.hpp>

#include "diag/check/observe.hpp"
#include "diag/check/taken_text.hpp"
#include "diag/check/verdict.hpp"
#include "diag/check/words.hpp"
#include "path_samples.hpp"
#include "scripted_end.hpp"

using namespace rvget::diag;
namespace json = boost::json;

namespace {

constexpr std::uint64_t soak_timeout_exponent = 17;
const std::string retry_exceeded = "transport retry counter exceeded";

/// The answer of a READ that brought nothing.
void fail_read(json::object& answer) {
    answer["status"] = retry_exceeded;
    answer["wrong"] = 1;
    answer["written"] = 0;
}

struct two_ends {
    two_ends() { a.meet(b); }
    rvget::result<observations> observed() {
        check_wishes wishes;
        wishes.reads = 10;
        return observe(
            a, b, wishes, [](const observations&) {}, [this] { return now; });
    }
    /// Queue pairs whose numbers `dead` is true for bring nothing; how long each READ of them took.
    void lose(const std::function<bool(std::uint32_t)>& dead, std::chrono::seconds took = {}) {
        for (auto* end : {&a, &b}) {
            end->change = [=, this](const auto& what, const auto&, auto& answer) {
                if (what != "read" || !dead(end->number)) return;
                fail_read(answer);
                now += took;
            };
        }
    }

    scripted_end a{end("node-a", "10.0.0.1", 1)};
    scripted_end b{end("node-b", "10.0.0.2", 3)};
    std::chrono::steady_clock::time_point now{};
};

using change = scripted_end::change_function;

void nothing(const std::string&, const json::object&, json::object&) {}
void silence(const std::string& what, const json::object&, json::object& answer) {
    if (what == "read") fail_read(answer);
}
void lose_full_packets(const std::string& what, const json::object& request, json::object& answer) {
    if (what == "read" && request.at("bytes").to_number<int>() > 1024) fail_read(answer);
}

/// Every text and every name of a counter in an answer, one after another, each changed once.
class forger {
public:
    forger(std::string forged, std::size_t which) : forged_(std::move(forged)), left_(which) {}
    void forge(json::value& value) {
        if (value.is_string() && left_-- == 0) {
            value = forged_;
            done_ = true;
        } else if (auto* list = value.if_array()) {
            for (auto& one : *list) forge(one);
        } else if (auto* object = value.if_object()) {
            for (auto& one : *object) forge(one.value());
        }
    }
    void forge(const std::string& what, json::object& answer) {
        if (done_) return;
        if (what.ends_with("counters") && left_-- == 0) {
            answer = {{"counters", {{forged_, 1}}}};
            done_ = true;
            return;
        }
        for (auto& one : answer) forge(one.value());
    }
    [[nodiscard]] bool done() const { return done_; }

private:
    std::string forged_;
    std::size_t left_;
    bool done_ = false;
};

finding finding_of(const std::vector<finding>& all, std::string_view id) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& f) { return f.id == id; });
    BOOST_REQUIRE((found != all.end()));
    return *found;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(diag_observe)

BOOST_AUTO_TEST_CASE(two_ends_of_a_good_path_are_seen_and_nothing_fails) {
    two_ends ends;
    const auto seen = ends.observed();
    BOOST_REQUIRE(seen);
    BOOST_TEST(seen->pairs.front().ok());
    BOOST_TEST(seen->a_sees_mac == "node-b");
    for (const auto& f : judge_path(*seen))
        BOOST_TEST((f.outcome <= outcome::skip), f.id << ": " << f.message);
}

/// A listener is anybody: what it says must not become a command of the reader's.
BOOST_AUTO_TEST_CASE(no_text_of_an_end_becomes_part_of_a_command) {
    const std::string forged = "x\"; $(reboot)\nx";
    std::size_t taken = 0;
    for (const change& path : {change(nothing), change(silence), change(lose_full_packets)}) {
        for (const bool of_b : {true, false}) {
            for (std::size_t which = 0;; ++which) {
                two_ends ends;
                forger forger(forged, which);
                ends.a.change = ends.b.change = path;
                auto& other = of_b ? ends.b : ends.a;
                std::string last;
                other.change = [&](const auto& what, const auto& request, auto& answer) {
                    path(what, request, answer);
                    const bool before = forger.done();
                    forger.forge(what, answer);
                    if (forger.done() && !before) last = what + json::serialize(answer);
                };
                const auto seen = ends.observed();
                if (!forger.done()) break;
                ++taken;
                if (!seen) continue;
                for (const auto& f : judge_path(*seen)) {
                    for (const auto& fix : f.fix)
                        BOOST_TEST(fix.find("reboot") == std::string::npos,
                                   last << " gave " << fix);
                    BOOST_TEST(f.message.find('\n') == std::string::npos, last);
                }
            }
        }
    }
    BOOST_TEST(taken > 100);
}

BOOST_AUTO_TEST_CASE(parallel_reads_end_as_soon_as_links_are_seen_to_differ) {
    two_ends ends;
    // The first READs of one byte meet a link that is well, and so do the large ones.
    ends.lose([](auto number) { return number > 9 && number % 2 == 0; });
    const auto seen = ends.observed();
    BOOST_REQUIRE(seen);
    BOOST_TEST(seen->a_paths.some_fail());
    BOOST_TEST(seen->a_paths.tried == 4);
    BOOST_TEST(seen->a_paths.small_failed == 2);
}

BOOST_AUTO_TEST_CASE(half_dead_links_are_seen_where_the_first_four_queue_pairs_all_met_dead_ones) {
    two_ends ends;
    // Both READs of one byte and their repetitions meet them, too, so that no pair is well.
    ends.lose([](auto number) { return number <= 4 || (number - 5) % 8 < 4; });
    const auto seen = ends.observed();
    BOOST_REQUIRE(seen);
    BOOST_TEST(!seen->pairs.front().ok());
    BOOST_TEST(seen->a_paths.some_fail());
}

BOOST_AUTO_TEST_CASE(links_that_are_all_dead_are_not_told_apart) {
    two_ends ends;
    ends.lose([](auto) { return true; });
    const auto seen = ends.observed();
    BOOST_REQUIRE(seen);
    BOOST_TEST(seen->a_paths.tried == paths_seen::enough);
    BOOST_TEST(seen->a_paths.none_passes());
    BOOST_TEST(!seen->a_paths.some_fail());
}

BOOST_AUTO_TEST_CASE(parallel_reads_leave_time_for_the_rest_of_a_check) {
    using namespace std::chrono_literals;
    two_ends ends;
    ends.lose([](auto) { return true; }, 10s);
    const auto seen = ends.observed();
    BOOST_REQUIRE(seen);
    BOOST_TEST((ends.now.time_since_epoch() <= 40s));
    BOOST_TEST(seen->a_paths.tried < paths_seen::enough);
    BOOST_TEST(!seen->a_paths.none_passes());
}

BOOST_AUTO_TEST_CASE(queue_pairs_of_the_same_numbers_are_one_path) {
    two_ends ends;
    const auto one_number = [](const auto& what, const auto&, auto& answer) {
        if (what == "make") answer["number"] = 17;
    };
    ends.a.change = one_number;
    const auto differing = ends.observed();
    ends.b.change = one_number;
    const auto same = ends.observed();
    BOOST_REQUIRE((differing && same));
    BOOST_TEST(differing->a_paths.tried == paths_seen::enough);
    BOOST_TEST(same->a_paths.tried == 1);
}

BOOST_AUTO_TEST_CASE(
    patient_reads_end_before_they_are_cut_on_a_device_that_takes_four_times_as_long) {
    two_ends ends;
    ends.lose([](auto number) { return number > 9 && number % 2 == 0; });
    BOOST_REQUIRE(ends.observed());
    std::uint64_t longest = 0;
    for (const auto& request : ends.a.asked) {
        const auto* exponent = request.if_contains("timeout_exponent");
        const auto n = exponent == nullptr ? 0 : exponent->to_number<std::uint64_t>();
        if (n != soak_timeout_exponent) longest = std::max(longest, n);
    }
    constexpr std::uint64_t read_limit_us = 3'000'000, tries = 5, slowest = 4;
    BOOST_TEST(longest > 14);
    BOOST_TEST((4096ULL << longest) / 1000 * tries * slowest < read_limit_us);
}

BOOST_AUTO_TEST_CASE(route_and_neighbour_are_asked_for_as_rdma_uses_them) {
    two_ends ends;
    BOOST_REQUIRE(ends.observed());
    const auto asked = [](const scripted_end& end, std::string_view what) {
        const auto found = std::find_if(end.asked.begin(), end.asked.end(), [&](const auto& one) {
            return one.at("ask").as_string() == what;
        });
        return found == end.asked.end() ? json::object() : *found;
    };
    // Of another source there may be another route, and on another netdev another neighbour.
    BOOST_TEST(
        (asked(ends.a, "route") ==
         json::object{
             {"ask", "route"}, {"to", "10.0.0.2"}, {"from", "10.0.0.1"}, {"netdev", "eth0"}}));
    BOOST_TEST(asked(ends.b, "route").at("from").as_string() == "10.0.0.2");
    for (const auto* end : {&ends.a, &ends.b})
        BOOST_TEST(asked(*end, "neighbour").at("netdev").as_string() == "eth0");
}

BOOST_AUTO_TEST_CASE(listener_that_knows_no_routes_is_said_not_to_tell) {
    two_ends ends;
    ends.b.change = [](const auto& what, const auto&, auto& answer) {
        if (what == "route") answer = {{"error", "no such request: route"}};
    };
    const auto seen = ends.observed();
    BOOST_REQUIRE(seen);
    BOOST_TEST((seen->b_route.silent && !seen->b_route.asked && !seen->a_route.silent));
    const auto route = finding_of(judge_path(*seen), "path.route");
    BOOST_TEST((route.outcome == outcome::skip));
    BOOST_TEST(route.message.find("node-b does not tell its route") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(counter_that_was_not_read_before_has_not_grown) {
    const auto first_one_empty = [](const std::string& which) {
        return [which, asked = 0](const auto& what, const auto&, auto& answer) mutable {
            if (what == which && asked++ == 0) answer = {{"counters", json::object()}};
        };
    };
    two_ends ends;
    ends.a.change = first_one_empty("counters");
    ends.b.change = first_one_empty("port_counters");
    const auto seen = ends.observed();
    BOOST_REQUIRE(seen);
    BOOST_TEST(seen->pairs.front().a_reads.reader.empty());
    BOOST_TEST(seen->b_port.empty());
    // No growth is something else.
    BOOST_TEST(seen->a_port.at("rx_oversize_pkts_phy") == 0);
}

BOOST_AUTO_TEST_CASE(frames_too_large_are_those_that_came_while_large_reads_ran) {
    const auto seen_where = [](bool a_reads) {
        two_ends ends;
        std::uint64_t frames = 0;
        ends.a.change = [&](const auto& what, const auto&, auto& answer) {
            if (what == "read" && a_reads) ++frames;
            if (what == "port_counters")
                answer = {{"counters", {{"rx_oversize_pkts_phy", frames}}}};
        };
        ends.b.change = [&](const auto& what, const auto&, const auto&) {
            if (what == "read" && !a_reads) ++frames;
        };
        return ends.observed().value();
    };
    const auto own = seen_where(true), another = seen_where(false);
    BOOST_TEST(own.a_reads_port.at("rx_oversize_pkts_phy") > 0);
    BOOST_TEST(another.a_reads_port.at("rx_oversize_pkts_phy") == 0);
    BOOST_TEST(another.a_port.at("rx_oversize_pkts_phy") > 0);
}

BOOST_AUTO_TEST_CASE(hop_limit_is_the_lower_one_that_the_queue_pairs_have) {
    two_ends ends;
    ends.b.change = [](const auto& what, const auto&, auto& answer) {
        if (what == "connect") answer["hop_limit"] = 3;
        if (what == "udp_result") answer["ttl"] = 61;
    };
    const auto seen = ends.observed();
    BOOST_REQUIRE(seen);
    BOOST_TEST(seen->hop_limit == 3);
    const auto outcome_of_hops = [](const observations& o) {
        const auto all = judge_path(o);
        return std::find_if(all.begin(), all.end(),
                            [](const auto& f) { return f.id == "path.hops"; })
            ->outcome;
    };
    // Three routers, and no queue pair's packet would live behind them.
    BOOST_TEST((outcome_of_hops(*seen) == outcome::fail));
    ends.b.change = [](const auto& what, const auto&, auto& answer) {
        if (what == "connect") answer["hop_limit"] = 4;
        if (what == "udp_result") answer["ttl"] = 61;
    };
    BOOST_TEST((outcome_of_hops(ends.observed().value()) == outcome::pass));
    // A listener that does not tell has the usual one.
    ends.a.change = ends.b.change = [](const auto& what, const auto&, auto& answer) {
        if (what == "connect") answer = {};
    };
    BOOST_TEST(ends.observed()->hop_limit == 64);
}

BOOST_AUTO_TEST_CASE(every_question_has_words_for_who_waits_for_its_answer) {
    std::set<std::string> questions;
    for (const change& path : {change(nothing), change(silence), change(lose_full_packets)}) {
        two_ends ends;
        ends.a.change = ends.b.change = path;
        BOOST_REQUIRE(ends.observed());
        for (const auto* end : {&ends.a, &ends.b}) {
            for (const auto& one : end->asked) questions.emplace(one.at("ask").as_string());
        }
    }
    BOOST_TEST(questions.size() == 15);
    for (const auto& one : questions) BOOST_TEST(awaited(one) != "an answer", one);
    BOOST_TEST(awaited("route") == "its route");
    BOOST_TEST(awaited("no such") == "an answer");
}

BOOST_AUTO_TEST_CASE(no_text_of_a_recorded_check_becomes_part_of_a_command) {
    auto o = good();
    o.pairs[0].a_reads = o.pairs[0].b_reads = silent(1);
    o.a_reads.clear(), o.b_reads.clear();
    o.b_doctor = {{"net.firewall", "host", "drops"}};
    o.pairs[0].a.pkeys = {"0xffff"};
    o.soak.reader["rcvd_pkts"] = 1;
    o.peer = "node-b --port 7";
    take(o);
    BOOST_TEST(judge_path(o).back().id == "net.udp4791");
    const std::string forged = "x\"; $(reboot)\nx";
    std::size_t refused = 0;
    for (std::size_t which = 0;; ++which) {
        auto file = to_json(o);
        forger forger(forged, which);
        forger.forge(file);
        if (!forger.done()) break;
        observations read;
        from_json(file, read);
        try {
            take(read);
        } catch (const std::invalid_argument&) {
            ++refused;
            continue;
        }
        for (const auto& f : judge_path(read)) {
            for (const auto& fix : f.fix)
                BOOST_TEST(fix.find("reboot") == std::string::npos, f.id << ": " << fix);
        }
    }
    BOOST_TEST(refused > 30);
    o.soak.reader = {{forged, 1}};
    BOOST_CHECK_THROW(take(o), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(names_of_hosts_and_netdevs_are_taken_and_what_a_shell_acts_on_is_not) {
    for (const auto* name :
         {"", "node-b", "eth0.5", "fe80::1%eth0", "02:00:00:00:00:0a", "v5@eth0"})
        BOOST_TEST(taken("netdev", name) == name);
    for (const auto* name :
         {"-rf", "a b", "a;b", "$(a)", "`a`", "a'b", "a\"b", "a/b", "a|b", "a\n"})
        BOOST_CHECK_THROW(static_cast<void>(taken("netdev", name)), std::invalid_argument);
    for (const auto* peer : {"node-b --port 7", "[::1]:7473"})
        BOOST_TEST(taken("peer", peer) == peer);
    BOOST_CHECK_THROW(static_cast<void>(taken("peer", "b; reboot")), std::invalid_argument);
    BOOST_TEST(taken("status", "success; $(a)\x1b") == "success; $(a)\\x1b");
}

BOOST_AUTO_TEST_CASE(link_address_that_is_none_ends_the_check) {
    two_ends ends;
    ends.b.change = [](const auto& what, const auto&, auto& answer) {
        if (what == "neighbour") answer["mac"] = "/{system(\"reboot\")}/";
    };
    const auto seen = ends.observed();
    BOOST_REQUIRE(!seen);
    BOOST_TEST(seen.error().detail.find("mac: this cannot be the name") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(words_of_an_end_are_shown_and_steer_no_terminal) {
    two_ends ends;
    ends.b.change = [](const auto& what, const auto&, auto& answer) {
        if (what == "facts")
            answer["doctor"] = {
                {{"id", "net.firewall"}, {"subject", "host"}, {"message", "a\x1b[2J \"b\""}}};
        if (what == "cm_result") answer["error"] = "accept: no event in 2000 ms\r";
    };
    const auto seen = ends.observed();
    BOOST_REQUIRE(seen);
    BOOST_TEST(seen->b_doctor->at(0).message == "a\\x1b[2J \"b\"");
    BOOST_TEST(seen->a_connects.accept_error == "accept: no event in 2000 ms\\x0d");
}

BOOST_AUTO_TEST_SUITE_END()
