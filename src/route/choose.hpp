#pragma once
// Which device, port and GID to use towards one peer, and why not the others. Pure: facts in, a
// choice with its reasons out. The GID is chosen per peer and by value; its index is only where it
// stands now (two ends of one lane often have different ones).

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "route/facts.hpp"

namespace rvget::route {

/// What the user insists on; empty: no wish. A pin narrows the candidates, it never makes an
/// unusable one usable.
struct pins {
    std::string device{};
    std::optional<rvget::route::gid> gid{};
    std::optional<std::uint32_t> gid_index{};
};

/// The control connection to the peer: the one thing known to work between the two hosts.
/// Addresses in text form, IPv4, IPv6 (a "%scope" is ignored) or IPv4-mapped IPv6.
struct control_path {
    std::string own_address;
    std::string peer_address;
};

/// One (device, port, GID) and what was thought of it. A port without any GID, and a device without
/// ports, appear once with a zero GID, so that an explanation leaves nothing out.
struct candidate {
    std::string device;
    std::uint8_t port = 0;
    gid_entry entry{};
    std::uint32_t active_mtu = 0;
    std::uint16_t lid = 0;
    rvget::route::link_layer link_layer = rvget::route::link_layer::ethernet;
    bool usable = false;
    /// Of the winner: why it won. Of the others: why they lost or cannot be used at all.
    std::string reason{};
};

/// Best first: [0] is the winner if any candidate is usable, then the usable ones that lost, in the
/// order in which they would have been taken, then the unusable ones in the order of the facts.
struct choice {
    std::vector<candidate> candidates;
    /// Empty when there is a winner, else why there is none, with the next step.
    std::string refusal;

    [[nodiscard]] const candidate* winner() const noexcept {
        return refusal.empty() && !candidates.empty() ? candidates.data() : nullptr;
    }
};

/// Usable: the port is active, the GID is RoCE (or the port is InfiniBand), in the peer's address
/// family, at an index that a queue pair can name (0 to 255), and no pin excludes it. Preferred, in
/// this order: the GID that is the control connection's own address, RoCE v2 over v1, a routable
/// scope over link-local, a larger MTU; then the order of the facts. Where the control connection
/// is a loopback one every family is usable and IPv4 comes first.
///
/// Own and peer address must parse, else the refusal says which does not.
[[nodiscard]] choice choose(std::span<const device_facts> devices, const control_path& control,
                            const pins& wishes = {});

}  // namespace rvget::route
