#include <rvget/error.hpp>

#include <set>
#include <string>

#include <boost/system/errc.hpp>
#include <boost/system/system_error.hpp>
#include <boost/test/unit_test.hpp>

namespace rvget {
namespace {

result<int> fails() { return failure(lease_errc::lost, "lease on 10.0.0.2 was revoked"); }

/// Every enumerator up to `last` has a sentence of its own, and what is beyond has none.
template <class Enum>
void check_messages(Enum last, const char* category) {
    std::set<std::string> seen;
    for (int value = 1; value <= static_cast<int>(last); ++value) {
        const error_code code = static_cast<Enum>(value);
        BOOST_TEST_CONTEXT(category << " " << value) {
            BOOST_TEST(code.value() == value);
            BOOST_TEST(code.failed());
            BOOST_TEST(std::string(code.category().name()) == category);
            BOOST_TEST(!code.message().empty());
            BOOST_TEST(code.message().find("unknown ") == std::string::npos);
            BOOST_TEST(seen.insert(code.message()).second);
        }
    }
    const error_code beyond = static_cast<Enum>(static_cast<int>(last) + 1);
    BOOST_TEST(beyond.message().starts_with("unknown "));
}

BOOST_AUTO_TEST_SUITE(errors)

BOOST_AUTO_TEST_CASE(category_every_code_has_its_own_message) {
    check_messages(request_errc::checksum, "rvget.request");
    check_messages(lease_errc::expired, "rvget.lease");
    check_messages(connection_errc::authentication, "rvget.connection");
    check_messages(device_errc::post_failed, "rvget.device");
    check_messages(node_errc::internal, "rvget.node");
}

BOOST_AUTO_TEST_CASE(category_same_value_in_another_is_another_error) {
    BOOST_TEST((error_code(lease_errc::lost) != error_code(device_errc::none)));
    BOOST_TEST((request_category() == request_category()));
    BOOST_TEST((request_category() != node_category()));
}

BOOST_AUTO_TEST_CASE(code_with_a_generic_meaning_equals_the_generic_condition) {
    namespace errc = boost::system::errc;
    BOOST_TEST((error_code(request_errc::cancelled) == errc::operation_canceled));
    BOOST_TEST((error_code(request_errc::deadline_exceeded) == errc::timed_out));
    BOOST_TEST((error_code(request_errc::invalid_argument) == errc::invalid_argument));
    BOOST_TEST((error_code(request_errc::malformed_handle) == errc::invalid_argument));
    BOOST_TEST((error_code(request_errc::not_supported) == errc::not_supported));
    BOOST_TEST((error_code(node_errc::out_of_memory) == errc::not_enough_memory));
    BOOST_TEST((error_code(lease_errc::lost) != errc::operation_not_permitted));  // both are 1
}

BOOST_AUTO_TEST_CASE(failure_message_joins_code_and_detail) {
    BOOST_TEST(failure(request_errc::cancelled).message() == "cancelled");
    BOOST_TEST(failure(request_errc::not_found, "slot was freed").message() ==
               "the owner has no such slot: slot was freed");
}

BOOST_AUTO_TEST_CASE(result_value_of_a_failure_throws_system_error_with_the_detail) {
    BOOST_CHECK_EXCEPTION(fails().value(), boost::system::system_error, [](const auto& thrown) {
        const std::string what = thrown.what();
        return thrown.code() == lease_errc::lost &&
               what.find("lease on 10.0.0.2 was revoked") != std::string::npos &&
               what.find("the lease ended before the bytes were here") != std::string::npos;
    });
    const result<int> bare = failure(node_errc::stopped);
    BOOST_CHECK_EXCEPTION(bare.value(), boost::system::system_error,
                          [](const auto& thrown) { return thrown.code() == node_errc::stopped; });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace rvget
