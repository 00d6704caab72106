#include "fabric/verbs/inventory.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include <endian.h>

#include "fabric/inventory/port_netdev.hpp"
#include "fabric/verbs/text.hpp"

namespace rvget::fabric::verbs {

namespace fs = std::filesystem;

namespace {

/// The first line of a sysfs file; empty where it cannot be read (which for GID attributes is how
/// the kernel says that the entry has none).
std::string read_line(const fs::path& file) {
    std::ifstream in(file);
    std::string line;
    std::getline(in, line);
    return line;
}

bool is_iwarp(const ibv_device* device) { return device->node_type == IBV_NODE_RNIC; }

std::uint32_t mtu_bytes(ibv_mtu mtu) {
    return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128U << mtu : 0;
}

route::port_state state_of(ibv_port_state state) {
    switch (state) {
        case IBV_PORT_ACTIVE:
            return route::port_state::active;
        case IBV_PORT_ARMED:
            return route::port_state::armed;
        case IBV_PORT_INIT:
            return route::port_state::initialising;
        default:
            return route::port_state::down;
    }
}

route::gid_type type_of(std::uint32_t type, bool iwarp) {
    if (iwarp) return route::gid_type::iwarp;  // libibverbs calls them InfiniBand
    switch (type) {
        case IBV_GID_TYPE_ROCE_V1:
            return route::gid_type::roce_v1;
        case IBV_GID_TYPE_ROCE_V2:
            return route::gid_type::roce_v2;
        default:
            return route::gid_type::infiniband;
    }
}

failure query_failure(ibv_context* context, std::string_view what, int error) {
    return {device_errc::query_failed,
            std::string(ibv_get_device_name(context->device)) + ": " + std::string(what) + ": " +
                errno_text(error) +
                "; the device may be gone: see `ibv_devinfo -v` and `rdma link`"};
}

/// The netdev of a GID entry by name. Taken from sysfs, since libibverbs gives only an interface
/// index, which names another netdev or none when the device belongs to another network namespace.
std::string gid_netdev(std::string_view device, std::uint32_t port, std::uint32_t index) {
    return read_line(fs::path("/sys/class/infiniband") / device / "ports" / std::to_string(port) /
                     "gid_attrs/ndevs" / std::to_string(index));
}

/// The entry that stood there and was the same, or null.
const route::gid_entry* same_entry(std::span<const route::port_facts> known, std::uint32_t port,
                                   const route::gid_entry& entry) {
    for (const auto& p : known) {
        if (p.number != port) continue;
        const auto at = std::ranges::find(p.gids, entry.index, &route::gid_entry::index);
        if (at != p.gids.end() && at->gid == entry.gid && at->type == entry.type) return &*at;
    }
    return nullptr;
}

result<void> add_gids(ibv_context* context, bool iwarp, std::size_t room,
                      std::span<const route::port_facts> known,
                      std::vector<route::port_facts>& ports) {
    std::vector<ibv_gid_entry> table(room);
    const auto count = ibv_query_gid_table(context, table.data(), table.size(), 0);
    if (count < 0) return query_failure(context, "GID table", static_cast<int>(count));
    table.resize(static_cast<std::size_t>(count));
    for (const auto& raw : table) {
        route::gid_entry entry;
        entry.index = raw.gid_index;
        entry.type = type_of(raw.gid_type, iwarp);
        std::memcpy(entry.gid.bytes.data(), raw.gid.raw, entry.gid.bytes.size());
        const auto port = std::find_if(ports.begin(), ports.end(),
                                       [&](const auto& p) { return p.number == raw.port_num; });
        if (entry.gid.is_zero() || port == ports.end()) continue;
        const auto* same = same_entry(known, raw.port_num, entry);
        if (same != nullptr && same->netdev.empty()) same = nullptr;  // it could not be read then
        entry.netdev = same != nullptr ? same->netdev
                                       : gid_netdev(ibv_get_device_name(context->device),
                                                    raw.port_num, entry.index);
        // The lowest entries are those of the port's own netdev; VLANs and the like come later.
        if (port->netdev.empty()) port->netdev = entry.netdev;
        port->gids.push_back(std::move(entry));
    }
    if (!iwarp) return {};
    // The entries of iWARP name none.
    for (auto& p : ports) {
        if (!p.netdev.empty()) continue;
        const auto before = std::ranges::find(known, p.number, &route::port_facts::number);
        if (before != known.end()) p.netdev = before->netdev;
        if (!p.netdev.empty()) continue;
        const auto netdevs = fabric::inventory::port_netdevs(ibv_get_device_name(context->device));
        if (const auto at = netdevs.find(p.number); at != netdevs.end()) p.netdev = at->second;
    }
    return {};
}

}  // namespace

std::string driver_of(const fs::path& sysfs, std::string_view device, bool iwarp) {
    const auto entry = sysfs / "class/infiniband" / device;
    std::error_code ignored;
    const auto link = fs::read_symlink(entry / "device/driver", ignored);
    // Older kernels give a software device the PCI device of its netdev as `device`; only software
    // devices have the attribute `parent`, the name of that netdev.
    if (fs::exists(entry / "parent", ignored) || link.empty()) {
        if (!fs::exists(entry, ignored)) return {};
        return iwarp ? "siw" : "rxe";
    }
    // The driver of the PCI (or auxiliary) function, where rdma-core has another name for it.
    static constexpr std::array<std::array<std::string_view, 2>, 6> aliases = {{
        {"mlx5_core", "mlx5"},
        {"mlx4_core", "mlx4"},
        {"bnxt_en", "bnxt_re"},
        {"ice", "irdma"},
        {"i40e", "irdma"},
        {"hns3", "hns"},
    }};
    auto name = link.filename().string();
    for (const auto& [kernel, ours] : aliases) {
        // Sub-functions: "mlx5_core.sf".
        if (name == kernel || name.starts_with(std::string(kernel) + '.')) return std::string(ours);
    }
    return name;
}

route::device_facts facts_unopened(ibv_device* device) {
    route::device_facts facts;
    facts.name = ibv_get_device_name(device);
    facts.node_guid = be64toh(ibv_get_device_guid(device));
    facts.driver = driver_of("/sys", facts.name, is_iwarp(device));
    return facts;
}

result<std::vector<route::port_facts>> ports_of(ibv_context* context, bool iwarp, unsigned count,
                                                std::span<const route::port_facts> known) {
    std::vector<route::port_facts> ports;
    std::size_t table_entries = 0;
    for (unsigned number = 1; number <= count; ++number) {
        ibv_port_attr attr{};
        if (const int error = ibv_query_port(context, static_cast<std::uint8_t>(number), &attr)) {
            return query_failure(context, "port " + std::to_string(number), error);
        }
        route::port_facts port;
        port.number = static_cast<std::uint8_t>(number);
        port.state = state_of(attr.state);
        port.link_layer = iwarp ? route::link_layer::iwarp
                          : attr.link_layer == IBV_LINK_LAYER_ETHERNET
                              ? route::link_layer::ethernet
                              : route::link_layer::infiniband;
        port.active_mtu = mtu_bytes(attr.active_mtu);
        port.max_mtu = mtu_bytes(attr.max_mtu);
        port.lid = attr.lid;
        port.max_message_bytes = attr.max_msg_sz;
        table_entries += static_cast<std::size_t>(attr.gid_tbl_len);
        ports.push_back(std::move(port));
    }
    if (auto added = add_gids(context, iwarp, table_entries, known, ports); !added)
        return added.error();
    return ports;
}

result<route::device_facts> facts_of(ibv_context* context) {
    auto facts = facts_unopened(context->device);
    ibv_device_attr attr{};
    if (const int error = ibv_query_device(context, &attr)) {
        return query_failure(context, "device attributes", error);
    }
    facts.vendor_id = attr.vendor_id;
    facts.vendor_part_id = attr.vendor_part_id;
    facts.firmware = attr.fw_ver;
    facts.max_read_depth_initiator = static_cast<std::uint32_t>(attr.max_qp_init_rd_atom);
    facts.max_read_depth_responder = static_cast<std::uint32_t>(attr.max_qp_rd_atom);
    facts.max_queue_pairs = static_cast<std::uint32_t>(attr.max_qp);
    facts.max_send_requests = static_cast<std::uint32_t>(attr.max_qp_wr);
    facts.max_completion_entries = static_cast<std::uint32_t>(attr.max_cqe);
    facts.max_sge = static_cast<std::uint32_t>(attr.max_sge);
    facts.memory_windows_type2 =
        (attr.device_cap_flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)) !=
        0;
    auto ports = ports_of(context, is_iwarp(context->device), attr.phys_port_cnt);
    if (!ports) return ports.error();
    facts.ports = std::move(*ports);
    return facts;
}

}  // namespace rvget::fabric::verbs
