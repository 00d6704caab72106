// What a stranger may send with a request to connect: whatever is accepted encodes to the same
// bytes again, and zeros after them.

#include <algorithm>
#include <span>

#include "fuzz/require.hpp"
#include "wire/connect_data.hpp"

using namespace rvget::wire;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto bytes = std::as_bytes(std::span(data, size));
    if (const auto nonce = decode_connect_data(bytes)) {
        FUZZ_REQUIRE(size >= connect_data_bytes);
        FUZZ_REQUIRE(
            std::ranges::equal(encode_connect_data(*nonce), bytes.first(connect_data_bytes)));
        FUZZ_REQUIRE(std::ranges::all_of(bytes.subspan(connect_data_bytes),
                                         [](std::byte b) { return b == std::byte{0}; }));
    }
    return 0;
}
