#include "wire/frames.hpp"

#include <algorithm>
#include <stdexcept>

#include <boost/test/unit_test.hpp>

#include "wire/samples.hpp"

namespace rvget::wire {
namespace {

using test::from_hex;
using test::golden_frames;
using test::to_hex;

std::string refusal_of(std::span<const std::byte> head) {
    const auto decoded = decode_frame(head);
    BOOST_TEST_REQUIRE(!decoded.has_value());
    BOOST_TEST((decoded.error().code == connection_errc::protocol));
    return decoded.error().detail;
}

bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

/// Either refused with a place, or accepted with every byte accounted for.
void check_accounted(std::span<const std::byte> head) {
    const auto decoded = decode_frame(head);
    if (!decoded) {
        BOOST_TEST((decoded.error().code == connection_errc::protocol));
        BOOST_TEST(contains(decoded.error().detail, " at offset "), decoded.error().detail);
        return;
    }
    const auto again = encode(*decoded);
    // What re-encoding leaves out can only be skipped tags, and those come last.
    BOOST_TEST_REQUIRE(again.size() <= head.size());
    BOOST_TEST(std::ranges::equal(again, head.first(again.size())));
    if (again.size() < head.size()) {
        BOOST_TEST(std::to_integer<unsigned>(head[again.size()]) >= 0x80U);
    }
}

BOOST_AUTO_TEST_SUITE(frames)

BOOST_AUTO_TEST_CASE(golden_frames_encoded_are_the_documented_bytes) {
    std::vector<std::size_t> types;
    for (const auto& golden : golden_frames()) {
        BOOST_TEST_CONTEXT(golden.name) {
            BOOST_TEST(to_hex(encode(golden.frame)) == to_hex(from_hex(golden.bytes)));
            const auto decoded = decode_frame(from_hex(golden.bytes));
            BOOST_TEST_REQUIRE(decoded.has_value());
            BOOST_TEST((*decoded == golden.frame));
        }
        types.push_back(golden.frame.body.index());
    }
    types.erase(std::unique(types.begin(), types.end()), types.end());
    BOOST_TEST(types.size() == std::variant_size_v<body>);  // each type has a sample
}

BOOST_AUTO_TEST_CASE(contract_6_1_random_frame_decodes_to_itself) {
    rvget::test::seeded_random random("frames");
    test::random_values values(random);
    for (int i = 0; i < 5000; ++i) {
        const frame f = values.frame();
        const auto bytes = encode(f);
        const auto decoded = decode_frame(bytes);
        BOOST_TEST_REQUIRE(decoded.has_value(), "round " << i << ": " << decoded.error().detail);
        BOOST_TEST_REQUIRE((*decoded == f), "round " << i);
        BOOST_TEST_REQUIRE(bytes.size() <= max_head_bytes);
    }
}

BOOST_AUTO_TEST_CASE(contract_6_1_frame_cut_anywhere_is_refused_or_whole) {
    for (const auto& golden : golden_frames()) {
        const auto bytes = from_hex(golden.bytes);
        for (std::size_t length = 0; length < bytes.size(); ++length) {
            BOOST_TEST_CONTEXT(golden.name << " cut to " << length) {
                // A copy of exactly that size, so that a sanitizer sees a read past the cut.
                const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + length);
                check_accounted(cut);
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(contract_6_1_cut_inside_fixed_fields_is_refused) {
    for (const auto& golden : golden_frames()) {
        frame bare = golden.frame;
        if (auto* a = std::get_if<acquire>(&bare.body)) {
            *a = {};
        } else if (auto* r = std::get_if<acquire_reply>(&bare.body)) {
            *r = {};
        } else if (auto* o = std::get_if<renew>(&bare.body)) {
            *o = {};
        } else if (auto* n = std::get_if<renew_reply>(&bare.body)) {
            *n = {};
        } else if (auto* g = std::get_if<goodbye>(&bare.body)) {
            *g = {};
        } else if (auto* p = std::get_if<ping>(&bare.body)) {
            *p = {};
        } else if (auto* q = std::get_if<pong>(&bare.body)) {
            *q = {};
        }
        const auto bytes = encode(bare);  // no optional field: every shorter head lacks something
        for (std::size_t length = 0; length < bytes.size(); ++length) {
            BOOST_TEST(!decode_frame(std::span(bytes).first(length)).has_value(),
                       golden.name << " cut to " << length);
        }
    }
}

BOOST_AUTO_TEST_CASE(contract_6_1_any_byte_changed_is_refused_or_accounted_for) {
    for (const auto& golden : golden_frames()) {
        auto bytes = from_hex(golden.bytes);
        for (std::size_t at = 0; at < bytes.size(); ++at) {
            const std::byte original = bytes[at];
            for (unsigned value = 0; value < 256; ++value) {
                bytes[at] = static_cast<std::byte>(value);
                BOOST_TEST_CONTEXT(golden.name << " byte " << at << " = " << value) {
                    check_accounted(bytes);
                }
            }
            bytes[at] = original;
        }
    }
}

BOOST_AUTO_TEST_CASE(contract_6_1_random_bytes_behind_each_type_are_refused_or_accounted_for) {
    rvget::test::seeded_random random("frames");
    for (int i = 0; i < 50000; ++i) {
        std::vector<std::byte> bytes(random.below(120));
        for (std::byte& b : bytes) {
            b = static_cast<std::byte>(random.number<std::uint8_t>());
        }
        if (bytes.size() > 1) {
            bytes[0] = static_cast<std::byte>(1 + random.below(16));
            bytes[1] = std::byte{0};
        }
        check_accounted(bytes);
    }
}

BOOST_AUTO_TEST_CASE(contract_6_1_bytes_left_over_are_refused) {
    for (const auto& golden : golden_frames()) {
        auto bytes = from_hex(golden.bytes);
        bytes.push_back(std::byte{0});
        BOOST_TEST(contains(refusal_of(bytes), "at offset " + std::to_string(bytes.size() - 1)),
                   golden.name);
    }
}

BOOST_AUTO_TEST_CASE(head_of_unknown_type_or_reserved_byte_set_is_refused_with_place) {
    BOOST_TEST(refusal_of(from_hex("00 00 0000000000000000")) ==
               "frame: type 0 is not known at offset 0");
    BOOST_TEST(refusal_of(from_hex("11 00 0000000000000000")) ==
               "frame: type 17 is not known at offset 0");
    BOOST_TEST(refusal_of(from_hex("0f 01 0000000000000000")) ==
               "frame: the reserved byte is not zero at offset 1");
    BOOST_TEST(refusal_of(from_hex("0f 00 00")) ==
               "frame: needs 8 bytes where 1 are left at offset 2");
    BOOST_TEST(refusal_of({}) == "frame: needs 1 bytes where 0 are left at offset 0");
    BOOST_TEST(contains(refusal_of(std::vector<std::byte>(max_head_bytes + 1)), "65537 bytes"));
}

BOOST_AUTO_TEST_CASE(contract_6_2_tag_unknown_with_top_bit_is_skipped) {
    const auto decoded = decode_frame(from_hex("0f 00 0f00000000000000 90 0200 aabb ff 0000"));
    BOOST_TEST_REQUIRE(decoded.has_value());
    BOOST_TEST((*decoded == frame{15, ping{}}));
    const auto behind_known =
        decode_frame(from_hex("0e 00 0000000000000000 01 0100 61 81 0100 00"));
    BOOST_TEST_REQUIRE(behind_known.has_value());
    BOOST_TEST((*behind_known == frame{0, goodbye{"a"}}));
}

BOOST_AUTO_TEST_CASE(tag_unknown_without_top_bit_is_refused) {
    BOOST_TEST(refusal_of(from_hex("0f 00 0f00000000000000 7f 0000")) ==
               "ping: optional field 127 is unknown, repeated or out of order at offset 10");
}

BOOST_AUTO_TEST_CASE(tag_repeated_or_out_of_order_is_refused) {
    // goodbye's text twice; a skippable tag twice; skippable ones shrinking; known behind skipped.
    refusal_of(from_hex("0e 00 0000000000000000 01 0100 61 01 0100 61"));
    refusal_of(from_hex("0f 00 0f00000000000000 80 0000 80 0000"));
    refusal_of(from_hex("0f 00 0f00000000000000 81 0000 80 0000"));
    refusal_of(from_hex("0e 00 0000000000000000 80 0000 01 0100 61"));
    // acquire: detaches before no_offer_reason.
    const std::string fixed =
        "02 00 0900000000000000 0100000000000000 0200000000000000 0300000000000000 04000000 00";
    BOOST_TEST(decode_frame(from_hex(fixed + "02 0100 21 03 0800 0600000000000000")).has_value());
    BOOST_TEST(contains(refusal_of(from_hex(fixed + "03 0800 0600000000000000 02 0100 21")),
                        "optional field 2"));
}

BOOST_AUTO_TEST_CASE(optional_field_that_says_its_default_is_refused) {
    const std::string fixed =
        "02 00 0900000000000000 0100000000000000 0200000000000000 0300000000000000 04000000 00";
    BOOST_TEST(contains(refusal_of(from_hex(fixed + "02 0100 00")), "says its default"));
    BOOST_TEST(contains(refusal_of(from_hex(fixed + "03 0000")), "says its default"));
    BOOST_TEST(
        contains(refusal_of(from_hex("0e 00 0000000000000000 01 0000")), "says its default"));
}

BOOST_AUTO_TEST_CASE(optional_field_of_wrong_length_is_refused_inside_its_bounds) {
    const std::string fixed =
        "02 00 0900000000000000 0100000000000000 0200000000000000 0300000000000000 04000000 00";
    // The value goes on past its reason; its section is too short for an offer; not whole leases;
    // the section's length goes past the head.
    BOOST_TEST(contains(refusal_of(from_hex(fixed + "02 0200 2100")), "1 bytes are left over"));
    BOOST_TEST(contains(refusal_of(from_hex(fixed + "01 0500 05000000 01 02 0100 21")),
                        "needs 2 bytes where 1 are left"));
    BOOST_TEST(contains(refusal_of(from_hex(fixed + "03 0700 06000000000000")), "not whole"));
    BOOST_TEST(
        contains(refusal_of(from_hex(fixed + "02 ffff 21")), "needs 65535 bytes where 1 are left"));
}

BOOST_AUTO_TEST_CASE(enumerator_out_of_range_is_refused) {
    const std::string id = " 00 0000000000000000 ";
    BOOST_TEST(contains(refusal_of(from_hex("08" + id + "03")), "value 3 is not known"));
    refusal_of(from_hex("0b" + id + "5500000000000000 02"));
    refusal_of(from_hex("0d" + id + "03000000 0d"));  // reason 13
    std::string reply = "03" + id + "08 00";
    reply += std::string(2 * (3 * 8 + 2 * 4), '0');
    BOOST_TEST(contains(refusal_of(from_hex(reply)), "value 8 is not known at offset 10"));
    for (unsigned value = 0; value < 256; ++value) {
        auto bytes = encode(frame{0, lane_down{3, reason::ok}});
        bytes.back() = static_cast<std::byte>(value);
        BOOST_TEST(
            decode_frame(bytes).has_value() == (to_string(static_cast<reason>(value)) != "unknown"),
            "reason " << value);
    }
}

BOOST_AUTO_TEST_CASE(flag_unknown_is_refused) {
    const std::string id = " 00 0000000000000000 ";
    refusal_of(from_hex("06" + id + "02 00000000"));
    refusal_of(from_hex("0a" + id + "04 0000000000000000 00000000 00000000"));
    refusal_of(from_hex("0c" + id + "80 00000000"));
}

BOOST_AUTO_TEST_CASE(queue_pair_facts_without_a_path_mtu_are_neither_encoded_nor_decoded) {
    for (const std::uint32_t mtu : {0U, 1U, 1000U, 1500U, 8192U, 65536U + 1024U}) {
        queue_pair_facts facts = test::sample_facts();
        facts.path_mtu = mtu;
        BOOST_CHECK_THROW(encode(frame{1, acquire{.offer = lane_offer{1, 1, facts}}}),
                          std::invalid_argument);
    }
    auto bytes = encode(frame{1, acquire{.offer = lane_offer{1, 1, test::sample_facts()}}});
    bytes[bytes.size() - 2] = std::byte{5};  // 1024 -> 1280
    BOOST_TEST(contains(refusal_of(bytes), "1280 is no path MTU"));
}

BOOST_AUTO_TEST_CASE(value_beyond_its_limit_is_a_broken_precondition) {
    queue_pair_facts wide = test::sample_facts();
    wide.number = 1U << 24;
    BOOST_CHECK_THROW(encode(frame{1, acquire_reply{.lane_facts = wide}}), std::invalid_argument);
    const std::vector<std::uint64_t> many(max_leases + 1);
    BOOST_CHECK_THROW(encode(frame{0, detach{many}}), std::invalid_argument);
    BOOST_CHECK_THROW(encode(frame{0, acquire{.detaches = many}}), std::invalid_argument);
    BOOST_CHECK_THROW(encode(frame{0, pull{1, 0, max_payload_bytes + 1}}), std::invalid_argument);
    BOOST_CHECK_THROW(encode(frame{0, lane_down{1, static_cast<reason>(200)}}),
                      std::invalid_argument);
    const renew_reply huge{true, 1, std::vector<std::byte>(65536), {}, {}};
    BOOST_CHECK_THROW(encode(frame{0, huge}), std::invalid_argument);
    const acquire_reply head{.descriptor = std::vector<std::byte>(65500), .detail = "too much"};
    BOOST_CHECK_THROW(encode(frame{0, head}), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(largest_detaches_fit_a_head) {
    const std::vector<std::uint64_t> many(max_leases, 5);
    for (const frame& f :
         {frame{0, detach{many}}, frame{0, acquire{.offer = lane_offer{1, 1, test::sample_facts()},
                                           .no_offer_reason = reason::policy,
                                           .detaches = many}}}) {
        const auto decoded = decode_frame(encode(f));
        BOOST_TEST_REQUIRE(decoded.has_value());
        BOOST_TEST((*decoded == f));
    }
}

BOOST_AUTO_TEST_CASE(detach_that_announces_more_leases_than_it_has_is_refused) {
    BOOST_TEST(refusal_of(from_hex("04 00 0000000000000000 ffff 0100000000000000")) ==
               "detach: 65535 leases are announced, 8 bytes are left at offset 10");
    std::vector<std::byte> full = from_hex("04 00 0000000000000000 411f");  // 8001
    full.resize(full.size() + 8001 * 8);
    BOOST_TEST(contains(refusal_of(full), "8001 leases are too many"));
}

BOOST_AUTO_TEST_CASE(pull_of_more_than_a_payload_is_refused) {
    refusal_of(from_hex("07 00 0c00000000000000 7700000000000000 0000000000000000 01000001"));
    BOOST_TEST(decode_frame(from_hex("07 00 0c00000000000000 7700000000000000 0000000000000000"
                                     "00000001"))
                   .has_value());
}

BOOST_AUTO_TEST_CASE(long_text_encoded_is_cut_between_characters) {
    const std::string plain(600, 'x');
    const auto cut = [](std::string text) {
        const auto decoded = decode_frame(encode(frame{0, goodbye{std::move(text)}}));
        BOOST_TEST_REQUIRE(decoded.has_value());
        return std::get<goodbye>(decoded->body).why;
    };
    BOOST_TEST(cut(plain) == std::string(512, 'x'));
    const std::string before(511, 'x');
    BOOST_TEST(cut(before + "\xc3\xa9") == before);         // a character of two bytes would split
    BOOST_TEST(cut(before + "y\xc3\xa9") == before + "y");  // one that starts right behind
    BOOST_TEST(cut(std::string(600, '\x80')).size() >= 508);  // no UTF-8 at all: no long search
    std::vector<std::byte> longer = from_hex("0e 00 0000000000000000 01 0102");
    longer.resize(longer.size() + 513, std::byte{'x'});
    BOOST_TEST(contains(refusal_of(longer), "513 bytes is too long"));
}

BOOST_AUTO_TEST_CASE(prefix_within_limits_round_trips) {
    const auto bytes = encode_prefix({0x0102, 0x030405});
    BOOST_TEST(to_hex(bytes) == "0201000005040300");
    const auto decoded = decode_prefix(bytes);
    BOOST_TEST_REQUIRE(decoded.has_value());
    BOOST_TEST(decoded->head_bytes == 0x0102U);
    BOOST_TEST(decoded->payload_bytes == 0x030405U);
    BOOST_TEST(decode_prefix(encode_prefix({max_head_bytes, max_payload_bytes})).has_value());
    BOOST_TEST(decode_prefix(encode_prefix({1, 0})).has_value());
}

BOOST_AUTO_TEST_CASE(contract_6_1_prefix_beyond_limits_is_refused) {
    const auto refused = [](std::uint32_t head, std::uint32_t payload) {
        const auto decoded = decode_prefix(encode_prefix({head, payload}));
        BOOST_TEST_REQUIRE(!decoded.has_value());
        BOOST_TEST((decoded.error().code == connection_errc::protocol));
        return decoded.error().detail;
    };
    BOOST_TEST(contains(refused(0, 0), "at offset 0"));
    BOOST_TEST(contains(refused(max_head_bytes + 1, 0), "a head of 65537 bytes"));
    BOOST_TEST(contains(refused(1, max_payload_bytes + 1), "a payload of 16777217 bytes"));
    BOOST_TEST(contains(refused(0x20544547, 0x7474682f), "not this protocol"));  // "GET /htt"
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace rvget::wire
