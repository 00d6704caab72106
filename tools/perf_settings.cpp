#include "perf_settings.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <limits>
#include <sstream>

#include "console.hpp"
#include "lease_keys.hpp"
#include "listen_address.hpp"
#include "output_file.hpp"
#include "quantity.hpp"
#include "route_pins.hpp"
#include "wireup.hpp"

namespace rvget::tools {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t largest_size = std::uint64_t{1} << 32;

failure wrong(const std::string& option, std::string_view text, const std::string& wanted) {
    return {request_errc::invalid_argument,
            "--" + option + " '" + std::string(text) + "': give " + wanted};
}

template <class Number>
std::optional<Number> number_in(std::string_view text) {
    Number value{};
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    return error == std::errc{} && rest == end && !text.empty() ? std::optional(value)
                                                                : std::nullopt;
}

/// A number of at least `least`; `otherwise` where the option is not given.
template <class Number>
result<Number> number(const command_line& line, const std::string& option, Number otherwise,
                      Number least, Number most, const std::string& wanted) {
    const auto text = line.text(option);
    if (!text) return otherwise;
    const auto value = number_in<Number>(*text);
    // Not the other way round: no comparison with a NaN holds.
    if (!value || !(*value >= least && *value <= most)) return wrong(option, *text, wanted);
    return *value;
}

result<std::chrono::nanoseconds> seconds(const command_line& line, const std::string& option,
                                         double otherwise) {
    const auto value = number<double>(line, option, otherwise, 0.0, 86'400.0,
                                      "seconds, 0 to 86400, such as 3 or 0.5");
    if (!value) return value.error();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(*value));
}

result<void> read_load(const command_line& line, perf_settings& s) {
    for (const auto& name : line.has("op") ? line.texts("op") : std::vector<std::string>{"get"}) {
        constexpr std::array known{perf_operation::get, perf_operation::get_into,
                                   perf_operation::get_pinned};
        const auto found =
            std::ranges::find_if(known, [&](perf_operation o) { return name == to_string(o); });
        if (found == known.end()) return wrong("op", name, "get, get_into or get_pinned");
        s.operations.push_back(*found);
    }
    auto sizes = parse_sizes(line.text("size").value_or("64K"));
    if (!sizes) return sizes.error();
    s.sizes = std::move(*sizes);
    for (const auto& text :
         line.has("depth") ? line.texts("depth") : std::vector<std::string>{"1"}) {
        const auto depth = number_in<std::uint32_t>(text);
        if (!depth || *depth == 0 || *depth > 4096) return wrong("depth", text, "1 to 4096");
        s.depths.push_back(*depth);
    }
    if (s.operations.empty() || s.depths.empty()) {
        return failure{request_errc::invalid_argument, "--op or --depth is empty"};
    }
    const auto rate = number<double>(line, "rate", 0.0, 1e-3, 1e9, "operations per second");
    const auto repeat = number<std::uint32_t>(line, "repeat", 3, 1, 1000, "1 to 1000");
    const auto iterations = number<std::uint64_t>(
        line, "iterations", 0, 1, std::numeric_limits<std::uint64_t>::max(), "a number from 1 on");
    const auto duration = seconds(line, "duration", 3);
    const auto warmup = seconds(line, "warmup", 0.5);
    const auto interval = seconds(line, "interval", 0);
    const auto deadline = line.milliseconds("deadline");
    if (!rate) return rate.error();
    if (!repeat) return repeat.error();
    if (!iterations) return iterations.error();
    if (!duration) return duration.error();
    if (!warmup) return warmup.error();
    if (!interval) return interval.error();
    if (!deadline) return deadline.error();
    s.rate = *rate;
    s.repeat = *repeat;
    s.cold = line.has("cold");
    if (line.has("duration") && *duration <= 0ns) {
        return wrong("duration", "0", "more than 0 seconds, or --iterations instead");
    }
    if (*iterations > 0) s.iterations = *iterations;
    if (s.cold && !s.iterations) s.iterations = 5;
    if (!s.iterations || line.has("duration")) s.duration = *duration;
    s.warmup = *warmup;
    s.interval = std::chrono::ceil<std::chrono::milliseconds>(*interval);
    s.deadline = deadline->value_or(30s);
    if (s.cold && (s.rate > 0 || s.depths != std::vector<std::uint32_t>{1})) {
        return failure{request_errc::invalid_argument,
                       "--cold is one get on a fresh pair of nodes: without --rate and --depth"};
    }
    return {};
}

