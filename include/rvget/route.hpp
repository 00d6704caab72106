#pragma once
// Which device, port and GID RDMA would use towards a peer, and why not the others.

#include <cstdint>
#include <string>
#include <vector>

namespace rvget {

/// One device, port and GID, and what was thought of it.
struct route_candidate {
    std::string device;
    std::uint8_t port = 0;        ///< 0: the device has none
    std::string gid;              ///< empty: the port has none
    std::uint32_t gid_index = 0;  ///< where the GID stands now; places move, so it is no identity
    std::string type = "none";    ///< of the GID: "RoCE v2", "RoCE v1", "InfiniBand", "iWARP"
    std::string netdev;           ///< of the GID; VLANs and bonds have their own
    std::uint32_t mtu_bytes = 0;  ///< active path MTU of the port
    bool usable = false;
    std::string reason;  ///< why it won, lost, or cannot be used; for people
};

struct route_explanation {
    std::string peer;     ///< the address that was asked about
    bool local = false;   ///< it is this machine's
    std::string source;   ///< the address from which the kernel would send there
    std::string netdev;   ///< by which it would leave
    std::string gateway;  ///< empty: the peer is on the link
    /// Best first: the winner, those that lost in the order in which they would be taken, those
    /// that cannot be used.
    std::vector<route_candidate> candidates;
    std::string refusal;  ///< why there is no winner, with the next step; empty: there is one

    [[nodiscard]] const route_candidate* winner() const noexcept {
        return refusal.empty() && !candidates.empty() ? candidates.data() : nullptr;
    }
};

}  // namespace rvget
