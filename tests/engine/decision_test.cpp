// The owner's decision: which check is the reason, and what it makes of the answer.

#include <functional>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "engine/decision.hpp"

namespace rvget::engine {
namespace {

/// A request that nothing stands in the way of.
decision_facts clear() {
    decision_facts f;
    f.offered = true;
    f.range_bytes = 1 << 20;
    f.lane = lane_status::ready;
    f.rdma_min_bytes = 64 << 10;
    f.inline_max = 4 << 10;
    f.pinned = true;
    return f;
}

struct obstacle {
    reason why;
    std::function<void(decision_facts&)> put;
};

/// In the order in which they are tested.
const std::vector<obstacle>& obstacles() {
    static const std::vector<obstacle> all{
        {reason::no_offer, [](decision_facts& f) { f.offered = false; }},
        {reason::version, [](decision_facts& f) { f.version_has_rdma = false; }},
        {reason::not_configured, [](decision_facts& f) { f.configured = false; }},
        {reason::kill_switch, [](decision_facts& f) { f.kill_switch = true; }},
        {reason::draining, [](decision_facts& f) { f.draining = true; }},
        {reason::fenced, [](decision_facts& f) { f.fenced = true; }},
        {reason::not_pinned, [](decision_facts& f) { f.pinned = false; }},
        {reason::below_min, [](decision_facts& f) { f.range_bytes = f.rdma_min_bytes - 1; }},
        {reason::no_common_backend, [](decision_facts& f) { f.common_backend = false; }},
        {reason::no_lane, [](decision_facts& f) { f.lane = lane_status::absent; }},
        {reason::stale_region, [](decision_facts& f) { f.region_stale = true; }},
    };
    return all;
}

BOOST_AUTO_TEST_SUITE(decision_)

BOOST_AUTO_TEST_CASE(contract_3_1_nothing_in_the_way_is_rdma) {
    const auto d = decide(clear());
    BOOST_TEST((d.answer == wire::answer::rdma));
    BOOST_TEST((d.why == reason::ok));
    BOOST_TEST(!d.wait_for_lane);
}

BOOST_AUTO_TEST_CASE(contract_3_1_first_check_that_fails_is_the_reason) {
    for (std::size_t first = 0; first < obstacles().size(); ++first) {
        auto f = clear();
        // Whatever else is in the way behind it.
        for (auto i = obstacles().size(); i-- > first;) {
            obstacles()[i].put(f);
            BOOST_TEST((decide(f).why == obstacles()[i].why));
            BOOST_TEST((decide(f).answer == wire::answer::chunked));
        }
    }
}

BOOST_AUTO_TEST_CASE(contract_2_4_require_ignores_smallness_and_refuses_the_rest) {
    for (const auto& o : obstacles()) {
        auto f = clear();
        f.forced = true;
        o.put(f);
        const auto d = decide(f);
        const auto expected = o.why == reason::below_min    ? wire::answer::rdma
                              : o.why == reason::not_pinned ? wire::answer::not_pinned
                                                            : wire::answer::refused;
        BOOST_TEST_CONTEXT(to_string(o.why)) {
            BOOST_TEST((d.answer == expected));
            BOOST_TEST((d.why == (o.why == reason::below_min ? reason::ok : o.why)));
        }
    }
}

BOOST_AUTO_TEST_CASE(contract_2_4_zero_bytes_under_require_are_inline) {
    for (const auto& o : obstacles()) {
        auto f = clear();
        o.put(f);
        f.forced = true;
        f.range_bytes = 0;
        BOOST_TEST((decide(f).answer == wire::answer::inline_answer));
    }
}

BOOST_AUTO_TEST_CASE(contract_3_2_range_up_to_inline_max_is_inline) {
    for (const bool pinned : {false, true}) {
        auto f = clear();
        f.pinned = pinned;
        f.range_bytes = f.inline_max;
        BOOST_TEST((decide(f).answer == wire::answer::inline_answer));
        f.range_bytes = f.inline_max + 1;
        BOOST_TEST((decide(f).answer == wire::answer::chunked));
        f.forced = true;
        f.range_bytes = f.inline_max;
        BOOST_TEST((decide(f).answer == (pinned ? wire::answer::rdma : wire::answer::not_pinned)));
    }
}

BOOST_AUTO_TEST_CASE(lane_that_is_being_made_is_waited_for_only_where_nothing_else_is_in_the_way) {
    auto f = clear();
    f.lane = lane_status::making;
    BOOST_TEST(decide(f).wait_for_lane);
    BOOST_TEST((decide(f).why == reason::no_lane));
    f.lane = lane_status::failed;
    BOOST_TEST(!decide(f).wait_for_lane);
    f.lane = lane_status::making;
    f.pinned = false;
    BOOST_TEST(!decide(f).wait_for_lane);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace rvget::engine
