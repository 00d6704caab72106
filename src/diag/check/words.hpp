#pragma once
// How check's findings say what was seen, and the commands that they propose. Pure.

#include <optional>
#include <string_view>

#include "diag/check/observations.hpp"

namespace rvget::diag {

[[nodiscard]] bool is_ipv4(const std::string& gid);
[[nodiscard]] std::string text(std::uint64_t n);
[[nodiscard]] std::string name_of(const end_point& e);
[[nodiscard]] std::string say(const read_seen& r);
[[nodiscard]] std::string outcome_of(const pair_seen& p);

/// What is waited for who put this request to an end ("read"), in words.
[[nodiscard]] std::string_view awaited(std::string_view request);

/// A command for a host: "[node-b] ip link ...".
[[nodiscard]] std::string on(const std::string& host, const std::string& command);
[[nodiscard]] std::string set_mtu(const end_point& e, std::uint32_t mtu);
[[nodiscard]] std::string restore_address(const end_point& e);
/// Deletes every rule of the packet filter that names RoCE's port and drops; nothing where there
/// is none.
[[nodiscard]] std::string unblock(const end_point& e);

[[nodiscard]] std::uint64_t grown(const std::map<std::string, std::uint64_t>& counters,
                                  const std::string& name);
/// How often the reader of these counters sent something again.
[[nodiscard]] std::uint64_t retries(const std::map<std::string, std::uint64_t>& reader);
/// Bytes of IP that a READ response of a full path MTU needs (IPv4; 20 more over IPv6).
[[nodiscard]] std::uint32_t needed(std::uint32_t mtu, bool ipv4);
/// The shortest datagram that was sent and did not arrive.
[[nodiscard]] std::optional<std::uint32_t> broken_at(const ladder_seen& l);
/// What the queue pairs of the first pair are to use.
[[nodiscard]] std::uint32_t path_mtu(const observations& o);

}  // namespace rvget::diag
