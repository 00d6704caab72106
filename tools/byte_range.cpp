#include "byte_range.hpp"

#include <charconv>
#include <limits>
#include <string>

namespace rvget::tools {

result<byte_range> byte_range::parse(std::string_view text) {
    const auto number = [](std::string_view digits) -> std::optional<std::uint64_t> {
        std::uint64_t value = 0;
        const char* const end = digits.data() + digits.size();
        const auto [rest, error] = std::from_chars(digits.data(), end, value);
        return error == std::errc{} && rest == end ? std::optional(value) : std::nullopt;
    };
    const auto refuse = [&](const char* why) {
        return failure{request_errc::invalid_argument,
                       "--range '" + std::string(text) + "': " + why +
                           "; give A-B (bytes A to B, both included, from 0) or A- (to the end)"};
    };
    const auto dash = text.find('-');
    if (dash == std::string_view::npos) {
        return refuse("no '-'");
    }
    byte_range range;
    const auto first = number(text.substr(0, dash));
    if (!first) {
        return refuse("what precedes the '-' is no number");
    }
    range.first = *first;
    if (const auto rest = text.substr(dash + 1); !rest.empty()) {
        range.last = number(rest);
        if (!range.last || *range.last == std::numeric_limits<std::uint64_t>::max()) {
            return refuse("what follows the '-' is no number");
        }
        if (*range.last < range.first) {
            return refuse("it ends before it begins");
        }
    }
    return range;
}

result<std::uint64_t> byte_range::length_in(std::uint64_t slot_bytes) const {
    const bool whole_of_nothing = slot_bytes == 0 && first == 0 && !last;
    if (!whole_of_nothing && (first >= slot_bytes || (last && *last >= slot_bytes))) {
        return failure{request_errc::out_of_range, "bytes " + std::to_string(first) + "-" +
                                                       (last ? std::to_string(*last) : "") +
                                                       " are not all there: the data has " +
                                                       std::to_string(slot_bytes) +
                                                       " bytes; give a range inside it"};
    }
    return last ? *last - first + 1 : slot_bytes - first;
}

}  // namespace rvget::tools
