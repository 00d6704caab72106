#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include <rvget/config.hpp>

#include "base/log.hpp"
#include "route/facts.hpp"

namespace rvget {

using namespace std::chrono_literals;

namespace {

/// Sets `to` to what the variable names, or says that it names nothing.
template <class Choice>
void take_choice(const char* variable, Choice& to,
                 std::initializer_list<std::pair<std::string_view, Choice>> choices) {
    const char* value = std::getenv(variable);
    if (value == nullptr) return;
    std::string names;
    for (const auto& [name, choice] : choices) {
        if (value == name) {
            to = choice;
            return;
        }
        names += (names.empty() ? "" : ", ") + std::string(name);
    }
    log(log_level::warning, std::string(variable) + "=" + quoted(value) +
                                " action=ignored cause=\"it is none of " + names + "\"");
}

}  // namespace

node_options node_options::from_environment() {
    node_options o;
    if (const char* value = std::getenv("RVGET_RDMA_DISABLE")) {
        std::string v(value);
        std::ranges::transform(v, v.begin(), [](unsigned char c) { return std::tolower(c); });
        o.rdma_disabled = v == "1" || v == "true" || v == "yes" || v == "on";
        const bool off = v.empty() || v == "0" || v == "false" || v == "no" || v == "off";
        if (!o.rdma_disabled && !off)
            log(log_level::warning, "RVGET_RDMA_DISABLE=" + quoted(value) +
                                        " action=ignored cause=\"it is none of 1, true, yes, on, "
                                        "0, false, no, off\"");
    }
    take_choice("RVGET_MLX5", o.mlx5,
                {{"auto", mlx5_choice::automatic},
                 {"off", mlx5_choice::off},
                 {"verbs_qp", mlx5_choice::verbs_qp},
                 {"devx", mlx5_choice::devx}});
    take_choice("RVGET_WIREUP", o.wireup,
                {{"auto", wireup_choice::automatic},
                 {"exchange", wireup_choice::exchange},
                 {"cm", wireup_choice::cm}});
    return o;
}

result<void> node_options::validate() const {
    const auto wrong = [](std::string what) {
        return failure{request_errc::invalid_argument, std::move(what)};
    };
    const auto within = [](auto value, auto last) {
        return static_cast<unsigned>(value) <= static_cast<unsigned>(last);
    };
    for (const auto& [name, valid] :
         {std::pair{"policy", within(policy, path_policy::never)},
          std::pair{"mlx5", within(mlx5, mlx5_choice::devx)},
          std::pair{"wireup", within(wireup, wireup_choice::cm)},
          std::pair{"eagerness", within(eagerness, wireup_eagerness::eager)},
          std::pair{"lease_keys", within(lease_keys, lease_key_choice::fence)}})
        if (!valid) return wrong(std::string(name) + " is none of its enumerators");
    if (listen && listen->host.find('\0') != std::string::npos)
        return wrong("listen has a host with a null character");
    const auto ms = [](std::chrono::milliseconds t) { return std::to_string(t.count()) + " ms"; };
    if (!gid.empty() && !route::parse_gid(gid))
        return wrong("gid is '" + gid + "' and no address; copy one of `rvget list`");
    if (inline_max > 64 * 1024)
        return wrong("inline_max is " + std::to_string(inline_max) + " and at most 65536");
    if (retry_window < 10ms || retry_window > 60s)
        return wrong("retry_window is " + ms(retry_window) + " and between 10 ms and 60 s");
    if (lease_timeout < std::max(100ms, 4 * retry_window))
        return wrong("lease_timeout is " + ms(lease_timeout) + " and at least " +
                     ms(std::max(100ms, 4 * retry_window)) + " (100 ms and four retry windows)");
    if (lease_timeout > 24h)
        return wrong("lease_timeout is " + ms(lease_timeout) + " and at most a day");
    for (const auto& [name, value] : {std::pair{"default_deadline", default_deadline},
                                      std::pair{"handshake_timeout", handshake_timeout},
                                      std::pair{"peer_timeout", peer_timeout}})
        if (value < 1ms || value > 24h)
            return wrong(std::string(name) + " is " + ms(value) + " and between 1 ms and a day");
    if (arena_idle_time < 0ms || arena_idle_time > 24h)
        return wrong("arena_idle_time is " + ms(arena_idle_time) + " and between 0 and a day");
    if (wireup_wait < 0ms || wireup_wait > 24h)
        return wrong("wireup_wait is " + ms(wireup_wait) + " and between 0 and a day");
    if (spin < 0us || spin > 1s)
        return wrong("spin is " + std::to_string(spin.count()) + " us and between 0 and a second");
    if (read_depth < 1 || read_depth > 128)
        return wrong("read_depth is " + std::to_string(read_depth) + " and between 1 and 128");
    if (spare_queue_pairs > 64)
        return wrong("spare_queue_pairs is " + std::to_string(spare_queue_pairs) +
                     " and at most 64");
    if (read_piece_bytes < 4096)
        return wrong("read_piece_bytes is " + std::to_string(read_piece_bytes) +
                     " and at least 4096");
    if (chunk_bytes < 4096 || chunk_bytes > std::size_t{16} << 20)
        return wrong("chunk_bytes is " + std::to_string(chunk_bytes) +
                     " and between 4096 and 16777216");
    if (chunks_in_flight < 1 || chunks_in_flight > 64)
        return wrong("chunks_in_flight is " + std::to_string(chunks_in_flight) +
                     " and between 1 and 64");
    if (first_arena_bytes < 4096)
        return wrong("first_arena_bytes is " + std::to_string(first_arena_bytes) +
                     " and at least 4096");
    for (const auto& [name, value] :
         {std::pair{"max_arena_bytes", max_arena_bytes},
          std::pair{"registered_budget_bytes", registered_budget_bytes}})
        if (value < first_arena_bytes)
            return wrong(std::string(name) + " is " + std::to_string(value) +
                         " and at least first_arena_bytes, " + std::to_string(first_arena_bytes));
    if (worker_threads < 1 || worker_threads > 1024)
        return wrong("worker_threads is " + std::to_string(worker_threads) +
                     " and between 1 and 1024");
    for (const auto& [name, value] :
         {std::pair{"chunk_budget_bytes", chunk_budget_bytes},
          std::pair{"max_consumers", max_consumers}, std::pair{"max_leases", max_leases},
          std::pair{"max_handshakes", max_handshakes}})
        if (value < 1) return wrong(std::string(name) + " is 0 and at least 1");
    if (tls.enabled() &&
        (tls.certificate_file.empty() || tls.key_file.empty() || tls.authority_file.empty()))
        return wrong(
            "tls has one or two of certificate_file, key_file and authority_file: give all");
    if (tls.enabled() && listen && tls.peers.empty())
        return wrong("tls.peers is empty: an owner must name the consumers that it serves");
    if (std::ranges::any_of(tls.peers, &std::string::empty))
        return wrong("tls.peers has an empty name");
    if (!tls.enabled() && !tls.peers.empty())
        return wrong("tls.peers is given without certificate_file, key_file and authority_file");
    if (!secret.empty() && (secret.size() < 16 || secret.size() > 4096))
        return wrong("secret has " + std::to_string(secret.size()) +
                     " bytes and between 16 and 4096; best are 32 random ones");
    return {};
}

}  // namespace rvget
