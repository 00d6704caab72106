#include "diag/check/taken_text.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "base/printable.hpp"

namespace rvget::diag {

namespace {

/// What holds words. All else is names.
constexpr std::array<std::string_view, 13> words{
    "a_error", "accept_error", "a_firewall", "b_error", "b_firewall", "error", "firewall",
    "message", "no_gid",       "reason",     "status",  "subject",    "type"};
constexpr std::size_t longest = 512;

bool plain(std::string_view text, std::string_view besides) {
    return !text.starts_with('-') && std::ranges::all_of(text, [&](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               besides.find(c) != std::string_view::npos;
    });
}

}  // namespace

std::string taken(std::string_view key, std::string_view text) {
    if (std::ranges::find(words, key) != words.end()) return printable(text.substr(0, longest));
    // How the asking end named the other one: "[::1]:7473", or "node-b --port 7473".
    const auto* besides = key == "peer" ? "_.:@%-[] " : "_.:@%-";
    if (!plain(text, besides))
        throw std::invalid_argument(std::string(key) + ": this cannot be the name of a thing");
    return std::string(text);
}

}  // namespace rvget::diag
