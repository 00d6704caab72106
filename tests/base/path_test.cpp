#include <rvget/path.hpp>

#include <set>
#include <string>

#include <boost/test/unit_test.hpp>

namespace rvget {
namespace {

BOOST_AUTO_TEST_SUITE(paths)

BOOST_AUTO_TEST_CASE(path_and_policy_names_are_the_contracts) {
    BOOST_TEST(to_string(path::rdma) == "rdma");
    BOOST_TEST(to_string(path::inline_answer) == "inline");
    BOOST_TEST(to_string(path::chunked) == "chunked");
    BOOST_TEST(to_string(static_cast<path>(3)) == "unknown");
    BOOST_TEST(to_string(path_policy::prefer) == "prefer");
    BOOST_TEST(to_string(path_policy::require) == "require");
    BOOST_TEST(to_string(path_policy::never) == "never");
    BOOST_TEST(to_string(static_cast<path_policy>(3)) == "unknown");
}

BOOST_AUTO_TEST_CASE(reason_each_value_has_one_name_and_gaps_have_none) {
    std::set<std::string_view> names;
    for (int value = 0; value < 256; ++value) {
        const auto name = to_string(static_cast<reason>(value));
        const bool listed =
            value <= 12 || (value >= 32 && value <= 38) || (value >= 64 && value <= 66);
        BOOST_TEST((name != "unknown") == listed, value);
        if (listed) {
            BOOST_TEST(names.insert(name).second, name);
        }
    }
}

BOOST_AUTO_TEST_CASE(reason_numbers_on_the_wire_do_not_move) {
    BOOST_TEST(to_string(static_cast<reason>(0)) == "ok");
    BOOST_TEST(to_string(static_cast<reason>(1)) == "no_offer");
    BOOST_TEST(to_string(static_cast<reason>(3)) == "not_configured");
    BOOST_TEST(to_string(static_cast<reason>(8)) == "below_min");
    BOOST_TEST(to_string(static_cast<reason>(11)) == "stale_region");
    BOOST_TEST(to_string(static_cast<reason>(12)) == "inline");
    BOOST_TEST(to_string(static_cast<reason>(32)) == "policy");
    BOOST_TEST(to_string(static_cast<reason>(38)) == "lease_lost");
    BOOST_TEST(to_string(static_cast<reason>(64)) == "budget");
    BOOST_TEST(to_string(static_cast<reason>(66)) == "plain");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace rvget
