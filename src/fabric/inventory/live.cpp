// What only calls can tell: libibverbs, netlink, limits, addresses.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <infiniband/verbs.h>
#include <linux/capability.h>
#include <linux/dcbnl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <rdma/rdma_netlink.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fabric/inventory/collect.hpp"
#include "fabric/inventory/ethtool.hpp"
#include "fabric/inventory/files.hpp"
#include "fabric/inventory/netlink.hpp"
#include "fabric/inventory/port_netdev.hpp"
#include "fabric/verbs/inventory.hpp"

namespace rvget::fabric::inventory {

namespace {

std::uint32_t mtu_bytes(ibv_mtu mtu) {
    return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128U << mtu : 0;
}

/// An address handle to the entry itself: what the kernel thinks of it, without a peer.
std::string try_handle(ibv_pd* domain, const port& p, const gid_entry& entry) {
    if (entry.index > 255) return "an address handle cannot name an index above 255";
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = static_cast<std::uint8_t>(p.number);
    attr.dlid = static_cast<std::uint16_t>(p.lid);
    attr.grh.sgid_index = static_cast<std::uint8_t>(entry.index);
    attr.grh.hop_limit = 1;
    if (::inet_pton(AF_INET6, entry.gid.c_str(), attr.grh.dgid.raw) != 1) {
        attr.grh.dgid.raw[10] = attr.grh.dgid.raw[11] = 0xff;
        ::inet_pton(AF_INET, entry.gid.c_str(), attr.grh.dgid.raw + 12);
    }
    errno = 0;
    auto* handle = ibv_create_ah(domain, &attr);
    if (handle == nullptr) return std::strerror(errno);
    ibv_destroy_ah(handle);
    return "ok";
}

void query(ibv_device* found, device& d) {
    const std::unique_ptr<ibv_context, decltype(&ibv_close_device)> opened(ibv_open_device(found),
                                                                           &ibv_close_device);
    if (!opened) return;  // uverbs_error says why
    ibv_device_attr attr{};
    if (ibv_query_device(opened.get(), &attr) == 0) {
        d.max_read_depth = static_cast<std::uint32_t>(
            std::max(0, std::min(attr.max_qp_rd_atom, attr.max_qp_init_rd_atom)));
        d.max_queue_pairs = static_cast<std::uint32_t>(attr.max_qp);
        d.max_sge = static_cast<std::uint32_t>(attr.max_sge);
        d.max_region_bytes = attr.max_mr_size;
        d.memory_windows_type2 = (attr.device_cap_flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A |
                                                           IBV_DEVICE_MEM_WINDOW_TYPE_2B)) != 0;
    }
    const std::unique_ptr<ibv_pd, decltype(&ibv_dealloc_pd)> domain(ibv_alloc_pd(opened.get()),
                                                                    &ibv_dealloc_pd);
    for (auto& p : d.ports) {
        ibv_port_attr port_attr{};
        if (ibv_query_port(opened.get(), static_cast<std::uint8_t>(p.number), &port_attr) != 0) {
            continue;
        }
        p.active_mtu_bytes = mtu_bytes(port_attr.active_mtu);
        p.max_mtu_bytes = mtu_bytes(port_attr.max_mtu);
        constexpr std::size_t tried = 16;  // each costs a system call; the rest stay untried
        for (std::size_t i = 0; domain && d.node_type != "RNIC" && i < p.gids.size() && i < tried;
             ++i) {
            p.gids[i].operable = try_handle(domain.get(), p, p.gids[i]);
        }
    }
}

/// rdma-core's version is in the name of the library's file: "libibverbs.so.1.14.44.0" is of 44.
std::string rdma_core_version() {
    Dl_info info{};
    std::error_code error;
    if (::dladdr(reinterpret_cast<void*>(&ibv_open_device), &info) == 0) return {};
    const auto file = std::filesystem::canonical(info.dli_fname, error).filename().string();
    unsigned version = 0;
    return std::sscanf(file.c_str(), "libibverbs.so.1.%*u.%u", &version) == 1
               ? std::to_string(version)
               : std::string();
}

void add_verbs(facts& f) {
    int count = 0;
    errno = 0;
    auto** devices = ibv_get_device_list(&count);
    if (devices == nullptr) {
        f.host.libibverbs_error = std::strerror(errno);
        return;
    }
    for (int i = 0; i < count; ++i) {
        for (auto& d : f.devices) {
            if (d.name != ibv_get_device_name(devices[i])) continue;
            d.in_libibverbs = true;
            query(devices[i], d);
        }
    }
    ibv_free_device_list(devices);
}

/// Attributes nested two deep: a summary's entries.
void resource_summary(std::span<const std::byte> message, facts& f) {
    const auto name = netlink_text(message, RDMA_NLDEV_ATTR_DEV_NAME);
    auto summary = netlink_attribute(message, RDMA_NLDEV_ATTR_RES_SUMMARY);
    while (summary && summary->size() > sizeof(nlattr)) {
        nlattr a{};
        std::memcpy(&a, summary->data(), sizeof a);
        if (a.nla_len < sizeof a || a.nla_len > summary->size()) break;
        const auto entry = summary->subspan(sizeof a, a.nla_len - sizeof a);
        if (netlink_text(entry, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME) == "qp") {
            for (auto& d : f.devices) {
                if (d.name != name) continue;
                d.queue_pairs = netlink_u32(entry, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR);
            }
        }
        summary = summary->subspan(std::min<std::size_t>(NLA_ALIGN(a.nla_len), summary->size()));
    }
}

void add_rdma_netlink(facts& f) {
    netlink_request(nldev(RDMA_NLDEV_CMD_SYS_GET), 0, {})
        .run(NETLINK_RDMA, [&](std::span<const std::byte> m) {
            // Both are single bytes.
            const auto mode = netlink_attribute(m, RDMA_NLDEV_SYS_ATTR_NETNS_MODE);
            const auto fork = netlink_attribute(m, RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK);
            if (mode && !mode->empty()) {
                f.host.netns_mode = (*mode)[0] != std::byte{0} ? "shared" : "exclusive";
            }
            if (fork && !fork->empty()) f.host.copy_on_fork = (*fork)[0] != std::byte{0};
        });
    netlink_request(nldev(RDMA_NLDEV_CMD_RES_GET), NLM_F_DUMP, {})
        .run(NETLINK_RDMA, [&](std::span<const std::byte> m) { resource_summary(m, f); });
    for (auto& d : f.devices) {
        const auto netdevs = port_netdevs(d.name);
        for (auto& p : d.ports) {
            const auto known = netdevs.find(p.number);
            if (known == netdevs.end()) continue;
            p.netdev = known->second;
            p.netdev_elsewhere = false;
        }
    }
}

/// IEEE 802.1Q priorities: which are lossless, and whether DSCP chooses them.
void add_priorities(netdev& n) {
    const dcbmsg header{.dcb_family = AF_UNSPEC, .cmd = DCB_CMD_IEEE_GET, .dcb_pad = 0};
    netlink_request(RTM_GETDCB, 0, std::as_bytes(std::span(&header, 1)))
        .add_text(DCB_ATTR_IFNAME, n.name)
        .run(NETLINK_ROUTE, [&](std::span<const std::byte> m) {
            if (m.size() < sizeof header) return;
            const auto ieee = netlink_attribute(m.subspan(sizeof header), DCB_ATTR_IEEE);
            if (!ieee) return;
            const auto pfc = netlink_attribute(*ieee, DCB_ATTR_IEEE_PFC);
            if (pfc && pfc->size() >= sizeof(ieee_pfc)) {
                ieee_pfc value{};
                std::memcpy(&value, pfc->data(), sizeof value);
                n.pfc_enabled = value.pfc_en;
            }
            const auto apps = netlink_attribute(*ieee, DCB_ATTR_IEEE_APP_TABLE);
            if (!apps) return;
            n.trust_dscp = false;
            for (auto rest = *apps; rest.size() >= sizeof(nlattr) + sizeof(dcb_app);) {
                nlattr a{};
                dcb_app app{};
                std::memcpy(&a, rest.data(), sizeof a);
                std::memcpy(&app, rest.data() + sizeof a, sizeof app);
                if (app.selector == IEEE_8021QAZ_APP_SEL_DSCP) n.trust_dscp = true;
                if (a.nla_len < sizeof a || a.nla_len > rest.size()) break;
                rest = rest.subspan(std::min<std::size_t>(NLA_ALIGN(a.nla_len), rest.size()));
            }
        });
}

void add_ipv4(facts& f) {
    ifaddrs* raw = nullptr;
    if (::getifaddrs(&raw) != 0) return;
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, &::freeifaddrs);
    for (const auto* one = raw; one != nullptr; one = one->ifa_next) {
        if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
        sockaddr_in own{};
        sockaddr_in mask{};
        std::memcpy(&own, one->ifa_addr, sizeof own);
        if (one->ifa_netmask != nullptr) std::memcpy(&mask, one->ifa_netmask, sizeof mask);
        char text[INET_ADDRSTRLEN] = {};
        ::inet_ntop(AF_INET, &own.sin_addr, text, sizeof text);
        // A label ("eth0:1") names an address, not a netdev.
        const std::string name =
            std::string(one->ifa_name).substr(0, std::strcspn(one->ifa_name, ":"));
        for (auto& n : f.netdevs) {
            if (n.name != name) continue;
            n.addresses.push_back(
                {text, static_cast<std::uint32_t>(__builtin_popcount(mask.sin_addr.s_addr))});
        }
    }
}

