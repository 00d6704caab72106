#include "base/log.hpp"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

#include <boost/test/unit_test.hpp>

namespace rvget {
namespace {

/// Collects the lines of one test and puts the defaults back.
struct captured_log {
    captured_log() {
        set_log_sink([this](log_level level, std::string_view line) {
            lines.emplace_back(level, std::string(line));
        });
    }
    ~captured_log() {
        set_log_sink({});
        set_log_level(log_level::info);
    }
    captured_log(const captured_log&) = delete;
    captured_log& operator=(const captured_log&) = delete;

    std::vector<std::pair<log_level, std::string>> lines;
};

/// What the process writes to standard error meanwhile.
std::string standard_error_of(const std::function<void()>& act) {
    int ends[2];
    BOOST_TEST_REQUIRE(::pipe(ends) == 0);
    const int saved = ::dup(STDERR_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    act();
    ::dup2(saved, STDERR_FILENO);
    ::close(saved);
    ::close(ends[1]);
    std::string text(4096, '\0');
    const ssize_t got = ::read(ends[0], text.data(), text.size());
    ::close(ends[0]);
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return text;
}

BOOST_AUTO_TEST_SUITE(logging)

BOOST_AUTO_TEST_CASE(line_logged_reaches_the_sink_with_its_level) {
    captured_log captured;
    log(log_level::warning, "event=queue_pair_error device=rxe0");
    BOOST_TEST_REQUIRE(captured.lines.size() == 1U);
    BOOST_TEST((captured.lines[0].first == log_level::warning));
    BOOST_TEST(captured.lines[0].second == "event=queue_pair_error device=rxe0");
}

BOOST_AUTO_TEST_CASE(line_below_the_level_is_dropped) {
    captured_log captured;
    log(log_level::debug, "event=dropped");
    BOOST_TEST(!log_enabled(log_level::debug));
    set_log_level(log_level::debug);
    BOOST_TEST(log_enabled(log_level::debug));
    log(log_level::debug, "event=kept");
    set_log_level(log_level::off);
    log(log_level::error, "event=dropped");
    log(log_level::off, "event=dropped");
    BOOST_TEST_REQUIRE(captured.lines.size() == 1U);
    BOOST_TEST(captured.lines[0].second == "event=kept");
}

BOOST_AUTO_TEST_CASE(line_with_control_characters_stays_one_line) {
    captured_log captured;
    log(log_level::info, "peer=x\nlevel=error forged=1\x1b[2J\x7f");
    BOOST_TEST_REQUIRE(captured.lines.size() == 1U);
    BOOST_TEST(captured.lines[0].second == "peer=x\\x0alevel=error forged=1\\x1b[2J\\x7f");
}

BOOST_AUTO_TEST_CASE(sink_that_throws_or_logs_harms_nobody) {
    captured_log captured;
    int calls = 0;
    set_log_sink([&calls](log_level, std::string_view) {
        ++calls;
        log(log_level::error, "event=from_within_the_sink");
        throw std::runtime_error("sink");
    });
    log(log_level::info, "event=first");
    log(log_level::info, "event=second");
    BOOST_TEST(calls == 2);
}

BOOST_AUTO_TEST_CASE(sink_replaced_is_not_called_again_and_is_released) {
    captured_log captured;
    auto token = std::make_shared<int>(0);
    set_log_sink([token](log_level, std::string_view) { ++*token; });
    log(log_level::info, "event=one");
    BOOST_TEST(token.use_count() == 2);
    set_log_sink([](log_level, std::string_view) {});
    log(log_level::info, "event=two");
    BOOST_TEST(*token == 1);
    BOOST_TEST(token.use_count() == 1);
}

BOOST_AUTO_TEST_CASE(lines_of_many_threads_come_one_at_a_time) {
    captured_log captured;
    std::atomic<int> inside{0};
    std::atomic<bool> overlapped{false};
    int count = 0;
    set_log_sink([&](log_level, std::string_view) {
        overlapped = overlapped || inside.fetch_add(1) != 0;
        ++count;
        inside.fetch_sub(1);
    });
    {
        std::vector<std::jthread> threads;
        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([] {
                for (int i = 0; i < 500; ++i) {
                    log(log_level::info, "event=race");
                }
            });
        }
    }
    BOOST_TEST(count == 2000);
    BOOST_TEST(!overlapped);
}

BOOST_AUTO_TEST_CASE(default_sink_writes_time_level_and_line_to_standard_error) {
    set_log_sink({});
    const std::string text =
        standard_error_of([] { log(log_level::warning, "event=fallback reason=no_lane {}"); });
    BOOST_TEST(text.starts_with("time=2"), text);
    BOOST_TEST(text.ends_with("Z level=warning event=fallback reason=no_lane {}\n"), text);
}

BOOST_AUTO_TEST_CASE(quoted_word_stays_and_anything_else_is_quoted) {
    BOOST_TEST(quoted("mlx5_0") == "mlx5_0");
    BOOST_TEST(quoted("") == "\"\"");
    BOOST_TEST(quoted("two words") == "\"two words\"");
    BOOST_TEST(quoted("a=b") == "\"a=b\"");
    BOOST_TEST(quoted("say \"no\" \\ \n") == "\"say \\\"no\\\" \\\\ \\x0a\"");
}

BOOST_AUTO_TEST_CASE(level_names_are_lower_case) {
    BOOST_TEST(to_string(log_level::trace) == "trace");
    BOOST_TEST(to_string(log_level::debug) == "debug");
    BOOST_TEST(to_string(log_level::info) == "info");
    BOOST_TEST(to_string(log_level::warning) == "warning");
    BOOST_TEST(to_string(log_level::error) == "error");
    BOOST_TEST(to_string(log_level::off) == "off");
    BOOST_TEST(to_string(static_cast<log_level>(9)) == "unknown");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace rvget
