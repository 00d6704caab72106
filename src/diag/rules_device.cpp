// dev.* and port.*: the device itself.

#include "diag/judgement.hpp"

namespace rvget::diag {

namespace {

judgement count(const subject& s) {
    const auto& e = s.expected;
    if (!e.devices && e.pci.empty()) return skip("needs --expect FILE with devices or pci");
    std::string missing;
    for (const auto& address : e.pci) {
        const bool there = std::any_of(s.facts.devices.begin(), s.facts.devices.end(),
                                       [&](const auto& d) { return d.pci == address; });
        if (!there) missing += " " + address;
    }
    const auto wanted = e.devices.value_or(static_cast<std::uint32_t>(e.pci.size()));
    if (missing.empty() && s.facts.devices.size() == wanted) return pass(wanted);
    return fail("expected " + text(wanted) + " devices, found " + text(s.facts.devices.size()) +
                    (missing.empty() ? "" : "; missing at" + missing),
                {"lspci -nn | grep -iE 'infiniband|ethernet'", "dmesg | grep -iE 'mlx5|rdma|pcie'"},
                s.facts.devices.size());
}

judgement node_type(const subject& s) {
    const auto& type = s.device->node_type;
    if (type == "CA") return pass(type);
    if (type == "RNIC") {
        const auto& error = s.facts.host.rdma_cm_error;
        if (error.empty()) return pass(type);
        return fail(
            "iWARP: only RDMA-CM connects it, and that cannot be used "
            "(/dev/infiniband/rdma_cm: " +
                error + ")",
            {"modprobe rdma_ucm"}, type);
    }
    return fail("node type '" + type + "' is none that rvget knows",
                {"cat /sys/class/infiniband/" + s.device->name + "/node_type"}, type);
}

judgement guid(const subject& s) {
    const auto& own = s.device->node_guid;
    const auto& all = s.facts.devices;
    const bool zero = own.find_first_not_of("0:") == std::string::npos;
    const auto same =
        std::count_if(all.begin(), all.end(), [&](const auto& d) { return d.node_guid == own; });
    if (!zero && same == 1) return pass(own);
    return fail(zero ? "node GUID is zero: a virtual function without one"
                     : "node GUID " + own + " is used by more than one device",
                {"ip link set PF vf N node_guid 02:00:00:00:00:00:00:01  # on the host"}, own);
}

judgement firmware(const subject& s) {
    const auto& own = *s.device;
    if (own.board.empty()) return skip("the device names no board");
    const auto& wanted = s.expected.firmware;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), own.firmware) == wanted.end()) {
        return warn("firmware " + own.firmware + " is not one of those expected",
                    {"mstflint -d " + own.pci + " query"}, own.firmware);
    }
    for (const auto& d : s.facts.devices) {
        if (d.board == own.board && d.firmware != own.firmware) {
            return warn("board " + own.board + " has firmware " + own.firmware + " here and " +
                            d.firmware + " on " + d.name,
                        {"mstflint -d " + own.pci + " query"}, own.firmware);
        }
    }
    return pass(own.firmware);
}

judgement caps(const subject& s) {
    const auto depth = s.device->max_read_depth;
    if (depth == 0) {
        return fail("the device allows no outstanding READ",
                    {"ibv_devinfo -v -d " + s.device->name}, depth);
    }
    if (depth >= 16) return pass(depth);
    return warn("READ depth " + text(depth) + " limits READs outstanding on a queue pair",
                {"ibv_devinfo -v -d " + s.device->name + " | grep rd_atom"}, depth);
}

judgement memory_window(const subject& s) {
    if (s.device->memory_windows_type2) return pass(true);
    return warn(
        "no type-2 memory windows: the NIC cannot end one lease alone; rvget destroys the "
        "queue pair instead",
        {"ibv_devinfo -v -d " + s.device->name + " | grep MEM_WINDOW"}, false);
}

judgement dmabuf(const subject& s) {
    const auto& h = s.facts.host;
    if (h.gpus.empty()) return skip("no GPU");
    const auto kernel = std::strtod(h.kernel.c_str(), nullptr);
    const auto minor = h.kernel.find('.');
    const bool recent = kernel >= 6 || (kernel >= 5 && minor != std::string::npos &&
                                        std::atoi(h.kernel.c_str() + minor + 1) >= 12);
    if (h.peer_memory || (recent && s.device->driver == "mlx5")) return pass();
    return warn(
        "neither dma-buf (Linux 5.12 and a driver that has it) nor nvidia_peermem: GPU "
        "memory cannot be registered",
        {"modprobe nvidia_peermem"});
}