result<void> read_path(const command_line& line, perf_settings& s) {
    const auto policy = line.policy("policy");
    const auto rdma_min = line.bytes("rdma-min");
    const auto inline_max = line.bytes("inline-max");
    const auto budget = line.bytes("budget");
    if (!policy) return policy.error();
    if (!rdma_min) return rdma_min.error();
    if (!inline_max) return inline_max.error();
    if (!budget) return budget.error();
    s.policy = policy->value_or(path_policy::prefer);
    s.wish.rdma_min_bytes = rdma_min->value_or(node_options{}.rdma_min_bytes);
    s.wish.inline_max = inline_max->value_or(node_options{}.inline_max);
    s.wish.lease_keys = line.text("lease-keys").value_or("strongest");
    if (!lease_keys_of(s.wish.lease_keys)) {
        return wrong("lease-keys", s.wish.lease_keys, "strongest, window, exact or fence");
    }
    s.budget_bytes = budget->value_or(node_options{}.registered_budget_bytes);
    const auto pins = read_route_pins(line);
    const auto wireup = read_wireup(line);
    if (!pins) return pins.error();
    if (!wireup) return wireup.error();
    s.pins = *pins;
    s.wireup = *wireup;
    s.pinned = !line.has("plain");
    const auto into = line.text("into").value_or("registered");
    if (into != "registered" && into != "plain") return wrong("into", into, "registered or plain");
    s.registered = into == "registered";
    const auto verify = line.text("verify").value_or("all");
    if (verify != "all" && verify != "once") return wrong("verify", verify, "all or once");
    s.verify_all = verify == "all";
    return {};
}

result<void> read_output(const command_line& line, perf_settings& s) {
    s.json = line.json();
    s.csv = line.has("csv");
    if (s.json && s.csv) {
        return failure{request_errc::invalid_argument, "--json and --csv are one too many"};
    }
    s.svg = line.text("svg").value_or("");
    if (line.has("svg")) {
        if (auto place = can_be_written(s.svg); !place) {
            return failure{place.error().code, "--svg: " + sentence_of(place.error())};
        }
    }
    for (const auto& text : line.texts("require")) {
        auto one = diag::perf_requirement::parse(text, parse_bytes);
        if (!one) return one.error();
        s.required.push_back(std::move(*one));
    }
    if (const auto file = line.text("compare")) {
        std::ifstream in(*file);
        std::stringstream text;
        text << in.rdbuf();
        if (!in) return wrong("compare", *file, "a file that can be read");
        auto before = diag::perf_baseline::parse(text.str());
        if (!before) {
            return failure{before.error().code,
                           "--compare " + *file + ": " + sentence_of(before.error())};
        }
        s.baseline = std::move(*before);
    }
    return {};
}

}  // namespace

exit_convention perf_exits() noexcept {
    return {
        static_cast<int>(exit_status::diagnostic_usage),
        "Exit status:\n"
        "  0  done, and all that was required holds\n"
        "  2  a requirement missed, worse than before, a transfer failed or brought wrong bytes,\n"
        "     or the owner was lost, or no picture written, after something was measured\n"
        "  3  could not start: no owner, no memory, no first transfer\n"
        "  64  usage\n"
        "  129, 130, 143  ended by SIGHUP, SIGINT, SIGTERM\n"};
}

void add_perf_options(command_line& line) {
    line.add("listen", "ADDR",
             "be the owner: HOST, HOST:PORT or [IPV6]:PORT (default port 18518, 0: a free one)");
    line.add("keep", nullptr,
             "with --listen: serve one consumer after the other, until a signal; 'sweep' needs it");
    line.add("idle", "SECONDS", "with --listen: end if no consumer comes in that time");
    line.add("on", "ADDR", "without OWNER: where the one that is started listens (127.0.0.1)");
    line.add("op", "LIST", "get (default), get_into, get_pinned");
    line.add("size", "LIST", "bytes: 4K,64K or 8..8M:x2 (default 64K)");
    line.add("depth", "LIST", "transfers in flight (default 1)");
    line.add("rate", "N",
             "begin N a second whatever becomes of them (open loop), at most --depth at once; "
             "latency counts from when each was due");
    line.add("iterations", "N", "transfers in each run; default: as many as fit in --duration");
    line.add("duration", "SECONDS", "of each run (default 3)");
    line.add("warmup", "SECONDS", "before the first run of each point (default 0.5)");
    line.add("repeat", "N", "runs of each point, for their spread (default 3)");
    line.add("interval", "SECONDS", "tell that often how it goes");
    line.add("cold", nullptr, "each transfer by a fresh node: connection and queue pair included");
    line.add("policy", "POLICY", "prefer RDMA (default), require it, or never use it");
    line.add("rdma-min", "BYTES", "the owner serves smaller ones in chunks (default 64K)");
    line.add("inline-max", "BYTES", "the owner puts those no larger into its answer (default 4K)");
    line.add("lease-keys", "KIND", "the owner's: strongest (default), window, exact or fence");
    line.add("plain", nullptr, "the owner stages in plain memory");
    line.add("into", "MEMORY", "destinations of get_into: registered (default) or plain");
    line.add("verify", "WHEN",
             "compare every byte of all transfers (default), or of one a point: once");
    line.add("deadline", "MS", "give a transfer up after this long (default 30000)");
    add_route_pins(line);
    add_wireup(line);
    line.add("budget", "BYTES", "an owner stages no more than this (default 1G)");
    line.add("csv", nullptr, "points as CSV, at the end, instead of the table");
    line.add("svg", "FILE", "also draw bandwidth and latency against size");
    line.add("require", "LIST",
             "status 2 unless all hold: bw_gbps>=380@1M,p99_us<=20@8; figures as in --csv");
    line.add("compare", "FILE",
             "status 2 where it got worse than in FILE (of --json) and the spreads do not meet");
}

