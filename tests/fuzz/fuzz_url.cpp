// URLs, and addresses alone: whatever is accepted prints the same again.

#include <string_view>

#include <rvget/handle.hpp>

#include "fuzz/require.hpp"

namespace {

template <class T>
void check(std::string_view text) {
    const auto parsed = T::parse(text);
    if (parsed) {
        FUZZ_REQUIRE(parsed->to_string() == text);
    } else {
        FUZZ_REQUIRE(parsed.error().detail.find(" at position ") != std::string::npos);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    check<rvget::url>(text);
    check<rvget::endpoint_address>(text);
    return 0;
}
