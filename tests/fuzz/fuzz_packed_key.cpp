// Packed keys: whatever is accepted packs to the same bytes again.

#include <algorithm>

#include "fuzz/require.hpp"
#include "wire/descriptor.hpp"

using namespace rvget::wire;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto bytes = std::as_bytes(std::span(data, size));
    const auto keys = unpack_keys(bytes);
    if (keys) {
        FUZZ_REQUIRE(!keys->empty() && keys->size() <= 15);
        FUZZ_REQUIRE(std::ranges::equal(pack_keys(*keys), bytes));
    } else {
        FUZZ_REQUIRE(keys.error().detail.find(" at offset ") != std::string::npos);
    }
    return 0;
}
