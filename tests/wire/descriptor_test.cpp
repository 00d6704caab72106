#include "wire/descriptor.hpp"

#include <algorithm>
#include <stdexcept>

#include <boost/test/unit_test.hpp>

#include "wire/samples.hpp"

namespace rvget::wire {
namespace {

using test::from_hex;
using test::sample_descriptor;
using test::to_hex;

constexpr const char* golden_descriptor =
    "01 01 665544332211007f 0000100000000000 0807060504030201 30750000 03000000 11 01 efbeadde";

bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

template <class T>
std::string refusal_of(const result<T>& decoded) {
    BOOST_TEST_REQUIRE(!decoded.has_value());
    BOOST_TEST((decoded.error().code == connection_errc::protocol));
    return decoded.error().detail;
}

std::vector<rail_key> rails(std::size_t count) {
    std::vector<rail_key> keys;
    for (std::size_t i = 0; i < count; ++i) {
        keys.push_back({static_cast<std::uint8_t>(i), static_cast<std::uint32_t>(i * 77)});
    }
    return keys;
}

/// Refused with a place, or accepted and the same bytes again.
template <class Decode, class Encode>
void check_accounted(std::span<const std::byte> bytes, Decode decode, Encode encode_again) {
    const auto decoded = decode(bytes);
    if (!decoded) {
        BOOST_TEST(contains(refusal_of(decoded), " at offset "));
    } else {
        BOOST_TEST(std::ranges::equal(encode_again(*decoded), bytes));
    }
}
void check_descriptor(std::span<const std::byte> bytes) {
    check_accounted(bytes, decode_descriptor, [](const descriptor& d) { return encode(d); });
}
void check_keys(std::span<const std::byte> bytes) {
    check_accounted(bytes, unpack_keys,
                    [](const std::vector<rail_key>& keys) { return pack_keys(keys); });
}

BOOST_AUTO_TEST_SUITE(packed_keys)

BOOST_AUTO_TEST_CASE(contract_6_3_packed_key_is_6_bytes_and_5_more_a_rail) {
    for (std::size_t count = 1; count <= 15; ++count) {
        BOOST_TEST(pack_keys(rails(count)).size() == 6 + 5 * (count - 1));
    }
    BOOST_TEST(pack_keys(rails(1)).size() <= 8U);  // what the contract allows
}

BOOST_AUTO_TEST_CASE(golden_keys_packed_are_the_documented_bytes) {
    const std::vector<rail_key> keys{{7, 0x01020304}, {0, 0xffffffff}};
    BOOST_TEST(to_hex(pack_keys(keys)) ==
               "120704030201"
               "00ffffffff");
    BOOST_TEST((*unpack_keys(from_hex("12 07 04030201 00 ffffffff")) == keys));
}

BOOST_AUTO_TEST_CASE(contract_6_1_random_keys_unpack_to_themselves) {
    rvget::test::seeded_random random("packed_keys");
    test::random_values values(random);
    for (int i = 0; i < 5000; ++i) {
        const auto keys = values.keys();
        const auto unpacked = unpack_keys(pack_keys(keys));
        BOOST_TEST_REQUIRE(unpacked.has_value(), "round " << i);
        BOOST_TEST_REQUIRE((*unpacked == keys), "round " << i);
    }
}

BOOST_AUTO_TEST_CASE(keys_none_too_many_or_rail_twice_are_a_broken_precondition) {
    BOOST_CHECK_THROW(pack_keys({}), std::invalid_argument);
    BOOST_CHECK_THROW(pack_keys(rails(16)), std::invalid_argument);
    BOOST_CHECK_THROW(pack_keys(std::vector<rail_key>{{1, 2}, {1, 3}}), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(contract_6_1_packed_key_unaccounted_for_is_refused) {
    BOOST_TEST(refusal_of(unpack_keys(from_hex("21 01 efbeadde"))) ==
               "packed key: packed key version 2 is not known at offset 0");
    BOOST_TEST(refusal_of(unpack_keys(from_hex("10"))) ==
               "packed key: no key is packed at offset 0");
    BOOST_TEST(refusal_of(unpack_keys(from_hex("12 01 efbeadde 01 efbeadde"))) ==
               "packed key: rail 1 is named twice at offset 6");
    BOOST_TEST(refusal_of(unpack_keys(from_hex("11 01 efbeadde 00"))) ==
               "packed key: 1 bytes are left over at offset 6");
    refusal_of(unpack_keys({}));
}

BOOST_AUTO_TEST_CASE(contract_6_4_refusal_never_shows_a_key) {
    const auto said = refusal_of(unpack_keys(from_hex("12 01 efbeadde 01 efbeadde")));
    BOOST_TEST(!contains(said, "deadbeef"));
    BOOST_TEST(!contains(said, std::to_string(0xdeadbeefU)));
}

BOOST_AUTO_TEST_CASE(contract_6_1_packed_key_cut_or_changed_is_refused_or_accounted_for) {
    auto bytes = pack_keys(rails(3));
    for (std::size_t length = 0; length < bytes.size(); ++length) {
        const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + length);
        BOOST_TEST(!unpack_keys(cut).has_value(), "cut to " << length);
    }
    for (std::size_t at = 0; at < bytes.size(); ++at) {
        const std::byte original = bytes[at];
        for (unsigned value = 0; value < 256; ++value) {
            bytes[at] = static_cast<std::byte>(value);
            check_keys(bytes);
        }
        bytes[at] = original;
    }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(descriptors)

BOOST_AUTO_TEST_CASE(contract_6_3_descriptor_of_one_device_is_at_most_48_bytes) {
    descriptor d = sample_descriptor();
    d.address = d.length = d.lease = ~std::uint64_t{0};
    d.duration_ms = d.generation = ~std::uint32_t{0};
    BOOST_TEST(encode(d).size() <= 48U);
    BOOST_TEST(encode(d).size() == 40U);  // what docs/wire.md says
    d.crc32c = 1;
    BOOST_TEST(encode(d).size() == 44U);
    d.keys = rails(15);
    BOOST_TEST(encode(d).size() == 44U + 14 * 5);
}

BOOST_AUTO_TEST_CASE(golden_descriptor_encoded_is_the_documented_bytes) {
    BOOST_TEST(to_hex(encode(sample_descriptor())) == to_hex(from_hex(golden_descriptor)));
    BOOST_TEST((*decode_descriptor(from_hex(golden_descriptor)) == sample_descriptor()));
    descriptor checked = sample_descriptor();
    checked.mode = lease_mode::exact;
    checked.crc32c = 0xc0ffee00;
    BOOST_TEST(to_hex(encode(checked)) ==
               to_hex(from_hex("01 06 665544332211007f 0000100000000000 0807060504030201 30750000"
                               "03000000 00eeffc0 11 01 efbeadde")));
}

BOOST_AUTO_TEST_CASE(contract_6_1_random_descriptor_decodes_to_itself) {
    rvget::test::seeded_random random("descriptors");
    test::random_values values(random);
    for (int i = 0; i < 5000; ++i) {
        const descriptor d = values.descriptor();
        const auto decoded = decode_descriptor(encode(d));
        BOOST_TEST_REQUIRE(decoded.has_value(), "round " << i);
        BOOST_TEST_REQUIRE((*decoded == d), "round " << i);
    }
}

BOOST_AUTO_TEST_CASE(descriptor_encoded_without_key_is_a_broken_precondition) {
    BOOST_CHECK_THROW(encode(descriptor{}), std::invalid_argument);
    descriptor d = sample_descriptor();
    d.mode = static_cast<lease_mode>(3);
    BOOST_CHECK_THROW(encode(d), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(contract_6_1_descriptor_unaccounted_for_is_refused) {
    const auto changed = [](std::size_t at, unsigned value) {
        auto bytes = from_hex(golden_descriptor);
        bytes.at(at) = static_cast<std::byte>(value);
        return refusal_of(decode_descriptor(bytes));
    };
    BOOST_TEST(changed(0, 2) == "descriptor: version 2 is not known at offset 0");
    BOOST_TEST(changed(1, 3) == "descriptor: lease mode 3 is not known at offset 1");
    BOOST_TEST(changed(1, 8) == "descriptor: a flag is not known at offset 1");
    BOOST_TEST(changed(34, 0x10) == "descriptor: no key is packed at offset 34");
    BOOST_TEST(changed(34, 0x12) == "descriptor: needs 1 bytes where 0 are left at offset 40");
}

BOOST_AUTO_TEST_CASE(contract_6_1_descriptor_cut_changed_or_longer_is_refused_or_accounted_for) {
    descriptor checked = sample_descriptor();
    checked.crc32c = 5;
    checked.keys = rails(2);
    for (const descriptor& d : {sample_descriptor(), checked}) {
        auto bytes = encode(d);
        for (std::size_t length = 0; length < bytes.size(); ++length) {
            const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + length);
            BOOST_TEST(!decode_descriptor(cut).has_value(), "cut to " << length);
        }
        for (std::size_t at = 0; at < bytes.size(); ++at) {
            const std::byte original = bytes[at];
            for (unsigned value = 0; value < 256; ++value) {
                bytes[at] = static_cast<std::byte>(value);
                check_descriptor(bytes);
            }
            bytes[at] = original;
        }
        bytes.push_back(std::byte{0});
        BOOST_TEST(contains(refusal_of(decode_descriptor(bytes)), "left over"));
    }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace rvget::wire
