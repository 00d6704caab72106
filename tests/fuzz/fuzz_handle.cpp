// Handle text: whatever is accepted prints the same again.

#include <string_view>

#include <rvget/handle.hpp>

#include "fuzz/require.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto parsed = rvget::handle::parse(text);
    if (parsed) {
        FUZZ_REQUIRE(size == 32);
        FUZZ_REQUIRE(parsed->to_string() == text);
    } else {
        FUZZ_REQUIRE(parsed.error().detail.find(" at position ") != std::string::npos);
    }
    return 0;
}
