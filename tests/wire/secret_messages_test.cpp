#include "wire/secret_messages.hpp"

#include <boost/test/unit_test.hpp>

#include "wire/samples.hpp"

namespace rvget::wire {
namespace {

using test::from_hex;
using test::secret_samples;
using test::to_hex;

std::string refusal_of(std::span<const std::byte> head) {
    const auto decoded = decode_secret_message(head);
    BOOST_TEST_REQUIRE(!decoded.has_value());
    BOOST_TEST((decoded.error().code == connection_errc::protocol));
    BOOST_TEST(decoded.error().detail.find(" at offset ") != std::string::npos);
    return decoded.error().detail;
}

BOOST_AUTO_TEST_CASE(secret_messages_encoded_are_the_documented_bytes) {
    const std::string request_id = "0000000000000000";
    const std::string thirty_two =
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    const std::string id = "8877665544332211";
    const std::string expected[] = {
        "4000" + request_id + "01" + thirty_two,
        "4100" + request_id + thirty_two,
        "4200" + request_id + id + thirty_two,
        "4300" + request_id + id + thirty_two + thirty_two,
    };
    const auto samples = secret_samples();
    BOOST_TEST_REQUIRE(samples.size() == std::variant_size_v<secret_message>);
    for (std::size_t i = 0; i < samples.size(); ++i) {
        BOOST_TEST(to_hex(encode(samples[i])) == expected[i]);
        BOOST_TEST((decode_secret_message(from_hex(expected[i])).value() == samples[i]));
    }
}

BOOST_AUTO_TEST_CASE(secret_message_of_another_length_is_refused) {
    for (const auto& m : secret_samples()) {
        auto bytes = encode(m);
        for (std::size_t n = 0; n < bytes.size(); ++n) refusal_of(std::span(bytes).first(n));
        bytes.push_back(std::byte{0});
        BOOST_TEST(refusal_of(bytes).find("1 bytes are left over") == 0u);
    }
}

BOOST_AUTO_TEST_CASE(secret_message_with_a_changed_beginning_is_refused_or_another_message) {
    for (const auto& m : secret_samples()) {
        const auto good = encode(m);
        for (std::size_t bit = 0; bit < 88; ++bit) {
            auto bad = good;
            bad[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
            const auto decoded = decode_secret_message(bad);
            if (decoded) {
                BOOST_TEST((encode(*decoded) == bad));
                BOOST_TEST((*decoded != m));
            } else {
                BOOST_TEST((decoded.error().code == connection_errc::protocol));
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(secret_hello_of_another_version_is_refused_by_name) {
    auto bytes = encode(secret_samples().front());
    bytes[10] = std::byte{2};
    BOOST_TEST(refusal_of(bytes) == "version 2 of the proof is not known at offset 10");
}

BOOST_AUTO_TEST_CASE(frame_and_secret_message_are_never_taken_for_each_other) {
    for (const auto& golden : test::golden_frames()) {
        BOOST_TEST(!decode_secret_message(encode(golden.frame)));
    }
    for (const auto& m : secret_samples()) BOOST_TEST(!decode_frame(encode(m)));
}

}  // namespace
}  // namespace rvget::wire
