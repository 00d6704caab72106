#pragma once
// Which netdev a port of an RDMA device stands on, as the kernel tells (`rdma link`).

#include <cstdint>
#include <map>
#include <string>

namespace rvget::fabric::inventory {

/// By port number; a port whose netdev is in another network namespace is left out.
[[nodiscard]] std::map<std::uint32_t, std::string> port_netdevs(const std::string& device);

}  // namespace rvget::fabric::inventory
