// What a check asks its two ends, and what it takes of their answers.

#include <algorithm>

#include <boost/json/serialize.hpp>
#include <boost/test/unit_test.hpp>

#include "diag/check/observe.hpp"
#include "diag/check/verdict.hpp"
#include "path_samples.hpp"
#include "scripted_end.hpp"

using namespace rvget::diag;
namespace json = boost::json;

namespace {

const std::string retry_exceeded = "transport retry counter exceeded";

struct two_ends {
    two_ends() { a.meet(b); }
    rvget::result<observations> observed() {
        check_wishes wishes;
        wishes.reads = 10;
        return observe(a, b, wishes, [](const observations&) {});
    }

    scripted_end a{end("node-a", "10.0.0.1", 1)};
    scripted_end b{end("node-b", "10.0.0.2", 3)};
};

/// READs that bring nothing.
void fail_read(json::object& answer) {
    answer["status"] = retry_exceeded;
    answer["wrong"] = 1;
    answer["written"] = 0;
}

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

BOOST_AUTO_TEST_CASE(link_address_that_is_none_ends_the_check) {
    two_ends ends;
    ends.b.change = [](const auto& what, const auto&, auto& answer) {
        if (what == "neighbour") answer["mac"] = "/{system(\"reboot\")}/";
    };
    const auto seen = ends.observed();
    BOOST_REQUIRE(!seen);
    BOOST_TEST(seen.error().detail.find("cannot be one") != std::string::npos);
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
