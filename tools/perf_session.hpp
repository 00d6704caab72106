#pragma once
// The consumer's view of an owner of `rvget perf`.

#include <cstdint>
#include <string>
#include <vector>

#include <boost/json/object.hpp>

#include <rvget/handle.hpp>

#include "diag/perf_point.hpp"
#include "perf_channel.hpp"
#include "signal_watch.hpp"

namespace rvget::tools {

/// What a consumer wants the owner's node to be like.
struct perf_owner_wish {
    std::uint64_t rdma_min_bytes = 0;
    std::uint64_t inline_max = 0;
    std::uint64_t arena_bytes = 0;
    std::string lease_keys = "strongest";
};

/// The consumer's view of an owner: one session on a channel.
class perf_session {
public:
    static result<perf_session> open(const endpoint_address& at, const perf_owner_wish& wish,
                                     signal_watch& signals);

    /// What the owner said of its node.
    [[nodiscard]] const boost::json::object& greeting() const noexcept { return greeting_; }

    struct slots {
        std::vector<url> urls;
        bool pinned = true;     ///< all of them
        std::string why_plain;  ///< of one that is not
    };
    /// `count` slots of `bytes` bytes, slot n with the n-th pattern; those before are given up.
    result<slots> stage(std::uint64_t bytes, std::uint64_t count, bool pinned);
    result<diag::end_usage> usage();

private:
    perf_session(perf_channel channel, std::string host, signal_watch& signals);

    perf_channel channel_;
    std::string host_;  ///< as this machine reaches it
    signal_watch* signals_;
    boost::json::object greeting_;
};

}  // namespace rvget::tools
