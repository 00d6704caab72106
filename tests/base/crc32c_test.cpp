#include "base/crc32c.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "support/seeded_random.hpp"

namespace rvget::test {
namespace {

using function = std::uint32_t (*)(std::span<const std::byte>, std::uint32_t);

/// Each way that can run here; the one that is used in the end, too.
std::vector<function> ways() {
    std::vector<function> all{crc32c_by_table, crc32c};
    if (has_crc32c_instruction()) all.push_back(crc32c_by_instruction);
    return all;
}

std::vector<std::byte> random_bytes(seeded_random& random, std::size_t count) {
    std::vector<std::byte> out(count);
    for (auto& b : out) b = static_cast<std::byte>(random.u64());
    return out;
}

BOOST_AUTO_TEST_CASE(crc32c_of_known_messages_is_as_published) {
    for (const auto crc : ways()) {
        // The check value of the polynomial, then RFC 3720, B.4.
        BOOST_TEST(crc(std::as_bytes(std::span(std::string_view("123456789"))), 0) == 0xe3069283U);
        std::vector<std::byte> m(32);
        BOOST_TEST(crc(m, 0) == 0x8a9136aaU);
        std::ranges::fill(m, std::byte{0xff});
        BOOST_TEST(crc(m, 0) == 0x62a8ab43U);
        for (std::size_t i = 0; i < m.size(); ++i) m[i] = static_cast<std::byte>(i);
        BOOST_TEST(crc(m, 0) == 0x46dd794eU);
        std::ranges::reverse(m);
        BOOST_TEST(crc(m, 0) == 0x113fdb5cU);
        BOOST_TEST(crc({}, 0) == 0U);
    }
}

BOOST_AUTO_TEST_CASE(crc32c_by_instruction_and_by_table_agree_at_every_length_and_alignment) {
    // Without the instruction there is one way only, and the published values have tested it.
    BOOST_TEST(ways().size() >= 2u);
    seeded_random random("crc32c_agree");
    const auto bytes = random_bytes(random, 200);
    for (std::size_t at = 0; at < 16; ++at)
        for (std::size_t length = 0; at + length <= bytes.size(); ++length) {
            const auto part = std::span(bytes).subspan(at, length);
            const auto expected = crc32c_by_table(part);
            for (const auto crc : ways()) BOOST_TEST(crc(part, 0) == expected);
        }
}

BOOST_AUTO_TEST_CASE(crc32c_in_pieces_is_that_of_the_whole) {
    seeded_random random("crc32c_pieces");
    const auto bytes = random_bytes(random, 10'000);
    for (const auto crc : ways()) {
        const auto whole = crc(bytes, 0);
        for (int i = 0; i < 50; ++i) {
            std::uint32_t value = 0;
            for (std::size_t at = 0; at < bytes.size();) {
                const auto n = std::min<std::size_t>(random.below(3000), bytes.size() - at);
                value = crc(std::span(bytes).subspan(at, n), value);
                at += n;
            }
            BOOST_TEST(value == whole);
        }
    }
}

BOOST_AUTO_TEST_CASE(crc32c_changes_with_every_single_bit) {
    seeded_random random("crc32c_bits");
    auto bytes = random_bytes(random, 64);
    for (const auto crc : ways()) {
        const auto before = crc(bytes, 0);
        for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
            bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
            BOOST_TEST(crc(bytes, 0) != before);
            bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
        }
    }
}

}  // namespace
}  // namespace rvget::test
