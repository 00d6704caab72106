// What sysfs, procfs and /dev tell, below any root.

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fabric/inventory/collect.hpp"
#include "fabric/inventory/files.hpp"
#include "fabric/verbs/inventory.hpp"

namespace rvget::fabric::inventory {

namespace fs = std::filesystem;

std::string read_text(const fs::path& file) {
    // Non-blocking: a recorded tree may hold a pipe where a file should be.
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return {};
    std::string text(1 << 16, '\0');
    const auto got = ::read(fd, text.data(), text.size());
    ::close(fd);
    text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
    // Binary junk says nothing; what remains goes to terminals and into JSON.
    const bool printable = std::all_of(text.begin(), text.end(), [](char c) {
        const auto u = static_cast<unsigned char>(c);
        return (u >= 0x20 && u < 0x7f) || u == '\n' || u == '\t';
    });
    return printable ? text : std::string();
}

std::optional<std::uint64_t> read_number(const fs::path& file) {
    const auto text = read_text(file);
    std::uint64_t value = 0;
    const bool hex = text.starts_with("0x");
    const char* const first = text.data() + (hex ? 2 : 0);
    const auto [end, error] =
        std::from_chars(first, text.data() + text.size(), value, hex ? 16 : 10);
    return error == std::errc{} && end != first ? std::optional(value) : std::nullopt;
}

std::vector<std::string> names_in(const fs::path& directory) {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator at(directory, error), end; !error && at != end;
         at.increment(error)) {
        names.push_back(at->path().filename().string());
    }
    std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
        return std::pair(a.size(), a) < std::pair(b.size(), b);  // "9" before "10"
    });
    return names;
}

void read_counters(const fs::path& directory, counters& into) {
    for (const auto& name : names_in(directory)) {
        if (name == "lifespan") continue;
        if (const auto value = read_number(directory / name)) into[name] = *value;
    }
}

std::vector<counters> read_counters_now(std::span<const fs::path> directories) {
    constexpr std::uint64_t longest_ms = 1000, tick_ms = 10;
    std::uint64_t held_ms = 0;
    for (const auto& d : directories) {
        held_ms = std::max(held_ms, read_number(d / "lifespan").value_or(0));
    }
    // Longer than the file says: the kernel counts in ticks, of up to 10 ms.
    if (held_ms > 0) {
        std::this_thread::sleep_for(
            std::chrono::milliseconds(std::min(held_ms + tick_ms, longest_ms)));
    }
    std::vector<counters> all;
    for (const auto& d : directories) read_counters(d, all.emplace_back());
    return all;
}

