#include <string>
#include <utility>

#include <boost/test/unit_test.hpp>

#include "base/printable.hpp"

namespace rvget {
namespace {

using namespace std::string_literals;

BOOST_AUTO_TEST_SUITE(printable_text)

BOOST_AUTO_TEST_CASE(utf8_stays_as_it_is) {
    for (const auto& text : {""s, "a b\\x"s, "\xc3\xa9"s, "\xe2\x82\xac"s, "\xf0\x9f\x98\x80"s})
        BOOST_TEST(printable(text) == text);
}

BOOST_AUTO_TEST_CASE(what_steers_a_terminal_or_is_no_utf8_is_shown_by_its_bytes) {
    const std::pair<std::string, std::string> cases[] = {
        {"a\nb", "a\\x0ab"},
        {"\x1b[2J", "\\x1b[2J"},
        {"\0"s, "\\x00"},
        {"\x7f", "\\x7f"},
        {"\xc2\x9b", "\\xc2\\x9b"},  // C1
        {"\xff", "\\xff"},
        {"\xc0\xaf", "\\xc0\\xaf"},                    // overlong
        {"\xe0\x80\xaf", "\\xe0\\x80\\xaf"},           // overlong
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"},           // a surrogate
        {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},  // beyond U+10FFFF
        {"\xe2\x82", "\\xe2\\x82"},                    // cut short
        {"\xe2"
         "a",
         "\\xe2"
         "a"},
    };
    for (const auto& [given, expected] : cases) BOOST_TEST(printable(given) == expected);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace rvget
