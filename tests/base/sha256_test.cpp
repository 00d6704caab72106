#include <string>
#include <string_view>

#include <boost/test/unit_test.hpp>

#include "base/sha256.hpp"

namespace rvget::test {
namespace {

std::string hex(const sha256_digest& d) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string out;
    for (const std::byte b : d) {
        out += digits[std::to_integer<unsigned>(b) >> 4];
        out += digits[std::to_integer<unsigned>(b) & 15];
    }
    return out;
}

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
}

BOOST_AUTO_TEST_CASE(sha256_of_known_messages_is_as_published) {
    // FIPS 180-4 examples.
    BOOST_TEST(hex(sha256(bytes_of("abc"))) ==
               "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    BOOST_TEST(hex(sha256({})) ==
               "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

BOOST_AUTO_TEST_CASE(hmac_of_known_messages_is_as_published) {
    // RFC 4231, test cases 1, 2 and 6.
    BOOST_TEST(hex(hmac_sha256(bytes_of(std::string(20, '\x0b')), bytes_of("Hi There"))) ==
               "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    BOOST_TEST(hex(hmac_sha256(bytes_of("Jefe"), bytes_of("what do ya want for nothing?"))) ==
               "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    BOOST_TEST(
        hex(hmac_sha256(bytes_of(std::string(131, '\xaa')),
                        bytes_of("Test Using Larger Than Block-Size Key - Hash Key First"))) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

BOOST_AUTO_TEST_CASE(hmac_with_an_empty_key_does_not_use_the_last_one) {
    const auto before = hmac_sha256({}, bytes_of("message"));
    static_cast<void>(hmac_sha256(bytes_of("another key"), bytes_of("message")));
    BOOST_TEST((hmac_sha256({}, bytes_of("message")) == before));
}

BOOST_AUTO_TEST_CASE(equal_in_constant_time_tells_every_single_bit) {
    const auto d = sha256(bytes_of("abc"));
    BOOST_TEST(equal_in_constant_time(d, d));
    for (std::size_t i = 0; i < d.size() * 8; ++i) {
        auto other = d;
        other[i / 8] ^= static_cast<std::byte>(1U << (i % 8));
        BOOST_TEST(!equal_in_constant_time(d, other));
    }
}

}  // namespace
}  // namespace rvget::test
