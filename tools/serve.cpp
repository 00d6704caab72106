// rvget serve: stages files and prints the URLs under which they can be got.

#include <algorithm>
#include <optional>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/host_name.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <rvget/node.hpp>

#include "base/printable.hpp"

#include "authentication.hpp"
#include "commands.hpp"
#include "console.hpp"
#include "lease_keys.hpp"
#include "listen_address.hpp"
#include "metrics_endpoint.hpp"
#include "option_names.hpp"
#include "quantity.hpp"
#include "route_pins.hpp"
#include "source_file.hpp"

namespace rvget::tools {
namespace {

using namespace std::chrono_literals;

/// How long the leases of running gets may hold up the end.
constexpr auto shutdown_deadline = 3s;

struct serve_settings {
    std::vector<std::string> files;
    node_options node;
    bool arena_given = false;
    std::string advertise;
    std::optional<endpoint_address> metrics;
    bool pin = true;
    bool json = false;
};

command_line describe() {
    command_line line(
        "serve FILE... [--listen ADDR] [OPTION...]",
        "Stages each FILE (- is standard input) in memory, pinned for RDMA where a device is "
        "there, "
        "and\nprints one line for each: its URL, two blanks, its name. Serves until SIGINT or "
        "SIGTERM.\nThe bytes are a snapshot: what happens to FILE afterwards does not matter. "
        "Whoever knows a URL\ncan get the bytes, unless --secret-file or --tls-cert ask for more, "
        "and "
        "RDMA is never encrypted:\nkeep URLs secret and the network trusted.\n");
    line.add("listen", "ADDR", "HOST, HOST:PORT or [IPV6]:PORT; default 127.0.0.1, a free port");
    line.add("advertise", "HOST",
             "the host to print in URLs; default: the one it listens on, or this "
             "machine's name for all addresses");
    line.add("no-pin", nullptr, "stage in plain memory: consumers pull chunks over TCP");
    add_route_pins(line);
    line.add("rdma-min", "BYTES", "serve smaller ranges in chunks (default 64K)");
    line.add("budget", "BYTES", "register no more than this (default 1G); the rest stays plain");
    line.add("arena", "BYTES", "register this much at the start; default: what the files need");
    line.add("lease-timeout", "MS", "how long an unrenewed lease lives (default 30000)");
    line.add("lease-keys", "MODE",
             "strongest, window, exact or fence: how a lease's end is made sure of (default "
             "strongest: what the device proves able to do)");
    line.add("handshake-timeout", "MS",
             "how long a new connection may take to prove itself and greet (default 5000)");
    line.add("wireup-wait", "MS",
             "how long a first get waits for its queue pair before it is served "
             "in chunks (default 50)");
    line.add("metrics", "ADDR",
             "serve metrics over HTTP there, as /metrics; HOST:PORT by IPv4, a free port if there "
             "is none");
    add_authentication(line);
    line.take_operands("file");
    return line;
}

result<serve_settings> read(const command_line& line) {
    serve_settings s;
    s.files = line.operands();
    if (s.files.empty()) {
        return failure{request_errc::invalid_argument, "no file"};
    }
    if (std::count(s.files.begin(), s.files.end(), "-") > 1) {
        return failure{request_errc::invalid_argument, "standard input (-) can be read only once"};
    }
    const auto listen = parse_listen(line.text("listen").value_or("127.0.0.1"));
    if (const auto at = line.text("metrics")) {
        const auto metrics = parse_listen(*at, "metrics");
        if (!metrics) return metrics.error();
        if (metrics->host.find(':') != std::string::npos) {
            return failure{request_errc::invalid_argument,
                           "--metrics '" + *at +
                               "': metrics are served over IPv4 only; give an IPv4 address, such "
                               "as 127.0.0.1 or 0.0.0.0"};
        }
        s.metrics = *metrics;
    }
    const auto rdma_min = line.bytes("rdma-min");
    const auto budget = line.bytes("budget");
    const auto arena = line.bytes("arena");
    const auto lease_timeout = line.milliseconds("lease-timeout");
    const auto wireup_wait = line.milliseconds("wireup-wait");
    const auto handshake_timeout = line.milliseconds("handshake-timeout");
    const auto keys_named = line.text("lease-keys").value_or("strongest");
    const auto lease_keys = lease_keys_of(keys_named);
    const auto pins = read_route_pins(line);
    if (!pins) return pins.error();
    if (!listen) return listen.error();
    if (!rdma_min) return rdma_min.error();
    if (!budget) return budget.error();
    if (!arena) return arena.error();
    if (!lease_timeout) return lease_timeout.error();
    if (!wireup_wait) return wireup_wait.error();
    if (!handshake_timeout) return handshake_timeout.error();
    if (!lease_keys) {
        return failure{
            request_errc::invalid_argument,
            "--lease-keys '" + keys_named + "' is not strongest, window, exact or fence"};
    }
    if (const auto host = line.text("advertise")) {
        if (auto wrong = endpoint_address::parse(endpoint_address{*host, 1}.to_string()); !wrong) {
            return failure{wrong.error().code,
                           "--advertise '" + *host + "': " + sentence_of(wrong.error())};
        }
        s.advertise = *host;
    }

    auto& o = s.node;
    o = node_options::from_environment();
    o.listen = *listen;
    pins->apply(o);
    o.rdma_min_bytes = rdma_min->value_or(o.rdma_min_bytes);
    o.registered_budget_bytes = budget->value_or(o.registered_budget_bytes);
    o.first_arena_bytes = arena->value_or(o.first_arena_bytes);
    o.lease_timeout = lease_timeout->value_or(o.lease_timeout);
    o.wireup_wait = wireup_wait->value_or(o.wireup_wait);
    o.handshake_timeout = handshake_timeout->value_or(o.handshake_timeout);
    o.lease_keys = *lease_keys;
    s.arena_given = arena->has_value();
    o.max_arena_bytes = std::max(o.max_arena_bytes, o.first_arena_bytes);
    s.pin = !line.has("no-pin");
    s.json = line.json();
    return s;
}

/// What the files that share the first arena need: each in whole pages, a sixteenth and some for
/// what the allocator cannot use. Files of 64 MiB and more get an arena of their own.
std::size_t arena_for(const std::vector<source_file>& files, bool pin, std::size_t budget) {
    constexpr std::size_t page = 4096;  // also what an arena has at least, whatever the budget
    constexpr std::size_t least = 64 << 10;
    constexpr std::size_t dedicated = std::size_t{64} << 20;
    std::size_t bytes = 0;
    for (const auto& f : files) {
        if (pin && f.bytes() < dedicated) {
            bytes += (f.bytes() + page - 1) / page * page;
        }
    }
    const auto most = std::max(page, std::min(budget, node_options{}.max_arena_bytes));
    return std::clamp(bytes + bytes / 16, std::min(least, most), most);
}

/// The host that consumers can use, and a loud word where strangers can, too.
std::string advertised_host(const serve_settings& s, const endpoint_address& at) {
    error_code ec;
    const auto address = boost::asio::ip::make_address(at.host, ec);
    const bool everywhere = !ec && address.is_unspecified();
    if (s.node.secret.empty() && !s.node.tls.enabled() && (ec || !address.is_loopback())) {
        note("WARNING: open without authentication on " + at.to_string() +
             ": whoever reaches it and knows a URL gets the bytes, unencrypted; keep it to a "
             "trusted "
             "network");
    }
    if (!s.advertise.empty()) {
        return s.advertise;
    }
    return everywhere ? boost::asio::ip::host_name() : at.host;
}

struct staged_file {
    std::string name;
    url where;
    std::uint64_t bytes = 0;
    bool pinned = false;
    reason why_plain = reason::ok;
    std::string why_plain_detail;
};

result<staged_file> stage(node& n, source_file& file, const serve_settings& s,
                          const std::string& host, signal_watch& signals) {
    auto memory = file.stage_into(n, s.pin, signals);
    if (!memory) {
        const auto& f = memory.error();
        return f.code == node_errc::out_of_memory
                   ? failure{f.code, file.name() + ": " + sentence_of(f) + "; serve fewer files"}
                   : f;
    }
    staged_file out;
    out.name = file.name();
    out.bytes = memory->bytes().size();
    out.pinned = memory->pinned();
    if (!out.pinned) {
        out.why_plain = memory->why_plain();
        out.why_plain_detail = memory->why_plain_detail();
    }
    auto h = n.stage(std::move(*memory));
    if (!h) {
        return h.error();
    }
    out.where = n.url_of(*h);
    out.where.address.host = host;
    return out;
}

result<void> announce(const staged_file& f, bool json) {
    if (!json) {
        return print_line(stdout, f.where.to_string() + "  " + printable(f.name));
    }
    boost::json::object o{{"schema", "rvget.serve/1"}, {"url", f.where.to_string()},
                          {"file", printable(f.name)}, {"bytes", f.bytes},
                          {"pinned", f.pinned},        {"why_plain", nullptr},
                          {"why_plain_detail", ""}};
    if (!f.pinned) {
        o["why_plain"] = to_string(f.why_plain);
        o["why_plain_detail"] = f.why_plain_detail;
    }
    return print_line(stdout, boost::json::serialize(o));
}

/// What is served, and per file why it is not by RDMA where it could have been.
void tell(const std::vector<staged_file>& files, const rdma_status& rdma,
          const endpoint_address& at) {
    const auto because = [](reason r, const std::string& detail) {
        return std::string(to_string(r)) + (detail.empty() ? "" : " (" + detail + ")");
    };
    std::uint64_t bytes = 0;
    for (const auto& f : files) {
        bytes += f.bytes;
        if (rdma.usable && !f.pinned && f.why_plain != reason::plain && f.bytes != 0) {
            note(f.name + ": in plain memory, consumers pull chunks: " +
                 because(f.why_plain, f.why_plain_detail));
        }
    }
    note("serving " + std::to_string(files.size()) + (files.size() == 1 ? " file, " : " files, ") +
         format_bytes(bytes) + ", on " + at.to_string() + "; rdma " +
         (rdma.usable ? "on " + rdma.device
                      : "off: " + because(rdma.reason, by_option_names(rdma.detail))));
}

/// Stages all, then prints all: either every file is served, or none is.
result<void> serve_files(node& n, std::vector<source_file>& files, const serve_settings& s,
                         signal_watch& signals) {
    const auto at = n.address().value();
    const auto host = advertised_host(s, at);
    std::vector<staged_file> staged;
    for (auto& file : files) {
        auto one = stage(n, file, s, host, signals);
        if (!one) {
            return one.error();
        }
        staged.push_back(std::move(*one));
    }
    files.clear();
    tell(staged, n.rdma(), at);
    for (const auto& f : staged) {
        if (auto printed = announce(f, s.json); !printed) {
            return printed.error();
        }
    }
    return {};
}

}  // namespace

int serve(const arguments& given) {
    auto line = describe();
    if (const auto over = line.parse(given)) {
        return *over;
    }
    auto settings = read(line);
    if (!settings) {
        return line.wrong(sentence_of(settings.error()));
    }
    const auto failed = [&](const failure& f) {
        return report_error(status_of(f.code), sentence_of(f), settings->json);
    };
    if (auto known = read_authentication(line, settings->node); !known) {
        return failed(known.error());
    }
    std::vector<source_file> files;
    for (const auto& path : settings->files) {
        auto file = source_file::open(path);
        if (!file) {
            return failed(file.error());
        }
        files.push_back(std::move(*file));
    }
    if (!settings->arena_given) {
        settings->node.first_arena_bytes =
            arena_for(files, settings->pin, settings->node.registered_budget_bytes);
    }
    if (auto valid = validated(settings->node); !valid) {
        return failed(valid.error());
    }
    signal_watch signals;
    auto n = node::start(settings->node);
    if (!n) {
        return failed(n.error());
    }
    std::optional<metrics_endpoint> metrics;
    if (settings->metrics) {
        auto opened = metrics_endpoint::open(*settings->metrics, *n);
        if (!opened) {
            return failed(opened.error());
        }
        metrics.emplace(std::move(*opened));
        note("metrics at " + metrics->url());
    }
    auto served = serve_files(*n, files, *settings, signals);
    if (served) {
        signals.wait();
    }
    // False (memory leaked, because a NIC could not be proven quiet) has been logged, and the
    // process ends now.
    n->shutdown(shutdown_deadline);
    if (!served) {
        const auto signal = signals.received();
        return signal ? report_signal(*signal, "nothing is served", settings->json)
                      : failed(served.error());
    }
    return static_cast<int>(exit_status::ok);
}

}  // namespace rvget::tools
