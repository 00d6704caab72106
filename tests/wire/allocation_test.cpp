// A decoder must not allocate on a peer's word: the largest single allocation that any input causes
// stays within a small multiple of the input. A program of its own, for it replaces operator new.

#include <algorithm>
#include <cstdlib>
#include <new>

#include <boost/test/unit_test.hpp>

#include "wire/samples.hpp"

namespace {
std::size_t largest = 0;
}

// GCC 12 inlines one half of the pair and then takes the other for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

void* operator new(std::size_t bytes) {
    largest = std::max(largest, bytes);
    if (void* memory = std::malloc(bytes)) {
        return memory;
    }
    throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace rvget::wire {
namespace {

// A refusal's sentence, or the decoded form of a few bytes, is longer than those bytes.
constexpr std::size_t slack = 256;

std::size_t largest_allocation_of(std::span<const std::byte> head) {
    largest = 0;
    static_cast<void>(decode_frame(head));
    static_cast<void>(decode_descriptor(head));
    static_cast<void>(unpack_keys(head));
    return largest;
}

BOOST_AUTO_TEST_CASE(contract_6_1_decoders_allocate_what_the_input_justifies) {
    BOOST_TEST_REQUIRE(
        largest_allocation_of(encode(frame{0, detach{std::vector<std::uint64_t>(max_leases)}})) >=
        8 * max_leases);  // the counter counts
    for (const auto& golden : test::golden_frames()) {
        auto bytes = test::from_hex(golden.bytes);
        for (std::size_t at = 0; at < bytes.size(); ++at) {
            const std::byte original = bytes[at];
            for (const unsigned value : {0xffU, 0x80U, 0x7fU}) {
                bytes[at] = static_cast<std::byte>(value);
                BOOST_TEST(largest_allocation_of(bytes) <= bytes.size() + slack,
                           golden.name << " byte " << at << " = " << value);
            }
            bytes[at] = original;
        }
    }
}

BOOST_AUTO_TEST_CASE(contract_6_1_hostile_counts_and_lengths_allocate_nothing_large) {
    for (const char* text :
         {"04 00 0000000000000000 ffff 0100000000000000", "0e 00 0000000000000000 01 ffff 61",
          "06 00 0000000000000000 01 00000000 01 ffff 00", "0f 00 0000000000000000 ff ffff 00",
          "1f 00 00000000"}) {
        const auto bytes = test::from_hex(text);
        BOOST_TEST(largest_allocation_of(bytes) <= bytes.size() + slack, text);
    }
}

}  // namespace
}  // namespace rvget::wire
