// Frame heads, and their first 8 bytes as a prefix: whatever is accepted encodes to the same bytes
// again, but for skipped optional fields at the end.

#include <algorithm>

#include "fuzz/require.hpp"
#include "wire/frames.hpp"

using namespace rvget::wire;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto bytes = std::as_bytes(std::span(data, size));
    if (size >= prefix_bytes) {
        const auto first = bytes.first<prefix_bytes>();
        if (const auto prefix = decode_prefix(first)) {
            FUZZ_REQUIRE(prefix->head_bytes > 0 && prefix->head_bytes <= max_head_bytes);
            FUZZ_REQUIRE(prefix->payload_bytes <= max_payload_bytes);
            FUZZ_REQUIRE(std::ranges::equal(encode_prefix(*prefix), first));
        }
    }
    const auto decoded = decode_frame(bytes);
    if (!decoded) {
        FUZZ_REQUIRE(decoded.error().detail.find(" at offset ") != std::string::npos);
        return 0;
    }
    const auto again = encode(*decoded);
    FUZZ_REQUIRE(again.size() <= size);
    FUZZ_REQUIRE(std::ranges::equal(again, bytes.first(again.size())));
    FUZZ_REQUIRE(again.size() == size || data[again.size()] >= 0x80);
    FUZZ_REQUIRE(*decode_frame(again) == *decoded);
    return 0;
}
