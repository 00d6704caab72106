#include "api/explain.hpp"

#include <utility>

#include "fabric/inventory/kernel_route.hpp"

namespace rvget {
namespace {

std::string_view name_of(route::gid_type type) noexcept {
    switch (type) {
        case route::gid_type::roce_v1:
            return "RoCE v1";
        case route::gid_type::roce_v2:
            return "RoCE v2";
        case route::gid_type::iwarp:
            return "iWARP";
        case route::gid_type::infiniband:
            break;
    }
    return "InfiniBand";
}

route_candidate candidate_of(route::candidate& c) {
    route_candidate out{.device = std::move(c.device),
                        .port = c.port,
                        .gid_index = c.entry.index,
                        .netdev = std::move(c.entry.netdev),
                        .mtu_bytes = c.active_mtu,
                        .usable = c.usable,
                        .reason = std::move(c.reason)};
    if (!c.entry.gid.is_zero()) {
        out.gid = c.entry.gid.to_string();
        out.type = name_of(c.entry.type);
    }
    return out;
}

}  // namespace

result<route_explanation> explain_route(
    const std::string& host, unique_function<route::choice(const route::control_path&)> choose) {
    const auto addresses = fabric::inventory::resolve(host);
    if (!addresses) return addresses.error();
    const auto& peer = addresses->front();
    auto way = fabric::inventory::route_to(peer);
    if (!way) return way.error();
    auto choice = choose({way->source, peer});
    route_explanation e{.peer = peer,
                        .local = way->local,
                        .source = std::move(way->source),
                        .netdev = std::move(way->netdev),
                        .gateway = std::move(way->gateway),
                        .refusal = std::move(choice.refusal)};
    for (auto& c : choice.candidates) e.candidates.push_back(candidate_of(c));
    return e;
}

}  // namespace rvget
