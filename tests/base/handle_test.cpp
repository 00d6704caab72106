#include <rvget/handle.hpp>

#include <string>
#include <utility>

#include <boost/test/unit_test.hpp>

#include "support/seeded_random.hpp"

namespace rvget {
namespace {

const std::string sample_text = "0123456789abcdef00000000000000ff";
const handle sample_handle{node_id{0x0123456789abcdef}, 0xff};

template <class T>
std::string refusal_of(std::string_view text, request_errc expected) {
    const auto parsed = T::parse(text);
    BOOST_TEST_REQUIRE(!parsed.has_value(), text);
    BOOST_TEST((parsed.error().code == expected), text);
    return parsed.error().detail;
}
std::string handle_refusal(std::string_view text) {
    return refusal_of<handle>(text, request_errc::malformed_handle);
}
std::string address_refusal(std::string_view text) {
    return refusal_of<endpoint_address>(text, request_errc::invalid_argument);
}
std::string url_refusal(std::string_view text) {
    return refusal_of<url>(text, request_errc::malformed_handle);
}

BOOST_AUTO_TEST_SUITE(handles)

BOOST_AUTO_TEST_CASE(contract_1_2_handle_text_is_32_lower_case_hexadecimal_digits_owner_first) {
    BOOST_TEST(sample_handle.to_string() == sample_text);
    BOOST_TEST(handle{}.to_string() == std::string(32, '0'));
    const auto parsed = handle::parse(sample_text);
    BOOST_TEST_REQUIRE(parsed.has_value());
    BOOST_TEST((*parsed == sample_handle));
}

BOOST_AUTO_TEST_CASE(contract_1_2_random_handle_parses_to_itself) {
    test::seeded_random random("handles");
    for (int i = 0; i < 5000; ++i) {
        const handle h{node_id{random.number<std::uint64_t>()}, random.number<std::uint64_t>()};
        const auto parsed = handle::parse(h.to_string());
        BOOST_TEST_REQUIRE(parsed.has_value(), h.to_string());
        BOOST_TEST_REQUIRE((*parsed == h), h.to_string());
    }
}

BOOST_AUTO_TEST_CASE(contract_1_2_handle_with_any_other_character_is_refused_at_its_position) {
    for (std::size_t at = 0; at < sample_text.size(); ++at) {
        for (int value = 0; value < 256; ++value) {
            std::string text = sample_text;
            text[at] = static_cast<char>(value);
            const bool digit = (value >= '0' && value <= '9') || (value >= 'a' && value <= 'f');
            const auto parsed = handle::parse(text);
            BOOST_TEST_REQUIRE(parsed.has_value() == digit, "value " << value << " at " << at);
            if (digit) {
                BOOST_TEST_REQUIRE(parsed->to_string() == text);
            } else {
                BOOST_TEST_REQUIRE(parsed.error().detail.ends_with(
                    "is not a lower-case hexadecimal digit at position " + std::to_string(at + 1)));
            }
        }
    }
    BOOST_TEST(handle_refusal("0123456789ABCDEF00000000000000ff") ==
               "handle: 'A' is not a lower-case hexadecimal digit at position 11");
    BOOST_TEST(handle_refusal(sample_text.substr(0, 31) + "\n") ==
               "handle: byte 0x0a is not a lower-case hexadecimal digit at position 32");
}

BOOST_AUTO_TEST_CASE(contract_1_2_handle_of_any_other_length_is_refused) {
    for (std::size_t length = 0; length < 80; ++length) {
        BOOST_TEST(handle::parse(std::string(length, 'a')).has_value() == (length == 32));
    }
    BOOST_TEST(handle_refusal(sample_text.substr(1)) ==
               "handle: ends early, 31 characters where 32 are wanted, at position 32");
    BOOST_TEST(handle_refusal(sample_text + "0") ==
               "handle: goes on, 33 characters where 32 are wanted, at position 33");
    handle_refusal(" " + sample_text);
    handle_refusal(sample_text + " ");
    handle_refusal("0x" + sample_text);
    handle_refusal(sample_text + std::string(1, '\0'));
}

BOOST_AUTO_TEST_CASE(contract_6_4_refusal_never_repeats_the_handle) {
    for (const std::string& text :
         {sample_text + "0", sample_text.substr(0, 31), sample_text.substr(0, 31) + "X"}) {
        BOOST_TEST(handle_refusal(text).find(sample_text.substr(0, 6)) == std::string::npos);
        BOOST_TEST(url_refusal("rvget://h:1/" + text).find(sample_text.substr(0, 6)) ==
                   std::string::npos);
    }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(addresses)

BOOST_AUTO_TEST_CASE(address_well_formed_parses_and_prints_the_same) {
    const std::pair<const char*, endpoint_address> good[] = {
        {"localhost:1", {"localhost", 1}},
        {"10.0.0.2:7471", {"10.0.0.2", 7471}},
        {"Node-7.rack_2.example.COM:65535", {"Node-7.rack_2.example.COM", 65535}},
        {"[::1]:80", {"::1", 80}},
        {"[fe80::1%eth0.5]:80", {"fe80::1%eth0.5", 80}},
        {"[::ffff:10.0.0.2]:9", {"::ffff:10.0.0.2", 9}},
        {"[2001:DB8:0:0:0:0:0:1]:443", {"2001:DB8:0:0:0:0:0:1", 443}},
    };
    for (const auto& [text, address] : good) {
        const auto parsed = endpoint_address::parse(text);
        BOOST_TEST_REQUIRE(parsed.has_value(), text << ": " << parsed.error().detail);
        BOOST_TEST((*parsed == address), text);
        BOOST_TEST(address.to_string() == text);
    }
    BOOST_TEST(endpoint_address::parse(std::string(63, 'a') + ":1").has_value());
}

BOOST_AUTO_TEST_CASE(address_with_a_port_that_is_none_is_refused) {
    for (int port = 1; port <= 65535; port += 13) {
        BOOST_TEST(endpoint_address::parse("h:" + std::to_string(port))->port == port);
    }
    BOOST_TEST(address_refusal("h:0") == "address: the port begins with 0 at position 3");
    BOOST_TEST(address_refusal("h:080") == "address: the port begins with 0 at position 3");
    BOOST_TEST(address_refusal("h:65536") ==
               "address: the port is larger than 65535 at position 3");
    BOOST_TEST(address_refusal("h:99999999999999999999").find("larger") != std::string::npos);
    BOOST_TEST(address_refusal("h:") == "address: the port is empty at position 3");
    BOOST_TEST(address_refusal("h:+1") == "address: '+' is not a digit of a port at position 3");
    BOOST_TEST(address_refusal("h:-1").find("'-'") != std::string::npos);
    BOOST_TEST(address_refusal("h:1 ") ==
               "address: byte 0x20 is not a digit of a port at position 4");
    BOOST_TEST(address_refusal("h") == "address: a ':' and the port are missing at position 2");
}

BOOST_AUTO_TEST_CASE(address_with_a_host_that_is_none_is_refused) {
    BOOST_TEST(address_refusal("") == "address: a ':' and the port are missing at position 1");
    BOOST_TEST(address_refusal(":1") == "address: the host is empty at position 1");
    BOOST_TEST(address_refusal("a..b:1") == "address: the host has an empty label at position 3");
    BOOST_TEST(address_refusal("a.:1") == "address: the host has an empty label at position 3");
    BOOST_TEST(address_refusal(".a:1") == "address: the host has an empty label at position 1");
    BOOST_TEST(address_refusal("a b:1") ==
               "address: byte 0x20 does not belong in a host there at position 2");
    BOOST_TEST(address_refusal("-a:1") ==
               "address: '-' does not belong in a host there at position 1");
    BOOST_TEST(address_refusal("a/b:1").find("'/'") != std::string::npos);
    BOOST_TEST(address_refusal("user@h:1").find("'@'") != std::string::npos);
    BOOST_TEST(address_refusal(std::string("h\0:1", 4)).find("0x00") != std::string::npos);
    BOOST_TEST(address_refusal("\xc3\xa9:1").find("0xc3") != std::string::npos);
    BOOST_TEST(address_refusal(std::string(64, 'a') + ":1").find("63") != std::string::npos);
    std::string longest = "a";
    while (longest.size() < 253) {
        longest += ".a";
    }
    BOOST_TEST(endpoint_address::parse(longest + ":1").has_value());
    BOOST_TEST(address_refusal(longest + "a:1").find("253") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(address_with_brackets_round_anything_but_ipv6_is_refused) {
    BOOST_TEST(address_refusal("::1:80") ==
               "address: a second ':' (an IPv6 literal goes in brackets) at position 2");
    BOOST_TEST(address_refusal("[::1:80") == "address: a ']' is missing at position 8");
    BOOST_TEST(address_refusal("[::1]80") ==
               "address: a ':' and the port are missing at position 6");
    BOOST_TEST(address_refusal("[::1]") == "address: a ':' and the port are missing at position 6");
    for (const char* text : {"[]:1", "[10.0.0.2]:1", "[host]:1", "[:::1]:1", "[::1 ]:1",
                             "[12345::]:1", "[::1%]:1", "[::1%a b]:1", "[%eth0]:1", "[[::1]]:1"}) {
        address_refusal(text);
    }
    address_refusal(std::string("[::1\0]:1", 8));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(urls)

BOOST_AUTO_TEST_CASE(contract_1_2_url_carries_address_and_handle) {
    const url u{{"10.0.0.2", 7471}, sample_handle};
    const std::string text = "rvget://10.0.0.2:7471/" + sample_text;
    BOOST_TEST(u.to_string() == text);
    const auto parsed = url::parse(text);
    BOOST_TEST_REQUIRE(parsed.has_value());
    BOOST_TEST((*parsed == u));
    const auto six = url::parse("rvget://[fe80::1%eth0]:1/" + sample_text);
    BOOST_TEST_REQUIRE(six.has_value());
    BOOST_TEST(six->address.host == "fe80::1%eth0");
    BOOST_TEST(six->to_string() == "rvget://[fe80::1%eth0]:1/" + sample_text);
}

BOOST_AUTO_TEST_CASE(contract_1_2_url_inexact_is_refused_at_its_position) {
    BOOST_TEST(url_refusal("http://h:1/" + sample_text) ==
               "url: it does not begin with rvget://, at position 1");
    BOOST_TEST(url_refusal("rvget:/h:1/" + sample_text) ==
               "url: it does not begin with rvget://, at position 8");
    BOOST_TEST(url_refusal("RVGET://h:1/" + sample_text).find("position 1") != std::string::npos);
    BOOST_TEST(url_refusal("rvget") == "url: it does not begin with rvget://, at position 6");
    BOOST_TEST(url_refusal("") == "url: it does not begin with rvget://, at position 1");
    BOOST_TEST(url_refusal("rvget://h:1") ==
               "url: a '/' and the handle are missing at position 12");
    BOOST_TEST(url_refusal("rvget://h/" + sample_text) ==
               "url: a ':' and the port are missing at position 10");
    BOOST_TEST(url_refusal("rvget://h:70000/" + sample_text) ==
               "url: the port is larger than 65535 at position 11");
    BOOST_TEST(url_refusal("rvget://h:1/") ==
               "url: ends early, 0 characters where 32 are wanted, at position 13");
    BOOST_TEST(url_refusal("rvget://h:1//" + sample_text) ==
               "url: '/' is not a lower-case hexadecimal digit at position 13");
    BOOST_TEST(url_refusal("rvget://h:1/" + sample_text + "?x").find("position 45") !=
               std::string::npos);
    url_refusal(" rvget://h:1/" + sample_text);
    url_refusal("rvget://h:1/" + sample_text + "/");
}

BOOST_AUTO_TEST_CASE(contract_1_2_url_changed_anywhere_is_refused_or_prints_the_same) {
    const std::string text = "rvget://[fe80::1%e]:74/" + sample_text;
    std::size_t accepted = 0;
    for (std::size_t at = 0; at < text.size(); ++at) {
        for (int value = 0; value < 256; ++value) {
            std::string changed = text;
            changed[at] = static_cast<char>(value);
            if (const auto parsed = url::parse(changed)) {
                ++accepted;
                BOOST_TEST_REQUIRE(parsed->to_string() == changed);
            }
        }
        BOOST_TEST(!url::parse(text.substr(0, at)).has_value());
    }
    BOOST_TEST(accepted > 32U * 16);  // each digit of the handle may be any digit, at least
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace rvget
