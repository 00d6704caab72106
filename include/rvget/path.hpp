#pragma once
// Which way the bytes took, and why it was not RDMA where it was not.

#include <cstdint>
#include <string_view>

namespace rvget {

/// The way the bytes of one get took.
enum class path : std::uint8_t {
    rdma,           ///< the consumer's NIC READ them
    inline_answer,  ///< they came inside the acquire reply
    chunked,        ///< they were pulled in chunks over the control connection
};

/// Per node and per call: what to do about RDMA.
enum class path_policy : std::uint8_t {
    prefer,   ///< RDMA if it can run, else say why and pull chunks (default)
    require,  ///< RDMA or an error that names the reason
    never,    ///< chunks only
};

/// Why a path was taken. The numbers travel on the wire: never renumber, append only.
enum class reason : std::uint8_t {
    ok = 0,  ///< RDMA ran
    // The owner's, in the order in which acquire tests them.
    no_offer = 1,
    version = 2,
    not_configured = 3,  ///< no RDMA device (also a consumer's reason)
    kill_switch = 4,     ///< switched off by configuration (also a consumer's and staging's reason)
    draining = 5,
    fenced = 6,
    not_pinned = 7,
    below_min = 8,
    no_common_backend = 9,
    no_lane = 10,
    stale_region = 11,
    inline_answer = 12,  ///< no larger than inline_max: it travelled in the reply
    // The consumer's.
    policy = 32,
    no_route = 33,
    registration = 34,  ///< also staging's
    decode_error = 35,
    pool_exhausted = 36,  ///< also staging's
    get_failed = 37,
    lease_lost = 38,
    // Staging's.
    budget = 64,
    zero_length = 65,  ///< nothing to pin
    plain = 66,        ///< staged in plain memory by choice
};

std::string_view to_string(path p) noexcept;
std::string_view to_string(path_policy p) noexcept;
std::string_view to_string(reason r) noexcept;

}  // namespace rvget
