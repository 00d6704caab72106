#include "fabric/inventory/port_netdev.hpp"

#include <optional>

#include <linux/netlink.h>

#include "fabric/inventory/netlink.hpp"

namespace rvget::fabric::inventory {

std::map<std::uint32_t, std::string> port_netdevs(const std::string& device) {
    std::map<std::uint32_t, std::string> found;
    // Ports are dumped per device, whose index the list of devices tells.
    std::optional<std::uint32_t> index;
    netlink_request(nldev(RDMA_NLDEV_CMD_GET), NLM_F_DUMP, {})
        .run(NETLINK_RDMA, [&](std::span<const std::byte> m) {
            if (netlink_text(m, RDMA_NLDEV_ATTR_DEV_NAME) == device)
                index = netlink_u32(m, RDMA_NLDEV_ATTR_DEV_INDEX);
        });
    if (!index) return found;
    netlink_request(nldev(RDMA_NLDEV_CMD_PORT_GET), NLM_F_DUMP, {})
        .add_u32(RDMA_NLDEV_ATTR_DEV_INDEX, *index)
        .run(NETLINK_RDMA, [&](std::span<const std::byte> m) {
            const auto number = netlink_u32(m, RDMA_NLDEV_ATTR_PORT_INDEX);
            const std::string netdev(netlink_text(m, RDMA_NLDEV_ATTR_NDEV_NAME));
            if (number && !netdev.empty()) found[*number] = netdev;
        });
    return found;
}

}  // namespace rvget::fabric::inventory
