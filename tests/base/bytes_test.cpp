#include "base/bytes.hpp"

#include <array>
#include <stdexcept>

#include <boost/test/unit_test.hpp>

#include "support/seeded_random.hpp"

namespace rvget {
namespace {

std::vector<std::byte> bytes_of(std::initializer_list<unsigned> values) {
    std::vector<std::byte> out;
    for (const unsigned v : values) {
        out.push_back(static_cast<std::byte>(v));
    }
    return out;
}

BOOST_AUTO_TEST_SUITE(bytes)

BOOST_AUTO_TEST_CASE(writer_numbers_written_are_little_endian) {
    byte_writer out;
    out.u8(0x01);
    out.u16(0x0302);
    out.u24(0x060504);
    out.u32(0x0a090807);
    out.u64(0x1211100f0e0d0c0b);
    out.text("AB");
    BOOST_TEST(out.size() == 20U);
    const auto written = std::move(out).take();
    for (unsigned i = 0; i < 18; ++i) {
        BOOST_TEST(std::to_integer<unsigned>(written.at(i)) == i + 1);
    }
    BOOST_TEST((written.at(18) == std::byte{'A'} && written.at(19) == std::byte{'B'}));
}

BOOST_AUTO_TEST_CASE(writer_patch_overwrites_in_place_and_never_past_the_end) {
    byte_writer out;
    out.u32(0);
    out.patch_u16(1, 0xbbaa);
    BOOST_CHECK_THROW(out.patch_u16(3, 1), std::out_of_range);
    const auto written = std::move(out).take();
    BOOST_TEST(written.size() == 4U);
    BOOST_TEST((written.at(1) == std::byte{0xaa} && written.at(2) == std::byte{0xbb}));
}

BOOST_AUTO_TEST_CASE(reader_random_numbers_read_as_written) {
    test::seeded_random random("bytes");
    for (int i = 0; i < 1000; ++i) {
        const auto a = random.number<std::uint8_t>();
        const auto b = random.number<std::uint16_t>();
        const auto c = random.number<std::uint32_t>();
        const auto d = random.number<std::uint64_t>();
        byte_writer out;
        out.u8(a);
        out.u16(b);
        out.u24(c >> 8);
        out.u32(c);
        out.u64(d);
        const auto written = std::move(out).take();
        byte_reader in(written);
        BOOST_TEST_REQUIRE(in.u8() == a);
        BOOST_TEST_REQUIRE(in.u16() == b);
        BOOST_TEST_REQUIRE(in.u24() == c >> 8);
        BOOST_TEST_REQUIRE(in.u32() == c);
        BOOST_TEST_REQUIRE(in.u64() == d);
        in.expect_end();
        BOOST_TEST_REQUIRE(in.ok());
    }
}

BOOST_AUTO_TEST_CASE(reader_short_of_bytes_fails_with_offset_and_sticks) {
    const auto input = bytes_of({1, 2, 3, 4, 5});
    byte_reader in(input);
    BOOST_TEST(in.u16() == 0x0201);
    BOOST_TEST(in.u32() == 0U);
    BOOST_TEST(!in.ok());
    BOOST_TEST(in.error() == "needs 4 bytes where 3 are left at offset 2");
    BOOST_TEST(in.remaining() == 0U);
    BOOST_TEST(in.u8() == 0U);
    BOOST_TEST(in.bytes(1).empty());
    in.fail("a later error");
    in.expect_end();
    BOOST_TEST(in.error() == "needs 4 bytes where 3 are left at offset 2");
}

BOOST_AUTO_TEST_CASE(reader_length_near_the_maximum_is_refused_without_overflow) {
    const auto input = bytes_of({1, 2, 3});
    byte_reader in(input);
    in.u8();
    BOOST_TEST(in.bytes(~std::size_t{0}).empty());
    BOOST_TEST(!in.ok());
}

BOOST_AUTO_TEST_CASE(reader_bytes_left_over_are_an_error) {
    const auto input = bytes_of({1, 2});
    byte_reader in(input);
    BOOST_TEST(in.peek_u8() == 1);
    in.u8();
    in.expect_end();
    BOOST_TEST(in.error() == "1 bytes are left over at offset 1");
}

BOOST_AUTO_TEST_CASE(reader_part_counts_offsets_of_the_whole_and_hands_its_error_up) {
    const auto input = bytes_of({1, 2, 3, 4, 5, 6});
    byte_reader in(input);
    in.u8();
    byte_reader part = in.part(3);
    BOOST_TEST(part.u16() == 0x0302);
    BOOST_TEST(part.u16() == 0U);
    in.finish_part(part);
    BOOST_TEST(in.error() == "needs 2 bytes where 1 are left at offset 3");
    BOOST_TEST(in.remaining() == 0U);
}

BOOST_AUTO_TEST_CASE(reader_part_left_unread_is_an_error_of_the_whole) {
    const auto input = bytes_of({1, 2, 3, 4});
    byte_reader in(input);
    byte_reader part = in.part(3);
    part.u8();
    in.finish_part(part);
    BOOST_TEST(in.error() == "2 bytes are left over at offset 1");
}

BOOST_AUTO_TEST_CASE(reader_part_read_whole_leaves_the_rest) {
    const auto input = bytes_of({1, 2, 3, 4});
    byte_reader in(input);
    byte_reader part = in.part(3);
    part.u24();
    in.finish_part(part);
    BOOST_TEST(in.ok());
    BOOST_TEST(in.u8() == 4);
}

BOOST_AUTO_TEST_CASE(reader_part_longer_than_the_whole_fails_both) {
    const auto input = bytes_of({1, 2, 3, 4});
    byte_reader in(input);
    byte_reader part = in.part(5);
    BOOST_TEST(part.remaining() == 0U);
    in.finish_part(part);
    BOOST_TEST(in.error() == "needs 5 bytes where 4 are left at offset 0");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace rvget
