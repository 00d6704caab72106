#pragma once
// The other end of a check: requests and answers as JSON, one a line, over a TCP connection of
// small segments, which get through where long packets are lost.

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include <rvget/handle.hpp>

#include "diag/check/end.hpp"

namespace rvget::diag {

inline constexpr std::uint16_t check_port = 7473;

/// What the ends of a session must both say, where the listener wants it: at most so long.
inline constexpr std::size_t longest_token = 256;

struct remote_end {
    std::unique_ptr<check_end> end;
    std::string own_address, peer_address;  ///< of the connection
    std::chrono::milliseconds connect_time{};
};
/// Connects and greets with `token`, which may be empty. Blocking, at most `limit`. Later losses
/// are {"lost": "why"} in answers.
[[nodiscard]] result<remote_end> connect_end(const endpoint_address& to, const std::string& token,
                                             std::chrono::milliseconds limit);

struct listen_options {
    std::string address;  ///< empty: all of this host
    std::uint16_t port = check_port;
    std::string token;                  ///< serve only who says it; empty: whoever comes
    bool once = false;                  ///< end after the first check
    std::chrono::milliseconds idle{0};  ///< end when no check came for so long; 0: never
};
/// Serves one session after another, each over an end of its own. Shows a peer a read-only buffer
/// of 64 KiB with a known pattern and nothing else. Blocking. Calls `listening` with the port, then
/// `served` after each check with how many there were: a connection that greets and asks, not one
/// that says something else.
[[nodiscard]] result<void> serve_checks(const listen_options& options,
                                        const std::function<void(const std::string&)>& listening,
                                        const std::function<void(std::uint64_t)>& served);

}  // namespace rvget::diag
