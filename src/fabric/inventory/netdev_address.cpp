#include "fabric/inventory/netdev_address.hpp"

#include <memory>

#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>

#include "route/facts.hpp"

namespace rvget::fabric::inventory {

std::string address_of(const std::string& netdev, const std::string& wanted) {
    ifaddrs* raw = nullptr;
    if (::getifaddrs(&raw) != 0) return {};
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(raw, ::freeifaddrs);
    const auto sought = route::parse_gid(wanted);
    std::string first;
    for (const auto* one = all.get(); one != nullptr; one = one->ifa_next) {
        if (one->ifa_addr == nullptr || netdev != one->ifa_name) continue;
        const bool v4 = one->ifa_addr->sa_family == AF_INET;
        if (!v4 && one->ifa_addr->sa_family != AF_INET6) continue;
        char text[NI_MAXHOST];
        if (::getnameinfo(one->ifa_addr, v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6), text,
                          sizeof text, nullptr, 0, NI_NUMERICHOST) != 0)
            continue;
        const auto found = route::parse_gid(text);
        if (found && found == sought) return text;
        if (first.empty() && found && !found->is_link_local()) first = text;
    }
    return first;
}

}  // namespace rvget::fabric::inventory