result<std::vector<std::uint64_t>> parse_sizes(std::string_view text) {
    std::vector<std::uint64_t> sizes;
    std::istringstream words{std::string(text)};
    for (std::string word; std::getline(words, word, ',');) {
        const auto dots = word.find("..");
        const auto times = word.find(":x");
        const auto last = word.substr(dots == std::string::npos ? 0 : dots + 2,
                                      times == std::string::npos ? times : times - dots - 2);
        const auto from = parse_bytes(word.substr(0, dots));
        const auto to = dots == std::string::npos ? from : parse_bytes(last);
        const auto factor =
            times == std::string::npos
                ? std::optional<std::uint64_t>(2)
                : number_in<std::uint64_t>(std::string_view(word).substr(times + 2));
        if (!from || !to || !factor || *from == 0 || *to < *from || *to > largest_size ||
            *factor < 2 || *factor > (1 << 20) ||
            (dots == std::string::npos && times != std::string::npos)) {
            return wrong("size", word, "sizes from 1 to 4G: 4K,64K or 8..8M:x2");
        }
        for (auto size = *from; size <= *to; size *= *factor) sizes.push_back(size);
    }
    if (sizes.empty()) return wrong("size", text, "at least one size");
    return sizes;
}

result<perf_settings> read_perf_settings(const command_line& line,
                                         const std::optional<std::string>& owner, bool sweep) {
    perf_settings s;
    if (owner) {
        const auto at = parse_listen(*owner, "owner", perf_port);
        if (!at) {
            return failure{at.error().code, "OWNER '" + *owner +
                                                "': give HOST, HOST:PORT or "
                                                "[IPV6]:PORT"};
        }
        s.owner = *at;
    }
    const auto at = parse_listen(line.text("on").value_or("127.0.0.1"), "on");
    if (!at) return at.error();
    s.own_at = *at;
    for (const auto& read : {read_load, read_path, read_output}) {
        if (auto done = read(line, s); !done) return done.error();
    }
    if (sweep) {
        // Silence about these would let a gate pass that was never looked at.
        for (const char* const not_here :
             {"op", "depth", "rate", "require", "compare", "csv", "svg"}) {
            if (line.has(not_here)) {
                return failure{request_errc::invalid_argument,
                               "--" + std::string(not_here) +
                                   " has no meaning for a sweep; leave it out, or measure without "
                                   "'sweep'"};
            }
        }
        if (!line.has("size")) s.sizes = parse_sizes("4K..1M:x2,4M").value();
        if (!line.has("rdma-min")) s.wish.rdma_min_bytes = *std::ranges::min_element(s.sizes);
        if (!line.has("inline-max")) s.wish.inline_max = 0;
        if (!s.iterations) s.iterations = 10;
        if (*s.iterations < 2) {
            return wrong("iterations", "1",
                         "at least 2 to a sweep: the first transfer of a size is told apart");
        }
    }
    // What a size needs, and some for what the allocator cannot use; more is registered on demand.
    const auto slots = sweep ? *s.iterations : perf_slots;
    const auto largest = *std::ranges::max_element(s.sizes);
    const auto needed = largest > (1U << 30) / slots ? std::uint64_t{1} << 30 : largest * slots;
    s.wish.arena_bytes = std::clamp<std::uint64_t>(needed + needed / 16 + (64 << 10), 64 << 10,
                                                   std::uint64_t{64} << 20);
    return s;
}

}  // namespace rvget::tools
