// env.*: what the machine gives to any RDMA program.

#include "diag/judgement.hpp"

namespace rvget::diag {

namespace {

constexpr std::uint64_t mib = 1 << 20;

judgement core(const subject& s) {
    const auto& h = s.facts.host;
    if (!h.class_error.empty()) {
        return fail("/sys/class/infiniband cannot be read: " + h.class_error,
                    {"ls -l /sys/class/infiniband  # is /sys mounted, and may this user read it?"});
    }
    if (h.rdma_class) return pass();
    return fail("this kernel has no RDMA core loaded (or built)",
                {"modprobe ib_uverbs", "apt-get install linux-modules-extra-$(uname -r)  # cloud"});
}

judgement uverbs(const subject& s) {
    const auto& d = *s.device;
    if (d.uverbs_error.empty()) return pass(d.uverbs);
    const auto node = d.uverbs.empty() ? "/dev/infiniband/uverbsN" : d.uverbs;
    return fail(d.name + " is in sysfs, but " + node + " cannot be opened: " + d.uverbs_error +
                    " (libibverbs then reports \"no such file\")",
                {"modprobe ib_uverbs", "usermod -aG rdma $USER  # where the node's group is rdma",
                 "docker run --device=/dev/infiniband ...  # in a container"},
                d.uverbs_error);
}

judgement rdma_cm(const subject& s) {
    const auto& error = s.facts.host.rdma_cm_error;
    if (error.empty()) return pass();
    return warn("RDMA-CM cannot be used (/dev/infiniband/rdma_cm: " + error +
                    "); exchange of GIDs still works",
                {"modprobe rdma_ucm"}, error);
}

judgement provider(const subject& s) {
    const auto& d = *s.device;
    if (d.in_libibverbs) return pass();
    return fail("the kernel shows " + d.name + ", libibverbs does not: its user-space provider (" +
                    (d.driver.empty() ? "unknown" : d.driver) + ") is missing",
                {"apt-get install ibverbs-providers", "ls /etc/libibverbs.d"});
}

judgement library(const subject& s) {
    const auto& version = s.facts.host.rdma_core;
    if (version.empty()) return skip("libibverbs does not tell its version");
    if (std::atoi(version.c_str()) >= 44) return pass(version);
    return warn("rdma-core " + version + " is older than 44: extended queries may be missing",
                {"apt-get install --only-upgrade libibverbs1 ibverbs-providers"}, version);
}

judgement memlock(const subject& s) {
    const auto& h = s.facts.host;
    if (h.ipc_lock || !h.memlock_bytes) return pass("unlimited");
    const auto limit = *h.memlock_bytes;
    const auto words = "memory lock limit " + text(limit) + " bytes, rvget would register up to " +
                       text(s.budget_bytes) + ": registration over it fails with ENOMEM";
    const std::vector<std::string> fix{"prlimit --pid $$ --memlock=unlimited  # this shell",
                                       "systemctl edit SERVICE  # [Service] LimitMEMLOCK=infinity",
                                       "docker run --ulimit memlock=-1 ...  # in a container"};
    if (limit < mib) return fail(words, fix, limit);
    return limit < s.budget_bytes ? warn(words, fix, limit) : pass(limit);
}

judgement open_files(const subject& s) {
    const auto limit = s.facts.host.open_files;
    if (limit >= 4096) return pass(limit);
    return warn("at most " + text(limit) +
                    " open files: each queue pair's channel and each peer "
                    "takes some",
                {"ulimit -n 65536"}, limit);
}

judgement fork(const subject& s) {
    const auto& on = s.facts.host.copy_on_fork;
    if (!on) return skip("the kernel does not tell (before 5.12, or no RDMA netlink)");
    if (*on) return pass(true);
    return warn("after a fork, registered memory of this kernel may be the child's",
                {"export RDMAV_FORK_SAFE=1", "uname -r  # 5.12 and later copy at fork"}, false);
}

judgement netns(const subject& s) {
    const auto& mode = s.facts.host.netns_mode;
    std::string elsewhere;
    for (const auto& d : s.facts.devices) {
        for (const auto& p : d.ports) {
            if (p.netdev_elsewhere) elsewhere += (elsewhere.empty() ? "" : ", ") + d.name;
        }
    }
    if (!elsewhere.empty()) {
        return warn("the netdev of " + elsewhere + " lives in another network namespace (mode " +
                        (mode.empty() ? "unknown" : mode) + "): its GIDs are not ours",
                    {"rdma dev set " + elsewhere.substr(0, elsewhere.find(',')) +
                         " netns $$  # on the host, exclusive mode",
                     "docker run --network=host ..."});
    }
    if (mode == "exclusive" && s.facts.devices.empty()) {
        return fail("namespace mode is exclusive and no RDMA device belongs to this namespace",
                    {"rdma dev set DEVICE netns PID  # on the host"}, mode);
    }
    return pass(mode);
}

judgement cgroup(const subject& s) {
    for (const auto& [device, limits] : s.facts.host.rdma_limits) {
        std::string words = "the control group's rdma.max of ";
        words.append(device).append(" is ").append(limits);
        std::string fix = "echo '";
        fix += device;
        fix += " hca_handle=max hca_object=max' > /sys/fs/cgroup/GROUP/rdma.max";
        if (limits.find("=0") != std::string::npos) return fail(words, {fix}, limits);
        if (limits.find_first_of("123456789") != std::string::npos)
            return warn(words, {fix}, limits);
    }
    return pass();
}

judgement hugepages(const subject& s) {
    const auto& h = s.facts.host;
    if (h.hugepages_total > 0) return pass(h.hugepages_free);
    if (s.budget_bytes < 1024 * mib) return skip("matters for arenas of 1 GiB and more");
    return warn("no huge pages are reserved: memory is registered in pages of 4 KiB",
                {"sysctl vm.nr_hugepages=" + text(s.budget_bytes / (2 * mib))});
}

judgement numa_balancing(const subject& s) {
    const auto& on = s.facts.host.numa_balancing;
    if (!on) return skip("one NUMA node, or a kernel without balancing");
    if (!*on) return pass(false);
    return warn("automatic NUMA balancing unmaps pages to watch them: it disturbs latency",
                {"sysctl kernel.numa_balancing=0"}, true);
}

judgement governor(const subject& s) {
    const auto& name = s.facts.host.governor;
    if (name.empty()) return skip("no frequency scaling here");
    if (name == "performance") return pass(name);
    return warn("CPU frequency governor " + name + " makes latency noisy",
                {"cpupower frequency-set -g performance"}, name);
}

judgement clocksource(const subject& s) {
    const auto& name = s.facts.host.clocksource;
    if (name != "hpet" && name != "acpi_pm") return pass(name);
    return warn("clock source " + name + ": every time stamp costs a device access",
                {"dmesg | grep -i tsc  # why the TSC was not trusted"}, name);
}

judgement iommu(const subject& s) {
    const auto& h = s.facts.host;
    const bool passthrough = h.command_line.find("iommu=pt") != std::string::npos ||
                             h.command_line.find("iommu=off") != std::string::npos ||
                             h.command_line.find("iommu.passthrough=1") != std::string::npos;
    if (!h.iommu_groups || passthrough) return pass(h.command_line);
    return warn("the IOMMU translates: mapping memory for DMA costs more",
                {"sed -i 's/^GRUB_CMDLINE_LINUX=\"/&iommu=pt /' /etc/default/grub && update-grub"},
                h.command_line);
}

judgement virtualised(const subject& s) {
    // Information, never a fault: some counters and settings belong to the host underneath.
    return pass(s.facts.host.hypervisor ? "guest: some counters and settings belong to its host"
                                        : "no hypervisor seen");
}

}  // namespace

void add_host_rules(std::vector<rule>& table) {
    const auto host = scope::host;
    table.insert(
        table.end(),
        {
            {"env.core", host, "", "/sys/class/infiniband",
             "fail: there is none, or it is unreadable", core},
            {"dev.present", host, "env.core", "/sys/class/infiniband/*", "fail: no RDMA device",
             [](const subject& s) {
                 if (!s.facts.devices.empty()) return pass(s.facts.devices.size());
                 return fail("there is no RDMA device",
                             {"rdma link add rxe0 type rxe netdev $(ip route show default | sed -n "
                              "'s/.* dev \\([^ ]*\\).*/\\1/p;q')  # software RDMA"},
                             0);
             }},
            {"env.uverbs", scope::device, "",
             "/sys/class/infiniband_verbs, open of /dev/infiniband/uverbs*",
             "fail: the node is missing or may not be opened", uverbs},
            {"env.provider", scope::device, "env.uverbs", "ibv_get_device_list",
             "fail: libibverbs does not list a device that the kernel shows", provider},
            {"env.rdma_cm", host, "dev.present", "open of /dev/infiniband/rdma_cm",
             "warn: it cannot be opened", rdma_cm},
            {"env.library", host, "", "file name of libibverbs", "warn: rdma-core older than 44",
             library},
            {"env.memlock", host, "", "getrlimit, capabilities",
             "warn: limit below the budget and no CAP_IPC_LOCK; fail: below 1 MiB", memlock},
            {"env.nofile", host, "", "getrlimit", "warn: below 4096", open_files},
            {"env.fork", host, "", "RDMA netlink: copy-on-fork", "warn: off", fork},
            {"env.netns", host, "", "RDMA netlink: namespace mode; sysfs",
             "warn: a port's netdev is in another namespace; fail: exclusive mode and no device",
             netns},
            {"env.cgroup", host, "", "rdma.max of the control group",
             "warn: a finite limit; fail: a limit of 0", cgroup},
            {"env.hugepages", host, "", "/sys/kernel/mm/hugepages",
             "warn: none, and a budget of 1 GiB or more", hugepages},
            {"env.numa_balancing", host, "", "/proc/sys/kernel/numa_balancing", "warn: on",
             numa_balancing},
            {"env.governor", host, "", "cpufreq", "warn: other than performance", governor},
            {"env.clocksource", host, "", "clocksource0", "warn: hpet or acpi_pm", clocksource},
            {"env.iommu", host, "", "/proc/cmdline, iommu_groups", "warn: translation is on",
             iommu},
            {"env.virtual", host, "", "/proc/cpuinfo", "information only", virtualised},
        });
}

}  // namespace rvget::diag
