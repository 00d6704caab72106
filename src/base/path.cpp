#include <rvget/path.hpp>

namespace rvget {

// A value from a peer is tested against these switches (wire): what is not listed is "unknown".

std::string_view to_string(path p) noexcept {
    switch (p) {
        case path::rdma:
            return "rdma";
        case path::inline_answer:
            return "inline";
        case path::chunked:
            return "chunked";
    }
    return "unknown";
}

std::string_view to_string(path_policy p) noexcept {
    switch (p) {
        case path_policy::prefer:
            return "prefer";
        case path_policy::require:
            return "require";
        case path_policy::never:
            return "never";
    }
    return "unknown";
}

std::string_view to_string(reason r) noexcept {
    switch (r) {
        case reason::ok:
            return "ok";
        case reason::no_offer:
            return "no_offer";
        case reason::version:
            return "version";
        case reason::not_configured:
            return "not_configured";
        case reason::kill_switch:
            return "kill_switch";
        case reason::draining:
            return "draining";
        case reason::fenced:
            return "fenced";
        case reason::not_pinned:
            return "not_pinned";
        case reason::below_min:
            return "below_min";
        case reason::no_common_backend:
            return "no_common_backend";
        case reason::no_lane:
            return "no_lane";
        case reason::stale_region:
            return "stale_region";
        case reason::inline_answer:
            return "inline";
        case reason::policy:
            return "policy";
        case reason::no_route:
            return "no_route";
        case reason::registration:
            return "registration";
        case reason::decode_error:
            return "decode_error";
        case reason::pool_exhausted:
            return "pool_exhausted";
        case reason::get_failed:
            return "get_failed";
        case reason::lease_lost:
            return "lease_lost";
        case reason::budget:
            return "budget";
        case reason::zero_length:
            return "zero_length";
        case reason::plain:
            return "plain";
    }
    return "unknown";
}

}  // namespace rvget
