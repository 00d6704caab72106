#pragma once
// One machine as far as RDMA is concerned: what the kernel, the drivers and libibverbs say, as
// plain values that can be written to a file, and judged elsewhere. Units are in the names. What
// could not be learned is left empty (or nullopt), and where it matters `*_error` says why.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <boost/describe/class.hpp>

namespace rvget::fabric::inventory {

using counters = std::map<std::string, std::uint64_t>;

/// An address of a netdev. The flags are those of IPv6 duplicate address detection.
struct address {
    std::string text;
    std::uint32_t prefix = 0;
    bool tentative = false;
    bool duplicate = false;
    bool deprecated = false;
};
BOOST_DESCRIBE_STRUCT(address, (), (text, prefix, tentative, duplicate, deprecated))

struct netdev {
    std::string name;
    std::string kind;  ///< "vlan", "bond", "bridge", "veth", "macvlan", "tun"; empty: a plain one
    std::uint32_t mtu_bytes = 0;
    bool up = false;
    bool carrier = false;
    std::string mac;
    std::vector<std::string> lower;  ///< names of the netdevs that it stands on
    std::vector<address> addresses;
    std::optional<std::uint32_t> rp_filter;  ///< the stricter of its own and the global one
    std::optional<std::uint64_t> carrier_changes;
    std::optional<bool> pause_rx, pause_tx;    ///< global pause frames
    std::optional<std::uint32_t> pfc_enabled;  ///< bit n: priority n is lossless
    std::optional<bool> trust_dscp;
    std::optional<std::uint32_t> ring_rx, ring_rx_max;
    std::optional<bool> coalesce_adaptive;
    std::optional<std::uint32_t> coalesce_rx_us;
    std::optional<bool> checksum_offload;
    std::optional<std::uint32_t> pfc_watchdog_ms;
    std::optional<bool> irq_on_node;  ///< all its interrupts may run on its NUMA node only
    std::optional<bool> ecn_on;       ///< DCQCN on for the RoCE priorities (drivers that tell)
    inventory::counters counters;     ///< ethtool -S, those that rules know
    inventory::counters growth;       ///< of the same, while the collector watched
};
BOOST_DESCRIBE_STRUCT(netdev, (),
                      (name, kind, mtu_bytes, up, carrier, mac, lower, addresses, rp_filter,
                       carrier_changes, pause_rx, pause_tx, pfc_enabled, trust_dscp, ring_rx,
                       ring_rx_max, coalesce_adaptive, coalesce_rx_us, checksum_offload,
                       pfc_watchdog_ms, irq_on_node, ecn_on, counters, growth))

struct gid_entry {
    std::uint32_t index = 0;
    std::string gid;   ///< "10.0.0.1", "fe80::1"
    std::string type;  ///< "RoCE v2", "RoCE v1", "IB"; empty where the kernel refuses to tell
    std::string netdev;
    std::string operable;  ///< of an address handle to itself: "ok", an errno's text, or untried
};
BOOST_DESCRIBE_STRUCT(gid_entry, (), (index, gid, type, netdev, operable))

struct port {
    std::uint32_t number = 1;
    std::string state;           ///< "ACTIVE", "DOWN", "INIT", "ARMED"
    std::string physical_state;  ///< "LinkUp", "Disabled", "Polling"
    std::string link_layer;      ///< "Ethernet", "InfiniBand"
    std::uint32_t rate_mbps = 0;
    std::uint32_t active_mtu_bytes = 0;
    std::uint32_t max_mtu_bytes = 0;
    std::uint32_t lid = 0;
    std::uint32_t sm_lid = 0;
    std::vector<std::string> pkeys;
    std::string netdev;
    bool netdev_elsewhere = false;  ///< it has one, in another network namespace
    std::vector<gid_entry> gids;
    std::uint32_t foreign_gids = 0;  ///< entries whose attributes are refused: not this namespace's
    std::optional<std::uint32_t> traffic_class;
    std::string cm_mode;  ///< RDMA-CM's default GID type, from configfs
    inventory::counters counters;
    inventory::counters growth;
};
BOOST_DESCRIBE_STRUCT(port, (),
                      (number, state, physical_state, link_layer, rate_mbps, active_mtu_bytes,
                       max_mtu_bytes, lid, sm_lid, pkeys, netdev, netdev_elsewhere, gids,
                       foreign_gids, traffic_class, cm_mode, counters, growth))

/// What trying the device out gave; "ok", or what went wrong. Empty: not tried.
struct trial {
    std::uint32_t port = 1;
    std::string gid;
    std::string allocate;  ///< protection domain, queues, a region of `region_bytes`
    std::uint64_t region_bytes = 0;
    std::string loop;  ///< READs between two queue pairs of the device
    std::string event;
    std::string cm;     ///< RDMA-CM at the GID's address: listen, resolve address and route
    std::string async;  ///< an asynchronous event that was pending
    std::uint32_t inline_bytes = 0;
};
BOOST_DESCRIBE_STRUCT(trial, (),
                      (port, gid, allocate, region_bytes, loop, event, cm, async, inline_bytes))

struct device {
    std::string name;
    std::string driver;     ///< "mlx5", "rxe"
    std::string node_type;  ///< "CA", "RNIC"
    std::string node_guid;
    std::string firmware;
    std::string board;
    std::string pci;       ///< "0000:3b:00.0"; empty for a software device
    std::string pci_root;  ///< its root complex
    bool virtual_function = false;
    std::optional<std::int32_t> numa_node;
    std::string link_speed, link_speed_max;  ///< "16.0 GT/s PCIe"
    std::uint32_t link_width = 0, link_width_max = 0;
    std::optional<std::uint64_t> aer_correctable, aer_fatal;
    std::string uverbs;        ///< "/dev/infiniband/uverbs0"
    std::string uverbs_error;  ///< why it cannot be opened
    bool in_libibverbs = false;
    std::uint32_t max_read_depth = 0;
    std::uint32_t max_queue_pairs = 0;
    std::optional<std::uint32_t> queue_pairs;  ///< in use
    std::uint32_t max_sge = 0;
    std::uint64_t max_region_bytes = 0;
    bool memory_windows_type2 = false;
    std::string fast_path;         ///< who posts READs: "verbs", "mlx5"; empty: it was not opened
    std::string fast_path_detail;  ///< why not the one that was asked for
    std::vector<port> ports;
    std::vector<trial> trials;
};
BOOST_DESCRIBE_STRUCT(device, (),
                      (name, driver, node_type, node_guid, firmware, board, pci, pci_root,
                       virtual_function, numa_node, link_speed, link_speed_max, link_width,
                       link_width_max, aer_correctable, aer_fatal, uverbs, uverbs_error,
                       in_libibverbs, max_read_depth, max_queue_pairs, queue_pairs, max_sge,
                       max_region_bytes, memory_windows_type2, fast_path, fast_path_detail, ports,
                       trials))

struct gpu {
    std::string pci;
    std::string pci_root;
};
BOOST_DESCRIBE_STRUCT(gpu, (), (pci, pci_root))

struct host {
    std::string name;
    std::string kernel;
    std::string rdma_core;
    bool rdma_class = false;    ///< /sys/class/infiniband exists
    std::string class_error;    ///< why it cannot be read although it exists
    std::string rdma_cm_error;  ///< why /dev/infiniband/rdma_cm cannot be opened; empty: it can
    std::string libibverbs_error;
    std::optional<std::uint64_t> memlock_bytes;  ///< nullopt: unlimited
    bool ipc_lock = false;                       ///< CAP_IPC_LOCK: the limit does not count
    std::uint64_t open_files = 0;
    std::string netns_mode;  ///< "shared", "exclusive"
    std::optional<bool> copy_on_fork;
    std::map<std::string, std::string> rdma_limits;  ///< the control group's rdma.max, by device
    std::uint64_t hugepages_free = 0, hugepages_total = 0;
    std::optional<bool> numa_balancing;
    std::vector<std::int32_t> numa_nodes;  ///< those whose CPUs this process may use
    std::string governor;
    std::string clocksource;
    std::string command_line;  ///< the kernel's, the words that rules know
    std::uint64_t uptime_s = 0;
    bool iommu_groups = false;
    bool hypervisor = false;
    bool peer_memory = false;  ///< nvidia_peermem is loaded
    std::string firewall;      ///< "open", the rule that drops UDP 4791, or "unknown: why"
    std::vector<gpu> gpus;
    std::map<std::string, std::string> pins;  ///< NCCL_IB_GID_INDEX and the like
    std::uint64_t watched_ms = 0;             ///< how long counters were watched; 0: not
};
BOOST_DESCRIBE_STRUCT(host, (),
                      (name, kernel, rdma_core, rdma_class, class_error, rdma_cm_error,
                       libibverbs_error, memlock_bytes, ipc_lock, open_files, netns_mode,
                       copy_on_fork, rdma_limits, hugepages_free, hugepages_total, numa_balancing,
                       numa_nodes, governor, clocksource, command_line, uptime_s, iommu_groups,
                       hypervisor, peer_memory, firewall, gpus, pins, watched_ms))

struct facts {
    inventory::host host;
    std::vector<device> devices;
    std::vector<netdev> netdevs;

    [[nodiscard]] const netdev* find_netdev(const std::string& name) const noexcept {
        for (const auto& n : netdevs) {
            if (n.name == name) return &n;
        }
        return nullptr;
    }
};
BOOST_DESCRIBE_STRUCT(facts, (), (host, devices, netdevs))

}  // namespace rvget::fabric::inventory
