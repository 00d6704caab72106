#include "fabric/inventory/kernel_route.hpp"

#include <array>
#include <cstring>
#include <memory>

#include <arpa/inet.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include "fabric/inventory/netlink.hpp"

namespace rvget::fabric::inventory {
namespace {

using addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

result<addresses> look_up(const std::string& host, int flags) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    hints.ai_flags = flags;
    addrinfo* found = nullptr;
    if (const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found)) {
        return failure{request_errc::invalid_argument,
                       "'" + host + "' does not resolve: " + ::gai_strerror(error) +
                           "; give a name or an address"};
    }
    return addresses(found, ::freeaddrinfo);
}

std::string text_of(int family, std::span<const std::byte> bytes) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    const std::size_t wanted = family == AF_INET6 ? 16 : 4;
    if (bytes.size() < wanted) return {};
    return ::inet_ntop(family, bytes.data(), text.data(), text.size()) ? text.data() : "";
}

failure no_route(const std::string& address, const std::string& source) {
    const auto scope = address.find('%');
    auto asked = address.substr(0, scope);
    if (!source.empty()) asked += " from " + source;
    if (scope != std::string::npos) asked += " dev " + address.substr(scope + 1);
    return {connection_errc::connect_failed, "the kernel has no route to " + address +
                                                 (source.empty() ? "" : " from " + source) +
                                                 "; see `ip route get " + asked + "`"};
}

bool is_unspecified(const sockaddr& of) {
    if (of.sa_family == AF_INET6)
        return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6&>(of).sin6_addr);
    return reinterpret_cast<const sockaddr_in&>(of).sin_addr.s_addr == INADDR_ANY;
}

}  // namespace

result<std::vector<std::string>> resolve(const std::string& host) {
    auto found = look_up(host, 0);
    if (!found) return found.error();
    std::vector<std::string> all;
    for (const auto* one = found->get(); one != nullptr; one = one->ai_next) {
        std::array<char, NI_MAXHOST> text{};
        if (::getnameinfo(one->ai_addr, one->ai_addrlen, text.data(), text.size(), nullptr, 0,
                          NI_NUMERICHOST) == 0) {
            all.emplace_back(text.data());
        }
    }
    if (all.empty()) {
        return failure{request_errc::invalid_argument, "'" + host + "' has no address"};
    }
    return all;
}

result<kernel_route> route_to(const std::string& address, const std::string& source) {
    auto found = look_up(address, AI_NUMERICHOST);
    if (!found) return found.error();
    const auto* to = found->get()->ai_addr;
    const int family = to->sa_family;
    if (is_unspecified(*to)) {
        return failure{request_errc::invalid_argument,
                       address +
                           " is no peer but stands for every address of a machine; give one "
                           "of the peer's"};
    }
    rtmsg header{};
    header.rtm_family = static_cast<unsigned char>(family);
    std::array<std::byte, 16> destination{};
    std::size_t bytes = 4;
    std::uint32_t scope = 0;
    if (family == AF_INET6) {
        const auto* v6 = reinterpret_cast<const sockaddr_in6*>(to);
        if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
            // What goes there goes by IPv4.
            return route_to(
                text_of(AF_INET, std::as_bytes(std::span(v6->sin6_addr.s6_addr + 12, 4))), source);
        }
        if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) && v6->sin6_scope_id == 0) {
            return failure{request_errc::invalid_argument,
                           address + " is on every link; say on which: " + address + "%NETDEV"};
        }
        bytes = 16;
        scope = v6->sin6_scope_id;
        std::memcpy(destination.data(), &v6->sin6_addr, bytes);
    } else {
        std::memcpy(destination.data(), &reinterpret_cast<const sockaddr_in*>(to)->sin_addr, bytes);
    }
    header.rtm_dst_len = static_cast<unsigned char>(bytes * 8);
    std::array<std::byte, 16> bearing{};
    if (!source.empty()) {
        if (::inet_pton(family, source.c_str(), bearing.data()) != 1) {
            return failure{
                request_errc::invalid_argument,
                "'" + source + "' is no address that a packet to " + address + " can bear"};
        }
        header.rtm_src_len = header.rtm_dst_len;
    }
    netlink_request request(RTM_GETROUTE, 0, std::as_bytes(std::span(&header, 1)));
    request.add(RTA_DST, std::span(destination).first(bytes));
    if (!source.empty()) request.add(RTA_SRC, std::span(bearing).first(bytes));
    if (scope != 0) request.add_u32(RTA_OIF, scope);

    kernel_route route;
    bool answered = false;
    const bool done = request.run(NETLINK_ROUTE, [&](std::span<const std::byte> message) {
        rtmsg answer{};
        if (message.size() < sizeof answer) return;
        std::memcpy(&answer, message.data(), sizeof answer);
        const auto attributes = message.subspan(sizeof answer);
        answered = answer.rtm_type == RTN_UNICAST || answer.rtm_type == RTN_LOCAL;
        route.local = answer.rtm_type == RTN_LOCAL;
        if (const auto chosen = netlink_attribute(attributes, RTA_PREFSRC)) {
            route.source = text_of(family, *chosen);
        }
        if (const auto gateway = netlink_attribute(attributes, RTA_GATEWAY)) {
            route.gateway = text_of(family, *gateway);
        }
        std::array<char, IF_NAMESIZE> name{};
        if (const auto index = netlink_u32(attributes, RTA_OIF);
            index && ::if_indextoname(*index, name.data()) != nullptr) {
            route.netdev = name.data();
        }
    });
    // The kernel names only a source of its own choice.
    if (!source.empty()) route.source = source;
    if (!done || !answered || route.source.empty()) return no_route(address, source);
    return route;
}

}  // namespace rvget::fabric::inventory
