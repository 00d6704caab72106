#pragma once
// The 128-bit name of staged bytes, and the URL that also says where its owner listens.

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include <rvget/error.hpp>

namespace rvget {

/// The id of one run of one node (its incarnation): 64 random bits, new at every start, never 0.
struct node_id {
    std::uint64_t value = 0;
    friend auto operator<=>(const node_id&, const node_id&) = default;
};

/// Names one staged slot of one owner. Whoever holds it may get the bytes: treat it as a secret.
/// Both halves come from the operating system's random generator, so it cannot be guessed.
struct handle {
    node_id owner;
    std::uint64_t slot = 0;
    friend auto operator<=>(const handle&, const handle&) = default;

    /// The one text form: 32 lower-case hexadecimal digits, owner first.
    [[nodiscard]] std::string to_string() const;

    /// Exact inverse of to_string(): anything else (upper case, blanks, 31 or 33 digits) is
    /// `malformed_handle`, with what was wrong at which position.
    [[nodiscard]] static result<handle> parse(std::string_view text);
};

/// Where a node listens: host name or address literal, and port.
struct endpoint_address {
    std::string host;
    std::uint16_t port = 0;
    friend bool operator==(const endpoint_address&, const endpoint_address&) = default;

    /// "host:port", with brackets around an IPv6 literal.
    [[nodiscard]] std::string to_string() const;
    /// Exact: "host:port" or "[v6]:port", port 1 to 65535 in decimal without sign or leading zero.
    [[nodiscard]] static result<endpoint_address> parse(std::string_view text);
};

/// `rvget://host:port/<handle>`
struct url {
    endpoint_address address;
    rvget::handle handle;
    friend bool operator==(const url&, const url&) = default;

    [[nodiscard]] std::string to_string() const;
    [[nodiscard]] static result<url> parse(std::string_view text);
};

}  // namespace rvget