judgement gpu_root(const subject& s) {
    const auto& h = s.facts.host;
    if (h.gpus.empty() || s.device->pci_root.empty()) return skip("no GPU, or a software device");
    for (const auto& g : h.gpus) {
        if (g.pci_root == s.device->pci_root) return pass(g.pci);
    }
    return warn("no GPU is under the root complex of " + s.device->name + " (" +
                    s.device->pci_root + "): transfers cross the CPU's interconnect",
                {"nvidia-smi topo -m", "lspci -tv"}, s.device->pci_root);
}

judgement quirk(const subject& s) {
    if (s.device->driver != "rxe") return pass(s.device->driver);
    return warn(
        "rxe: retry count 7 never ends, a send over the netdev's MTU never completes, and "
        "a READ may report success without data; rvget retries 6 times, keeps deadlines "
        "and looks at the queue pair after each success",
        {"rdma link  # a hardware device for production"}, s.device->driver);
}

judgement resources(const subject& s) {
    const auto& d = *s.device;
    if (!d.queue_pairs || d.max_queue_pairs == 0) return skip("RDMA netlink tells no usage");
    const auto words =
        text(*d.queue_pairs) + " of " + text(d.max_queue_pairs) + " queue pairs in use";
    const std::vector<std::string> fix{"rdma resource show qp dev " + d.name +
                                       " | sed -n 's/.* comm //p' | sort | uniq -c | sort -rn"};
    const double part = static_cast<double>(*d.queue_pairs) / d.max_queue_pairs;
    if (part >= 0.98) return fail(words, fix, *d.queue_pairs);
    return part >= 0.8 ? warn(words, fix, *d.queue_pairs) : pass(*d.queue_pairs);
}

judgement numa(const subject& s) {
    const auto node = s.device->numa_node.value_or(-1);
    const auto& allowed = s.facts.host.numa_nodes;
    if (node < 0 || allowed.empty()) return skip("the device or the machine has no NUMA node");
    if (std::find(allowed.begin(), allowed.end(), node) != allowed.end()) return pass(node);
    return warn("the NIC is on node " + text(node) + ", this process may not run there",
                {"numactl --cpunodebind=" + text(node) + " --membind=" + text(node) + " COMMAND"},
                node);
}

judgement pcie(const subject& s) {
    const auto& d = *s.device;
    if (d.link_width_max == 0) return skip("no PCIe link");
    const auto speed = std::strtod(d.link_speed.c_str(), nullptr);
    const auto speed_max = std::strtod(d.link_speed_max.c_str(), nullptr);
    if (d.link_width >= d.link_width_max && speed >= speed_max) return pass(d.link_width);
    return warn("PCIe x" + text(d.link_width) + " " + d.link_speed + " of x" +
                    text(d.link_width_max) + " " + d.link_speed_max + " caps transfers at about " +
                    text(static_cast<int>(speed * d.link_width * 0.9)) + " Gb/s",
                {"lspci -vv -s " + d.pci + " | grep -E 'LnkCap|LnkSta'"}, d.link_width);
}

judgement aer(const subject& s) {
    const auto& d = *s.device;
    if (!d.aer_fatal) return skip("the device reports no PCIe errors");
    const std::vector<std::string> fix{"dmesg | grep -i aer", "lspci -vv -s " + d.pci};
    if (*d.aer_fatal > 0) return fail(text(*d.aer_fatal) + " fatal PCIe errors", fix, *d.aer_fatal);
    const auto correctable = d.aer_correctable.value_or(0);
    return correctable > 0 ? warn(text(correctable) + " corrected PCIe errors", fix, correctable)
                           : pass(0);
}

judgement state(const subject& s) {
    const auto& p = *s.port;
    if (p.state == "ACTIVE") return pass(p.state);
    const auto words = "port is " + (p.state.empty() ? "in no known state" : p.state) +
                       " (physical: " + (p.physical_state.empty() ? "unknown" : p.physical_state) +
                       ")";
    if (is_roce(p)) {
        return fail(words, {"ip link set " + (p.netdev.empty() ? "NETDEV" : p.netdev) + " up"},
                    p.state);
    }
    return fail(words, {"systemctl start opensm  # on one host of the fabric, for INIT"}, p.state);
}