void add_process(host& h) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
        h.memlock_bytes = limit.rlim_cur == RLIM_INFINITY
                              ? std::nullopt
                              : std::optional<std::uint64_t>(limit.rlim_cur);
    }
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) h.open_files = limit.rlim_cur;
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    std::array<__user_cap_data_struct, 2> data{};
    if (::syscall(SYS_capget, &header, data.data()) == 0) {
        h.ipc_lock = (data[0].effective & (1U << CAP_IPC_LOCK)) != 0;
    }
    for (const char* name : {"NCCL_IB_GID_INDEX", "UCX_IB_GID_INDEX", "MC_GID_INDEX"}) {
        if (const char* value = std::getenv(name)) h.pins[name] = value;
    }
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    const std::filesystem::path nodes = "/sys/devices/system/node";
    for (const auto& name : names_in(nodes)) {
        if (!name.starts_with("node")) continue;
        for (const auto& cpu : names_in(nodes / name)) {
            char* end = nullptr;
            const long number = std::strtol(cpu.c_str() + 3, &end, 10);
            if (!cpu.starts_with("cpu") || *end != '\0' || end == cpu.c_str() + 3) continue;
            if (!CPU_ISSET(static_cast<std::size_t>(number), &allowed)) continue;
            h.numa_nodes.push_back(std::atoi(name.c_str() + 4));
            break;
        }
    }
}

