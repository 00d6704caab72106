#include "base/random.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include <boost/test/unit_test.hpp>

namespace rvget {
namespace {

BOOST_AUTO_TEST_SUITE(randomness)

BOOST_AUTO_TEST_CASE(random_u64_is_never_zero_and_does_not_repeat) {
    std::set<std::uint64_t> seen;
    std::uint64_t ever_set = 0;
    for (int i = 0; i < 10000; ++i) {
        const std::uint64_t value = random_u64();
        BOOST_TEST_REQUIRE(value != 0U);
        BOOST_TEST_REQUIRE(seen.insert(value).second);
        ever_set |= value;
    }
    BOOST_TEST(ever_set == ~std::uint64_t{0});  // all 64 bits take part
}

BOOST_AUTO_TEST_CASE(fill_random_fills_to_the_last_byte_and_not_past_it) {
    // 4096 is beyond what the kernel fills in one uninterrupted go (256).
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{16}, std::size_t{4096}}) {
        std::vector<std::byte> memory(size + 1, std::byte{0});
        bool last_written = size == 0;
        for (int i = 0; i < 64 && !last_written; ++i) {  // one byte may well be 0 once
            fill_random(std::span(memory).first(size));
            last_written = memory[size - 1] != std::byte{0};
        }
        fill_random(std::span(memory).first(size));
        BOOST_TEST(last_written, size);
        BOOST_TEST((memory[size] == std::byte{0}), size);
    }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace rvget
