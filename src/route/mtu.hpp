#pragma once
// Path MTU steps: what a netdev's MTU leaves for RDMA, what a step needs, what two ends agree on.
// Pure; all sizes in bytes.

#include <cstdint>
#include <string_view>

namespace rvget::route {

/// The largest path MTU (256, 512, 1024, 2048 or 4096) that fits a netdev of `netdev_mtu`, as the
/// driver computes it: headers take 96 bytes with the drivers of NICs and 80 with rxe. Never less
/// than 256, which a port reports however small its netdev is.
[[nodiscard]] std::uint32_t path_mtu_for_netdev(std::string_view driver,
                                                std::uint32_t netdev_mtu) noexcept;

/// The smallest netdev MTU that gives `path_mtu`; 0 where `path_mtu` is no step.
[[nodiscard]] std::uint32_t netdev_mtu_for_path(std::string_view driver,
                                                std::uint32_t path_mtu) noexcept;

/// The path MTU of a lane between two ends: the smaller one, lowered to a step. 0 where an end is
/// below 256 (unknown): no lane can be made from that.
[[nodiscard]] std::uint32_t common_path_mtu(std::uint32_t ours, std::uint32_t theirs) noexcept;

}  // namespace rvget::route
