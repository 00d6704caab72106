#include "fabric/verbs/text.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rvget::fabric::verbs {

namespace {

/// Whether the kernel lets this process lock memory over its limit: it asks for the capability in
/// the *initial* user namespace, so a container's root has it in name only.
bool may_exceed_memlock() {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
    if (::syscall(SYS_capget, &header, data) != 0) return false;
    if ((data[0].effective & (1U << CAP_IPC_LOCK)) == 0) return false;
    std::ifstream map("/proc/self/uid_map");
    std::uint64_t inside = 0, outside = 0, count = 0;
    map >> inside >> outside >> count;
    return inside == 0 && outside == 0 && count == 0xffffffff;
}

/// What registrations of this process have pinned so far ("VmPin: 64 kB"), in KiB.
std::string pinned_kib() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        std::istringstream words(line);
        std::string name, value;
        if (words >> name >> value && name == "VmPin:") return value;
    }
    return "?";
}

std::string gid_text(const route::gid& gid) { return gid.is_zero() ? "none" : gid.to_string(); }

std::string transition_cause(const transition& t, int error) {
    const auto index = std::to_string(t.gid_index);
    switch (error) {
        case EINVAL:
            if (t.own.is_zero()) return "GID index " + index + " is empty";
            if (!t.peer.is_zero() && t.own.is_ipv4_mapped() != t.peer.is_ipv4_mapped()) {
                return "the address families of the two GIDs differ: choose both of one family";
            }
            return "an attribute is not accepted (path MTU " + std::to_string(t.path_mtu) +
                   ", READ depth or GID)";
        case ENODATA:
            return "GID index " + index +
                   " is empty: the address moved to another index or is gone; look the GID up by "
                   "value";
        case ETIMEDOUT:
            return "the peer's GID did not resolve to a link address: no such host on this link, "
                   "no route by this GID's netdev, or the peer is down";
        case ENETUNREACH:
        case EHOSTUNREACH:
            return "the routing table says that the peer's GID is unreachable";
        case ENODEV:
            return "the netdev of the own GID is gone, or the peer's GID is local to this host but "
                   "not to this device";
        default:
            return "the kernel or the device refused";
    }
}

}  // namespace

std::string errno_text(int error) {
    error = std::abs(error);
    const char* name = ::strerrorname_np(error);
    const char* words = ::strerrordesc_np(error);
    return std::string(name ? name : "errno") + " (" + std::to_string(error) + ", " +
           (words ? words : "unknown") + ")";
}

failure transition_failure(const transition& t, int error) {
    std::string text = std::string(t.device) + " port " + std::to_string(t.port) +
                       ": queue pair to " + std::string(t.target) + ": " + errno_text(error) +
                       ": " + transition_cause(t, std::abs(error));
    if (!t.peer.is_zero()) {
        text += "; own GID " + gid_text(t.own) + " at index " + std::to_string(t.gid_index) +
                ", peer GID " + gid_text(t.peer) + "; `rvget check HOST` finds out why";
    } else {
        text += "; see `ibv_devinfo -v` and `rdma link`";
    }
    return {device_errc::transition_failed, std::move(text)};
}

failure registration_failure(std::string_view device, std::size_t bytes, int error) {
    error = std::abs(error);
    std::string text = std::string(device) + ": registering " + std::to_string(bytes) +
                       " bytes: " + errno_text(error);
    rlimit limit{};
    switch (error) {
        case ENOMEM:
            if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
                !may_exceed_memlock()) {
                text += ": the memlock limit is " + std::to_string(limit.rlim_cur / 1024) +
                        " KiB, of which " + pinned_kib() +
                        " KiB are in use; raise it with `ulimit -l unlimited`, in a systemd unit "
                        "with LimitMEMLOCK=infinity, in a container with --ulimit memlock=-1";
            } else {
                text += ": out of memory or of the device's regions";
            }
            break;
        case EFAULT:
            text += ": part of the range is not mapped, or is read-only and local write was asked";
            break;
        case EINVAL:
            text += ": the device does not accept this combination of rights";
            break;
        default:
            break;
    }
    return {device_errc::registration, std::move(text)};
}

failure open_failure(std::string_view device, int error) {
    error = std::abs(error);
    std::string text = std::string(device) + ": opening: " + errno_text(error);
    // libibverbs tries several ways and reports ENOENT where the last one found nothing, although
    // an earlier one was not permitted.
    if (error == ENOENT || error == EACCES || error == EPERM) {
        text +=
            ": /dev/infiniband/uverbsN is missing or not permitted; `modprobe ib_uverbs`, join the "
            "group that owns it, or pass --device=/dev/infiniband to the container";
    } else if (error == ENOMEM) {
        text += ": memory, the memlock limit or the rdma control group's hca_handle is used up";
    }
    return {device_errc::open_failed, std::move(text)};
}

}  // namespace rvget::fabric::verbs