/// The first rule of the packet filter that drops UDP port 4791; only root may list them.
std::string firewall_rule() {
    if (::geteuid() != 0) return "unknown: only root may list the rules";
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(
        ::popen("PATH=$PATH:/usr/sbin:/sbin exec timeout 2 nft list ruleset 2>/dev/null", "re"),
        &::pclose);
    if (!out) return "unknown: cannot run nft";
    char line[1024];
    bool any = false;
    while (std::fgets(line, sizeof line, out.get()) != nullptr) {
        any = true;
        std::string text(line);
        const bool drops =
            text.find("drop") != std::string::npos || text.find("reject") != std::string::npos;
        if (!drops || text.find("4791") == std::string::npos) continue;
        text.erase(0, text.find_first_not_of(" \t"));
        text.erase(text.find_last_not_of(" \t\n") + 1);
        return text;
    }
    return any || std::filesystem::exists("/proc/net/netfilter") ? "open"
                                                                 : "unknown: no packet filter";
}

/// Whether all interrupts of a PCI function stay on its NUMA node; nullopt where nobody can tell.
std::optional<bool> interrupts_on_node(const device& d) {
    if (d.pci.empty() || d.numa_node.value_or(-1) < 0) return std::nullopt;

    std::optional<bool> all;
    const std::filesystem::path irqs = "/sys/bus/pci/devices/" + d.pci + "/msi_irqs";
    for (const auto& irq : names_in(irqs)) {
        const auto cpu = read_number("/proc/irq/" + irq + "/effective_affinity_list");
        if (!cpu) continue;
        const auto of_node =
            std::filesystem::path("/sys/devices/system/node/node" + std::to_string(*d.numa_node)) /
            ("cpu" + std::to_string(*cpu));
        std::error_code ignored;
        all = all.value_or(true) && std::filesystem::exists(of_node, ignored);
    }
    return all;
}

}  // namespace

void add_live(facts& f) {
    add_process(f.host);
    add_ipv4(f);
    add_rdma_netlink(f);
    add_verbs(f);
    f.host.rdma_core = rdma_core_version();
    f.host.firewall = firewall_rule();
    for (auto& n : f.netdevs) {
        const auto device = std::find_if(f.devices.begin(), f.devices.end(), [&](const auto& d) {
            return std::any_of(d.ports.begin(), d.ports.end(),
                               [&](const auto& p) { return p.netdev == n.name; });
        });
        if (device == f.devices.end()) continue;  // what no RDMA port uses is not looked into
        add_ethtool(n);
        add_priorities(n);
        n.irq_on_node = interrupts_on_node(*device);
        const auto net = std::filesystem::path("/sys/class/net") / n.name;
        for (int priority = 0; priority < 8; ++priority) {
            const auto on = read_number(net / "ecn/roce_np/enable" / std::to_string(priority));
            if (on) n.ecn_on = n.ecn_on.value_or(false) || *on != 0;
        }
    }
}

void add_growth(facts& f, std::uint64_t watched_ms) {
    const auto growth = [](const counters& before, const counters& after) {
        counters grown;
        for (const auto& [name, value] : after) {
            const auto old = before.find(name);
            // A reset (driver reload) makes a counter smaller: then its value is its growth.
            const auto base = old == before.end() || old->second > value ? 0 : old->second;
            grown[name] = value - base;
        }
        return grown;
    };
    for (auto& d : f.devices) {
        for (auto& p : d.ports) {
            const auto entry = std::filesystem::path("/sys/class/infiniband") / d.name / "ports" /
                               std::to_string(p.number);
            counters now;
            read_counters(entry / "hw_counters", now);
            read_counters(entry / "counters", now);
            p.growth = growth(p.counters, now);
        }
    }
    for (auto& n : f.netdevs) {
        if (n.counters.empty()) continue;
        auto now = n;
        add_ethtool(now);
        n.growth = growth(n.counters, now.counters);
    }
    f.host.watched_ms = watched_ms;
}

}  // namespace rvget::fabric::inventory
