#include <boost/test/unit_test.hpp>

#include "route/retry.hpp"

using namespace std::chrono_literals;
using rvget::route::plan_retries;

BOOST_AUTO_TEST_SUITE(retry)

BOOST_AUTO_TEST_CASE(plan_of_the_default_window_is_470_ms_in_six_retries) {
    const auto plan = plan_retries();
    BOOST_TEST(plan.timeout_exponent == 14);
    BOOST_TEST(plan.retry_count == 6);
    BOOST_TEST(plan.window.count() == 4096LL * (1 << 14) * 7);
}

BOOST_AUTO_TEST_CASE(plan_never_exceeds_the_wish_nor_the_safe_counts) {
    for (auto wish = 3ms; wish < 3h; wish = wish * 5 / 4 + 1ms) {
        const auto plan = plan_retries(wish);
        BOOST_TEST_CONTEXT("wish " << wish.count() << " ms") {
            BOOST_TEST((plan.window <= wish));
            // The next window up is at most 7/6 or 8/7 away, or a factor 3/2 among the doublings.
            BOOST_TEST((plan.window * 3 / 2 > wish));
            BOOST_TEST(plan.timeout_exponent >= 1);
            BOOST_TEST(plan.timeout_exponent <= 31);
            BOOST_TEST(plan.retry_count >= 1);
            BOOST_TEST(plan.retry_count <= 6);
            BOOST_TEST(plan.window.count() ==
                       (4096LL << plan.timeout_exponent) * (plan.retry_count + 1));
        }
    }
}

BOOST_AUTO_TEST_CASE(plan_of_equal_windows_has_more_retries) {
    // 4.096 us x 2^14 x 6 is also 4.096 us x 2^15 x 3.
    const auto plan = plan_retries(403ms);
    BOOST_TEST(plan.timeout_exponent == 14);
    BOOST_TEST(plan.retry_count == 5);
}

BOOST_AUTO_TEST_CASE(plan_of_nothing_is_the_shortest_window_and_never_a_zero_timer) {
    for (const auto wish : {-5ms, 0ms, 1ms, 2ms}) {
        const auto plan = plan_retries(wish);
        BOOST_TEST(plan.timeout_exponent == 8);
        BOOST_TEST(plan.retry_count == 1);
        BOOST_TEST(plan.window.count() == 4096LL * 256 * 2);
    }
}

BOOST_AUTO_TEST_CASE(plan_beyond_the_longest_window_is_the_longest) {
    const auto plan = plan_retries(48h);
    BOOST_TEST(plan.timeout_exponent == 31);
    BOOST_TEST(plan.retry_count == 6);
}

BOOST_AUTO_TEST_SUITE_END()