judgement rate(const subject& s) {
    const auto own = s.port->rate_mbps;
    std::uint32_t wanted = s.expected.rate_mbps.value_or(0);
    const bool stated = wanted != 0;
    for (const auto& d : s.facts.devices) {
        for (const auto& p : d.ports) {
            if (!stated && d.board == s.device->board && p.state == "ACTIVE") {
                wanted = std::max(wanted, p.rate_mbps);
            }
        }
    }
    if (own >= wanted) return pass(own);
    const auto words = "rate " + text(own / 1000) + " of " + text(wanted / 1000) + " Gb/s";
    const std::vector<std::string> fix{"ethtool " + s.port->netdev +
                                       "  # speed, lanes, FEC; then the cable"};
    return stated ? fail(words, fix, own) : warn(words + ", which a sibling port has", fix, own);
}

judgement link_layer(const subject& s) {
    const auto& layer = s.port->link_layer;
    if (layer == "Ethernet" || layer == "InfiniBand") return pass(layer);
    return fail("link layer '" + layer + "' is none that rvget knows",
                {"cat /sys/class/infiniband/" + s.device->name + "/ports/" + text(s.port->number) +
                 "/link_layer"},
                layer);
}

judgement subnet_manager(const subject& s) {
    if (is_roce(*s.port)) return skip("InfiniBand only");
    if (s.port->sm_lid != 0) return pass(s.port->sm_lid);
    return fail("no subnet manager answers on this fabric", {"systemctl start opensm", "sminfo"},
                0);
}

judgement partition(const subject& s) {
    if (is_roce(*s.port)) return skip("InfiniBand only");
    const auto& keys = s.port->pkeys;
    if (std::find(keys.begin(), keys.end(), "0xffff") != keys.end()) return pass("0xffff");
    const std::vector<std::string> fix{
        "vi /etc/opensm/partitions.conf  # Default=0x7fff, ALL=full;"};
    if (keys.empty()) return fail("the port has no partition key", fix);
    return warn(
        "the port is no full member of the default partition: limited members do not reach "
        "each other",
        fix, keys.front());
}

}  // namespace

void add_device_rules(std::vector<rule>& table) {
    const auto device = scope::device;
    const auto port = scope::port;
    table.insert(
        table.end(),
        {
            {"dev.count", scope::host, "dev.present", "--expect",
             "fail: another number, or none at an address", count},
            {"dev.node_type", device, "", "sysfs node_type",
             "fail: iWARP without RDMA-CM, or unknown", node_type},
            {"dev.guid", device, "", "sysfs node_guid", "fail: zero, or used twice", guid},
            {"dev.firmware", device, "", "sysfs fw_ver, board_id",
             "warn: not expected, or siblings differ", firmware},
            {"dev.caps", device, "env.provider", "ibv_query_device",
             "warn: READ depth under 16; fail: 0", caps},
            {"dev.memory_window", device, "env.provider", "ibv_query_device", "warn: no type 2",
             memory_window},
            {"dev.dmabuf", device, "", "kernel version, driver, modules",
             "warn: a GPU, and neither dma-buf nor peer memory", dmabuf},
            {"dev.gpu_root", device, "", "PCI tree", "warn: no GPU under the NIC's root complex",
             gpu_root},
            {"dev.driver_quirk", device, "", "driver", "warn: software RDMA", quirk},
            {"dev.resources", device, "", "RDMA netlink: resources",
             "warn: 80 % of queue pairs used; fail: 98 %", resources},
            {"dev.numa", device, "", "numa_node, CPU affinity",
             "warn: process not allowed on the NIC's node", numa},
            {"dev.pcie", device, "", "PCI link speed and width", "warn: lower than the device can",
             pcie},
            {"dev.pcie_aer", device, "", "aer_dev_*", "warn: corrected errors; fail: fatal ones",
             aer},
            {"port.link_layer", port, "", "sysfs link_layer", "fail: unknown", link_layer},
            {"port.state", port, "", "sysfs state, phys_state", "fail: not ACTIVE", state},
            {"port.rate", port, "port.state", "sysfs rate, --expect, siblings",
             "warn: a port of the same board is faster; fail: below the expected", rate},
            {"port.sm", port, "", "sysfs sm_lid", "fail: none (InfiniBand)", subnet_manager},
            {"port.pkey", port, "", "sysfs pkeys", "warn: limited member; fail: none (InfiniBand)",
             partition},
        });
}

}  // namespace rvget::diag
