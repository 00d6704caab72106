#include "fabric/inventory/neighbour.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include <arpa/inet.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

#include "fabric/inventory/netlink.hpp"

namespace rvget::fabric::inventory {
namespace {

struct known_state {
    std::uint16_t bit;
    const char* name;
};
/// The more alive first; those before "incomplete" have a link address that holds.
constexpr std::array<known_state, 8> states{{{NUD_PERMANENT, "permanent"},
                                             {NUD_NOARP, "noarp"},
                                             {NUD_REACHABLE, "reachable"},
                                             {NUD_DELAY, "delay"},
                                             {NUD_PROBE, "probe"},
                                             {NUD_STALE, "stale"},
                                             {NUD_INCOMPLETE, "incomplete"},
                                             {NUD_FAILED, "failed"}}};

std::string mac_of(std::span<const std::byte> address) {
    if (address.size() != 6) return {};
    std::string text;
    for (const auto byte : address) {
        std::array<char, 4> two{};
        std::snprintf(two.data(), two.size(), "%02x", std::to_integer<unsigned>(byte));
        text += (text.empty() ? "" : ":") + std::string(two.data());
    }
    return text;
}

}  // namespace

neighbour neighbour_of(const std::string& address, const std::string& netdev) {
    const bool v6 = address.find(':') != std::string::npos;
    std::array<std::byte, 16> wanted{};
    if (::inet_pton(v6 ? AF_INET6 : AF_INET, address.c_str(), wanted.data()) != 1) return {};
    const auto own = std::span(wanted).first(v6 ? 16 : 4);
    const auto index = static_cast<int>(::if_nametoindex(netdev.c_str()));
    if (!netdev.empty() && index == 0) return {};

    ndmsg header{};
    header.ndm_family = v6 ? AF_INET6 : AF_INET;
    netlink_request request(RTM_GETNEIGH, NLM_F_DUMP, std::as_bytes(std::span(&header, 1)));
    neighbour best;
    std::size_t best_at = states.size();
    request.run(NETLINK_ROUTE, [&](std::span<const std::byte> message) {
        ndmsg entry{};
        if (message.size() < sizeof entry) return;
        std::memcpy(&entry, message.data(), sizeof entry);
        if (index != 0 && entry.ndm_ifindex != index) return;
        const auto attributes = message.subspan(sizeof entry);
        const auto of = netlink_attribute(attributes, NDA_DST);
        if (!of || !std::ranges::equal(*of, own)) return;
        const auto* state = std::find_if(states.begin(), states.end(), [&](const auto& s) {
            return (entry.ndm_state & s.bit) != 0;
        });
        const auto at = static_cast<std::size_t>(state - states.begin());
        if (at >= best_at) return;
        best_at = at;
        best.state = state->name;
        const bool holds = (entry.ndm_state & (NUD_INCOMPLETE | NUD_FAILED)) == 0;
        const auto mac = netlink_attribute(attributes, NDA_LLADDR);
        best.mac = mac && holds ? mac_of(*mac) : "";
    });
    return best;
}

bool known_to_answer(const std::string& state) {
    return state == "permanent" || state == "noarp" || state == "reachable";
}

}  // namespace rvget::fabric::inventory