std::string open_error(const fs::path& node) {
    const int fd = ::open(node.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return std::strerror(errno);
    ::close(fd);
    return {};
}

namespace {

/// "4: ACTIVE" without the number.
std::string after_colon(const std::string& text) {
    const auto colon = text.find(": ");
    return colon == std::string::npos ? text : text.substr(colon + 2);
}

/// "0000:0000:0000:0000:0000:ffff:c612:0001" as people write it; empty for zero or no GID.
std::string gid_text(const std::string& raw) {
    route::gid g;
    if (::inet_pton(AF_INET6, raw.c_str(), g.bytes.data()) != 1 || g.is_zero()) return {};
    return g.to_string();
}

void read_gids(const fs::path& directory, port& p) {
    for (const auto& index : names_in(directory / "gids")) {
        gid_entry entry;
        entry.gid = gid_text(read_text(directory / "gids" / index));
        const auto* const end = index.data() + index.size();
        if (entry.gid.empty() || std::from_chars(index.data(), end, entry.index).ptr != end) {
            continue;
        }
        entry.type = read_text(directory / "gid_attrs/types" / index);
        entry.netdev = read_text(directory / "gid_attrs/ndevs" / index);
        if (entry.type == "IB/RoCE v1") entry.type = p.link_layer == "Ethernet" ? "RoCE v1" : "IB";
        if (p.link_layer == "Ethernet" && entry.type.empty()) {
            // EINVAL for an entry with a GID: it belongs to another network namespace.
            ++p.foreign_gids;
            continue;
        }
        p.gids.push_back(std::move(entry));
    }
}

port read_port(const fs::path& root, const fs::path& directory, const std::string& device) {
    port p;
    p.number = static_cast<std::uint32_t>(std::strtoul(directory.filename().c_str(), nullptr, 10));
    p.state = after_colon(read_text(directory / "state"));
    p.physical_state = after_colon(read_text(directory / "phys_state"));
    p.link_layer = read_text(directory / "link_layer");
    // "100 Gb/sec (4X EDR)"; also "2.5 Gb/sec (1X SDR)".
    p.rate_mbps = static_cast<std::uint32_t>(
        std::clamp(std::strtod(read_text(directory / "rate").c_str(), nullptr), 0.0, 1e6) * 1000);
    p.lid = static_cast<std::uint32_t>(read_number(directory / "lid").value_or(0));
    p.sm_lid = static_cast<std::uint32_t>(read_number(directory / "sm_lid").value_or(0));
    if (p.link_layer == "InfiniBand") {
        for (const auto& name : names_in(directory / "pkeys")) {
            const auto key = read_text(directory / "pkeys" / name);
            if (!key.empty() && key != "0x0000") p.pkeys.push_back(key);
        }
    }
    read_gids(directory, p);
    read_counters(directory / "hw_counters", p.counters);
    read_counters(directory / "counters", p.counters);
    const auto number = directory.filename().string();
    const auto tc = read_text(directory / "../../tc" / number / "traffic_class");
    if (const auto at = tc.find('='); at != std::string::npos) {
        p.traffic_class =
            static_cast<std::uint32_t>(std::strtoul(tc.c_str() + at + 1, nullptr, 10));
    }
    p.cm_mode = read_text(root / "sys/kernel/config/rdma_cm" / device / "ports" / number /
                          "default_roce_mode");
    return p;
}

/// "pci0000:3a" out of ".../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0".
std::string pci_root_of(const fs::path& resolved) {
    for (const auto& part : resolved) {
        if (part.string().starts_with("pci")) return part.string();
    }
    return {};
}

/// The sum of a file of "NAME count" lines; PCIe's AER files have one TOTAL_ line, taken alone.
std::optional<std::uint64_t> aer_total(const fs::path& file) {
    const auto text = read_text(file);
    const auto at = text.find("TOTAL_");
    const auto blank = at == std::string::npos ? at : text.find(' ', at);
    if (blank == std::string::npos) return std::nullopt;
    return std::strtoull(text.c_str() + blank, nullptr, 10);
}

void read_pci(const fs::path& entry, device& d) {
    std::error_code ignored;
    const auto pci = fs::weakly_canonical(entry / "device", ignored);
    // Only software devices have `parent`; what older kernels then call `device` is the netdev's.
    if (ignored || !fs::exists(entry / "device", ignored) ||
        fs::exists(entry / "parent", ignored)) {
        return;
    }
    d.pci = pci.filename().string();
    d.pci_root = pci_root_of(pci);
    d.virtual_function = fs::exists(pci / "physfn", ignored);
    if (const auto node = read_text(pci / "numa_node"); !node.empty()) {
        d.numa_node = std::atoi(node.c_str());
    }
    d.link_speed = read_text(pci / "current_link_speed");
    d.link_speed_max = read_text(pci / "max_link_speed");
    d.link_width = static_cast<std::uint32_t>(read_number(pci / "current_link_width").value_or(0));
    d.link_width_max = static_cast<std::uint32_t>(read_number(pci / "max_link_width").value_or(0));
    d.aer_correctable = aer_total(pci / "aer_dev_correctable");
    d.aer_fatal = aer_total(pci / "aer_dev_fatal");
}

device read_device(const fs::path& root, const std::string& name) {
    const auto entry = root / "sys/class/infiniband" / name;
    device d;
    d.name = name;
    d.node_type = after_colon(read_text(entry / "node_type"));
    d.driver = verbs::driver_of(root / "sys", name, d.node_type == "RNIC");
    d.node_guid = read_text(entry / "node_guid");
    d.firmware = read_text(entry / "fw_ver");
    d.board = read_text(entry / "board_id");
    read_pci(entry, d);
    const auto parent = read_text(entry / "parent");
    for (const auto& number : names_in(entry / "ports")) {
        auto p = read_port(root, entry / "ports" / number, name);
        if (d.node_type == "RNIC")
            for (auto& g : p.gids) g.type = "iWARP";  // sysfs says "IB/RoCE v1"
        // Least trusted first: the PCI function's netdevs, the lowest GID entry's, a software
        // device's parent; netlink, which knows best, comes later.
        for (const auto& net : names_in(entry / "device/net")) {
            const auto dev_port = read_number(root / "sys/class/net" / net / "dev_port");
            if (dev_port.value_or(0) + 1 == p.number) p.netdev = net;
        }
        for (const auto& g : p.gids) {
            if (g.netdev.empty()) continue;
            p.netdev = g.netdev;
            break;
        }
        if (!parent.empty()) p.netdev = parent;
        std::error_code ignored;
        const bool here = fs::exists(root / "sys/class/net" / p.netdev, ignored);
        p.netdev_elsewhere =
            p.link_layer == "Ethernet" &&
            ((!p.netdev.empty() && !here) || (p.netdev.empty() && p.foreign_gids > 0));
        d.ports.push_back(std::move(p));
    }
    for (const auto& node : names_in(root / "sys/class/infiniband_verbs")) {
        if (read_text(root / "sys/class/infiniband_verbs" / node / "ibdev") != name) continue;
        d.uverbs = "/dev/infiniband/" + node;
        d.uverbs_error = open_error(root / "dev/infiniband" / node);
    }
    if (d.uverbs.empty()) d.uverbs_error = "the kernel offers no uverbs node for it";
    return d;
}

std::string kind_of(const fs::path& entry) {
    const auto uevent = read_text(entry / "uevent");
    const auto at = uevent.find("DEVTYPE=");
    if (at != std::string::npos) return uevent.substr(at + 8, uevent.find('\n', at) - at - 8);
    std::error_code ignored;
    if (fs::exists(entry / "bonding", ignored)) return "bond";
    if (fs::exists(entry / "bridge", ignored)) return "bridge";
    if (fs::exists(entry / "tun_flags", ignored)) return "tun";
    return {};
}

netdev read_netdev(const fs::path& root, const std::string& name) {
    const auto entry = root / "sys/class/net" / name;
    netdev n;
    n.name = name;
    n.kind = kind_of(entry);
    n.mtu_bytes = static_cast<std::uint32_t>(read_number(entry / "mtu").value_or(0));
    n.up = (read_number(entry / "flags").value_or(0) & 1U) != 0;  // IFF_UP
    n.carrier = read_number(entry / "carrier").value_or(0) == 1;
    n.mac = read_text(entry / "address");
    n.carrier_changes = read_number(entry / "carrier_changes");
    for (const auto& link : names_in(entry)) {
        if (link.starts_with("lower_")) n.lower.push_back(link.substr(6));
    }
    const auto conf = root / "proc/sys/net/ipv4/conf";
    const auto own = read_number(conf / name / "rp_filter");
    if (own) {
        n.rp_filter = static_cast<std::uint32_t>(
            std::max(*own, read_number(conf / "all/rp_filter").value_or(0)));
    }
    return n;
}

/// /proc/net/if_inet6: address, ifindex, prefix, scope and flags in hex, name.
void read_ipv6(const fs::path& root, std::vector<netdev>& netdevs) {
    const auto text = read_text(root / "proc/net/if_inet6");
    for (std::size_t at = 0; at < text.size();) {
        const auto line = text.substr(at, text.find('\n', at) - at);
        at += line.size() + 1;
        char digits[33] = {};
        char name[32] = {};
        unsigned prefix = 0;
        unsigned flags = 0;
        if (std::sscanf(line.c_str(), "%32s %*x %x %*x %x %31s", digits, &prefix, &flags, name) !=
            4) {
            continue;
        }
        std::string colons;
        for (std::size_t i = 0; i < std::strlen(digits); ++i) {
            if (i != 0 && i % 4 == 0) colons += ':';
            colons += digits[i];
        }
        const auto gid = gid_text(colons);
        for (auto& n : netdevs) {
            if (n.name != name || gid.empty()) continue;
            // IFA_F_TENTATIVE 0x40, IFA_F_DADFAILED 0x08, IFA_F_DEPRECATED 0x20
            n.addresses.push_back(
                {gid, prefix, (flags & 0x40) != 0, (flags & 0x08) != 0, (flags & 0x20) != 0});
        }
    }
}

/// The words of the kernel's command line that rules know; the rest is nobody's business.
std::string iommu_words(const std::string& line) {
    std::string kept;
    for (std::size_t at = 0; at < line.size();) {
        const auto word = line.substr(at, line.find(' ', at) - at);
        at += word.size() + 1;
        if (word.find("iommu") != std::string::npos) kept += (kept.empty() ? "" : " ") + word;
    }
    return kept;
}

void read_limits(const fs::path& root, host& h) {
    // "0::/user.slice" is the process's group in the unified hierarchy.
    const auto groups = read_text(root / "proc/self/cgroup");
    const auto at = groups.find("0::");
    const auto path =
        at == std::string::npos ? "/" : groups.substr(at + 3, groups.find('\n', at) - at - 3);
    const auto text = read_text(fs::path((root / "sys/fs/cgroup").string() + path) / "rdma.max");
    for (std::size_t begin = 0; begin < text.size();) {
        const auto line = text.substr(begin, text.find('\n', begin) - begin);
        begin += line.size() + 1;
        if (const auto blank = line.find(' '); blank != std::string::npos) {
            h.rdma_limits[line.substr(0, blank)] = line.substr(blank + 1);
        }
    }
}

void read_gpus(const fs::path& root, host& h) {
    const auto pci = root / "sys/bus/pci/devices";
    for (const auto& name : names_in(pci)) {
        // Class 0x03: display controllers, of NVIDIA (0x10de) or AMD (0x1002).
        if (!read_text(pci / name / "class").starts_with("0x03")) continue;
        const auto vendor = read_text(pci / name / "vendor");
        if (vendor != "0x10de" && vendor != "0x1002") continue;
        std::error_code ignored;
        h.gpus.push_back({name, pci_root_of(fs::weakly_canonical(pci / name, ignored))});
    }
}

host read_host(const fs::path& root) {
    const auto sys = root / "sys";
    const auto proc = root / "proc";
    std::error_code error;
    host h;
    h.name = read_text(proc / "sys/kernel/hostname");
    h.kernel = read_text(proc / "sys/kernel/osrelease");
    h.rdma_class = fs::is_directory(sys / "class/infiniband", error);
    if (h.rdma_class) {
        fs::directory_iterator readable(sys / "class/infiniband", error);
        if (error) h.class_error = error.message();
    } else if (error && error != std::errc::no_such_file_or_directory) {
        h.class_error = error.message();
    }
    h.rdma_cm_error = open_error(root / "dev/infiniband/rdma_cm");
    const auto huge = sys / "kernel/mm/hugepages/hugepages-2048kB";
    h.hugepages_total = read_number(huge / "nr_hugepages").value_or(0);
    h.hugepages_free = read_number(huge / "free_hugepages").value_or(0);
    if (const auto balancing = read_number(proc / "sys/kernel/numa_balancing")) {
        h.numa_balancing = *balancing != 0;
    }
    h.governor = read_text(sys / "devices/system/cpu/cpu0/cpufreq/scaling_governor");
    h.clocksource = read_text(sys / "devices/system/clocksource/clocksource0/current_clocksource");
    h.command_line = iommu_words(read_text(proc / "cmdline"));
    h.uptime_s = std::strtoull(read_text(proc / "uptime").c_str(), nullptr, 10);
    h.iommu_groups = !names_in(sys / "kernel/iommu_groups").empty();
    const auto cpu = read_text(proc / "cpuinfo");
    h.hypervisor = cpu.find(" hypervisor") != std::string::npos;
    h.peer_memory = fs::exists(sys / "module/nvidia_peermem", error);
    read_limits(root, h);
    read_gpus(root, h);
    return h;
}

}  // namespace

facts from_files(const fs::path& root) {
    facts f;
    f.host = read_host(root);
    for (const auto& name : names_in(root / "sys/class/infiniband")) {
        f.devices.push_back(read_device(root, name));
    }
    for (const auto& name : names_in(root / "sys/class/net")) {
        f.netdevs.push_back(read_netdev(root, name));
    }
    read_ipv6(root, f.netdevs);
    return f;
}

}  // namespace rvget::fabric::inventory
