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

struct remote_end {
    std::unique_ptr<check_end> end;
    std::string own_address, peer_address;  ///< of the connection
    std::chrono::milliseconds connect_time{};
};
/// Connects and greets. Blocking, at most `limit`. Later losses are {"lost": "why"} in answers.
[[nodiscard]] result<remote_end> connect_end(const endpoint_address& to,
                                             std::chrono::milliseconds limit);

struct listen_options {
    std::string address;  ///< empty: all of this host
    std::uint16_t port = check_port;
    bool once = false;                  ///< end after the first session
    std::chrono::milliseconds idle{0};  ///< end when nobody came for so long; 0: never
};
/// Serves one session after another, each over an end of its own. Shows a peer a read-only buffer
/// of 64 KiB with a known pattern and nothing else. Blocking.
[[nodiscard]] result<void> serve_checks(const listen_options& options,
                                        const std::function<void(const std::string&)>& listening);

}  // namespace rvget::diag
