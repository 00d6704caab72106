#include "option_names.hpp"

#include <array>
#include <string_view>
#include <utility>

namespace rvget::tools {

std::string by_option_names(std::string sentence) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 13> names{{
        {"first_arena_bytes", "--arena"},
        {"registered_budget_bytes", "--budget"},
        {"rdma_min_bytes", "--rdma-min"},
        {"lease_timeout", "--lease-timeout"},
        {"lease_keys=", "--lease-keys "},
        {"handshake_timeout", "--handshake-timeout"},
        {"wireup_wait", "--wireup-wait"},
        {"tls.peers", "--tls-peer"},
        {"certificate_file", "--tls-cert"},
        {"key_file", "--tls-key"},
        {"authority_file", "--tls-ca"},
        {"tls has one or two", "TLS has one or two"},
        {"(a secret, TLS)", "(--secret-file, --tls-cert)"},
    }};
    for (const auto& [member, option] : names) {
        for (auto at = sentence.find(member); at != std::string::npos;
             at = sentence.find(member, at + option.size())) {
            sentence.replace(at, member.size(), option);
        }
    }
    return sentence;
}

result<void> validated(const node_options& o) {
    if (const auto valid = o.validate(); !valid) {
        return failure{valid.error().code, by_option_names(valid.error().detail)};
    }
    return {};
}

}  // namespace rvget::tools
