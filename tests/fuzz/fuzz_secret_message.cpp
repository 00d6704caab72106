// Messages of the proof of a secret: whatever is accepted encodes to the same bytes again.

#include <algorithm>

#include "fuzz/require.hpp"
#include "wire/secret_messages.hpp"

using namespace rvget::wire;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto bytes = std::as_bytes(std::span(data, size));
    const auto decoded = decode_secret_message(bytes);
    if (!decoded) {
        FUZZ_REQUIRE(decoded.error().detail.find(" at offset ") != std::string::npos);
        return 0;
    }
    FUZZ_REQUIRE(std::ranges::equal(encode(*decoded), bytes));
    return 0;
}
