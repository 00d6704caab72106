#pragma once
// What is known of RDMA devices and their ports: plain values, collected by fabric's inventory and
// judged by pure functions.

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rvget::route {

/// A global identifier of a port: an IPv6 address, or an IPv4-mapped one on RoCE v2 over IPv4.
struct gid {
    std::array<std::uint8_t, 16> bytes{};
    friend auto operator<=>(const gid&, const gid&) = default;
    [[nodiscard]] bool is_zero() const noexcept;
    [[nodiscard]] bool is_ipv4_mapped() const noexcept;
    [[nodiscard]] bool is_link_local() const noexcept;
    /// The IPv4 address of a mapped GID, else the IPv6 text form.
    [[nodiscard]] std::string to_string() const;
};

/// An IPv4 or IPv6 address in text form (a "%scope" is ignored) as the GID that carries it; nullopt
/// for anything else.
[[nodiscard]] std::optional<gid> parse_gid(std::string_view text);

enum class gid_type : std::uint8_t { infiniband, roce_v1, roce_v2, iwarp };

/// One entry of a port's GID table. The index is where it stands now; it is no identity.
struct gid_entry {
    std::uint32_t index = 0;
    rvget::route::gid gid;
    gid_type type = gid_type::infiniband;
    std::string netdev;  ///< the entry's own netdev (VLAN and bond entries name their own)
};

enum class link_layer : std::uint8_t { ethernet, infiniband, iwarp };
enum class port_state : std::uint8_t { down, initialising, armed, active };

struct port_facts {
    std::uint8_t number = 1;
    port_state state = port_state::down;
    route::link_layer link_layer = link_layer::ethernet;
    std::uint32_t active_mtu = 0;  ///< bytes: 256, 512, 1024, 2048 or 4096
    std::uint32_t max_mtu = 0;     ///< bytes
    std::uint16_t lid = 0;
    std::uint32_t max_message_bytes = 0;
    std::string netdev;
    std::vector<gid_entry> gids;  ///< holes left out
};

struct device_facts {
    std::string name;
    std::uint64_t node_guid = 0;
    std::uint32_t vendor_id = 0;
    std::uint32_t vendor_part_id = 0;
    std::string driver;  ///< "rxe", "siw", "mlx5", ...
    std::string firmware;
    std::uint32_t max_read_depth_initiator = 0;
    std::uint32_t max_read_depth_responder = 0;
    std::uint32_t max_queue_pairs = 0;
    std::uint32_t max_send_requests = 0;
    std::uint32_t max_completion_entries = 0;
    std::uint32_t max_sge = 0;
    bool memory_windows_type2 = false;
    std::vector<port_facts> ports;

    /// Of a device all ports are, or none.
    [[nodiscard]] bool is_iwarp() const noexcept {
        return !ports.empty() && ports.front().link_layer == link_layer::iwarp;
    }
};

}  // namespace rvget::route
