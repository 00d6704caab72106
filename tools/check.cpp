// rvget check: what is wrong between two ends.

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include <boost/json/serialize.hpp>

#include <rvget/handle.hpp>

#include "commands.hpp"
#include "console.hpp"
#include "diag/check/expected.hpp"
#include "diag/check/observe.hpp"
#include "diag/check/redaction.hpp"
#include "diag/check/remote.hpp"
#include "diag/check/taken_text.hpp"
#include "diag/check/verdict.hpp"
#include "diag/check/words.hpp"
#include "diag/described.hpp"
#include "diagnosis.hpp"
#include "listen_address.hpp"

namespace rvget::tools {
namespace {

using namespace std::chrono_literals;

struct check_settings {
    bool listen = false;
    bool self = false;
    endpoint_address peer;  ///< the listener, here or there
    std::string token;
    diag::listen_options listening;
    diag::check_wishes wishes;
    std::string observations;  ///< judge these, recorded ones
    bool redact = false;
    std::optional<diag::expectations> expected;
};

/// An end of which it is known what was asked last: where no answer comes, that is what to tell.
class told_end final : public diag::check_end {
public:
    told_end(diag::check_end& inner, std::string name, progress& so_far)
        : inner_(inner), name_(std::move(name)), so_far_(so_far) {}

    boost::json::object ask(const boost::json::object& request) override {
        const auto what =
            name_ + " (" + std::string(diag::awaited(request.at("ask").as_string())) + ")";
        so_far_.doing("waiting for " + what);
        auto answer = inner_.ask(request);
        auto* lost = answer.if_contains("lost");
        if (lost != nullptr && lost->is_string()) {
            *lost = what + ": " + std::string(lost->get_string());
        }
        return answer;
    }

private:
    diag::check_end& inner_;
    const std::string name_;
    progress& so_far_;
};

command_line describe() {
    command_line line(
        "check HOST[:PORT] | --listen [ADDR] | --self [OPTION...]",
        "Finds out what is wrong between two ends: run 'rvget check --listen' on one and 'rvget "
        "check "
        "HOST' on\nthe other. Sends UDP packets of growing size and READs both ways over each "
        "likely "
        "pair of GIDs, and names\nthe cause with the commands that mend it ([HOST] COMMAND). "
        "Changes "
        "nothing and needs no root.\nThe listener shows whoever connects this host's GIDs and a "
        "buffer of 64 KiB, and nothing else.\n",
        diagnostic_exits());
    add_report_options(line);
    line.add("listen", nullptr, "wait for the other end, on ADDR or all addresses");
    line.add("self", nullptr, "both ends on this machine");
    line.add("port", "PORT", "of the listener (default 7473)");
    line.add("once", nullptr, "listener: end after one check");
    line.add("idle", "MS", "listener: end when no check came for so long");
    line.add("token", "WORD",
             "listener: serve only who gives the same one; else: that of the listener");
    line.add("gid", "GID", "this end's GID, by address or index, instead of the best");
    line.add("peer-gid", "GID", "the other end's");
    line.add("mtu", "BYTES", "force this path MTU: 256, 512, 1024, 2048 or 4096");
    line.add("peer-mtu", "BYTES", "force this one on the other end's queue pair");
    line.add("target-gid", "ADDR", "send to this GID, whatever the other end's queue pair has");
    line.add("reads", "N", "READs of 64 KiB at the end (default 2000; 0 for none)");
    line.add("observations", "FILE", "judge what an earlier check saw: its --json report");
    line.add("expect", "FILE",
             "what the path should be: mtu_bytes, rate_mbps, gid_family, bandwidth_mbps (JSON, as "
             "doctor's)");
    line.add("redact", nullptr, "mask addresses, MACs and the hosts' names in what is shown");
    line.take_operands("host");
    return line;
}

int explain(const command_line& line, const std::string& id) {
    for (const auto& f : diag::path_findings()) {
        if (f.id != id) continue;
        const boost::json::object told{
            {"schema", "rvget.explain/1"}, {"id", f.id}, {"meaning", f.meaning}};
        const auto printed =
            print_line(stdout, line.json() ? boost::json::serialize(told)
                                           : std::string(f.id) + ": " + std::string(f.meaning));
        return printed ? 0 : 3;
    }
    return line.wrong("--explain '" + id + "' is no finding of check's");
}

/// A path MTU that an option forces; 0 where it is not there.
result<std::uint32_t> path_mtu_of(const command_line& line, const char* option) {
    const auto bytes = line.bytes(option);
    if (!bytes) return bytes.error();
    const auto mtu = static_cast<std::uint32_t>(bytes->value_or(0));
    if (!*bytes || mtu == 256 || mtu == 512 || mtu == 1024 || mtu == 2048 || mtu == 4096)
        return mtu;
    return failure{request_errc::invalid_argument,
                   std::string("--") + option + " " + std::to_string(mtu) + " is no path MTU"};
}

result<check_settings> read(const command_line& line) {
    check_settings s;
    s.listen = line.has("listen");
    s.self = line.has("self");
    s.observations = line.text("observations").value_or("");
    s.redact = line.has("redact");
    if (const auto file = line.text("expect")) {
        auto expected = diag::read_expectations(*file);
        if (!expected) {
            return failure{expected.error().code, "--expect: " + sentence_of(expected.error())};
        }
        s.expected = std::move(*expected);
    }
    const auto operands = line.operands();
    const auto ports = s.listen ? port_range::any : port_range::not_0;
    const auto port =
        parse_port(line.text("port").value_or(std::to_string(diag::check_port)), "--port", ports);
    const auto at = operands.empty() ? named_place{} : parse_place(operands.front(), ports);
    const auto idle = line.milliseconds("idle");
    const auto mtu = path_mtu_of(line, "mtu");
    const auto peer_mtu = path_mtu_of(line, "peer-mtu");
    const auto reads = line.bytes("reads");
    if (!port) return port.error();
    if (!at) return at.error();
    if (!idle) return idle.error();
    if (!mtu) return mtu.error();
    if (!peer_mtu) return peer_mtu.error();
    if (!reads) return reads.error();
    for (const auto* option : {"gid", "peer-gid"}) {
        const auto gid = line.text(option).value_or("");
        const bool index = gid.find_first_not_of("0123456789") == std::string::npos;
        if (index && (gid.size() > 3 || (!gid.empty() && std::stoi(gid) > 255))) {
            return failure{request_errc::invalid_argument,
                           std::string("--") + option + " " + gid +
                               ": no queue pair can use an index above 255"};
        }
    }
    const auto ways = int{s.listen} + int{s.self} + int{!s.observations.empty()};
    if (operands.size() > 1 || ways > 1 || (ways == 0 && operands.empty()) ||
        (ways == 1 && !s.listen && !operands.empty())) {
        return failure{request_errc::invalid_argument,
                       "give one of HOST, --listen, --self and --observations"};
    }
    for (const auto* const option : {"once", "idle"}) {
        if (!s.listen && line.has(option)) {
            return failure{request_errc::invalid_argument,
                           "--" + std::string(option) +
                               " is the listener's; give it to 'rvget "
                               "check --listen'"};
        }
    }
    s.wishes = {.peer = {},
                .gid = line.text("gid").value_or(""),
                .peer_gid = line.text("peer-gid").value_or(""),
                .mtu_bytes = *mtu,
                .peer_mtu_bytes = *peer_mtu,
                .target_gid = line.text("target-gid").value_or(""),
                .reads = static_cast<std::uint32_t>(
                    std::min<std::uint64_t>(reads->value_or(2000), 1'000'000)),
                .own_address = {},
                .peer_address = {}};
    if (at->port && line.has("port")) {
        return failure{request_errc::invalid_argument,
                       "give the port in '" + operands.front() + "' or by --port, not both"};
    }
    s.peer = {at->host, at->port.value_or(*port)};
    s.token = line.text("token").value_or("");
    if (line.has("token") && (s.token.empty() || s.token.size() > diag::longest_token)) {
        return failure{request_errc::invalid_argument,
                       "--token: give 1 to " + std::to_string(diag::longest_token) + " characters"};
    }
    s.listening = {.address = s.peer.host,
                   .port = s.peer.port,
                   .token = s.token,
                   .once = line.has("once"),
                   .idle = idle->value_or(0ms)};
    if (!s.listen && !operands.empty()) {
        s.wishes.peer = operands.front();
        if (line.has("port")) s.wishes.peer += " --port " + std::to_string(*port);
    }
    return s;
}

diag::report report_on(const diag::observations& o,
                       const std::optional<diag::expectations>& expected, diag::report r) {
    auto found = diag::judge_path(o);
    r.findings.insert(r.findings.end(), found.begin(), found.end());
    if (expected) r.findings.push_back(diag::judge_expected(o, *expected));
    r.facts["observations"] = diag::to_json(o);
    if (!o.pairs.empty()) {
        const auto& p = o.pairs.front();
        r.lines.push_back(
            p.a.host + " " + p.a.device + " " + p.a.gid + " (index " + std::to_string(p.a.index) +
            ") <> " + p.b.host + " " + p.b.device + " " + p.b.gid + " (index " +
            std::to_string(p.b.index) + "), path MTU " +
            std::to_string(o.a_mtu_bytes != 0 ? o.a_mtu_bytes : diag::common_mtu(p.a, p.b)));
    }
    return r;
}

result<diag::report> listen(const check_settings& s, progress& so_far) {
    const diag::report first = so_far.latest();
    const auto with = [&](diag::finding f) {
        auto r = first;
        f.id = "path.control", f.subject = "host";
        r.findings.push_back(std::move(f));
        return r;
    };
    so_far.doing("waiting for the other end");
    std::uint64_t served = 0;
    const auto done = diag::serve_checks(
        s.listening,
        [&](const std::string& port) {
            note("listening on port " + port + "; now run 'rvget check' on the other host" +
                 (s.token.empty() ? "" : " with this --token"));
        },
        [&](std::uint64_t count) {
            served = count;
            so_far.publish(with({.message = "checks served: " + std::to_string(count)}));
        });
    if (!done) return done.error();
    if (served > 0) return so_far.latest();
    return with({.outcome = diag::outcome::error,
                 .message = "nobody came for a check within " +
                            std::to_string(s.listening.idle.count()) + " ms; see --idle"});
}

result<diag::report> judge_recorded(const check_settings& s, diag::observations& o,
                                    diag::report r) {
    const auto& name = s.observations;
    auto file = diag::read_json(name);
    if (!file) return file.error();
    const auto* report = file->if_object();
    const auto* facts = report == nullptr ? nullptr : report->if_contains("facts");
    const auto* seen = facts == nullptr || !facts->is_object()
                           ? nullptr
                           : facts->get_object().if_contains("observations");
    if (seen == nullptr) {
        return failure{request_errc::invalid_argument,
                       name + " has no facts.observations; make one with 'rvget check --json'"};
    }
    try {
        diag::from_json(*seen, o);
        diag::take(o);
    } catch (const std::exception& e) {
        return failure{request_errc::invalid_argument, name + ": " + e.what()};
    }
    return report_on(o, s.expected, std::move(r));
}

/// How the listener was reached, or why not.
diag::finding contact(const endpoint_address& peer, const result<diag::remote_end>& connected) {
    const auto where = peer.to_string();
    diag::finding f{.id = "path.control", .subject = where};
    if (!connected) {
        f.outcome = diag::outcome::error;
        f.message = sentence_of(connected.error());
        const auto port =
            peer.port == diag::check_port ? "" : " --port " + std::to_string(peer.port);
        f.fix = {"[" + peer.host + "] rvget check --listen" + port, "rvget check " + where};
        if (connected.error().code == connection_errc::version_mismatch) {
            f.id = "path.version";
            f.fix = {"[" + peer.host + "] rvget --version", "rvget --version"};
        } else if (connected.error().code == request_errc::refused) {
            f.fix = {"rvget check " + where + " --token WORD  # that of the listener"};
        }
        return f;
    }
    f.message = "connected in " + std::to_string(connected->connect_time.count()) + " ms";
    if (connected->connect_time > 1s) {
        f.outcome = diag::outcome::warn;
        f.fix = {"ping " + peer.host};
    }
    return f;
}

result<diag::report> examine(check_settings s, progress& so_far) {
    auto r = so_far.latest();
    diag::observations seen;
    const auto shown = [&s, &seen](diag::report whole) {
        if (s.redact) diag::redaction(seen, s.peer.host).apply(whole);
        return whole;
    };
    if (!s.observations.empty()) {
        auto judged = judge_recorded(s, seen, std::move(r));
        return judged ? shown(std::move(*judged)) : judged;
    }
    // What the run itself says of a wait is told beside the report, which is redacted before.
    const auto name = s.redact ? std::string("the other end") : s.peer.to_string();
    const auto own = diag::make_local_end();
    auto other =
        diag::remote_end{.end = diag::make_local_end(), .own_address = {}, .peer_address = {}};
    if (!s.self) {
        so_far.doing("waiting for " + name + " (connecting and its greeting)");
        auto connected = diag::connect_end(s.peer, s.token, 5s);
        r.findings.push_back(contact(s.peer, connected));
        if (!connected) return shown(std::move(r));
        other = std::move(*connected);
        s.wishes.own_address = other.own_address, s.wishes.peer_address = other.peer_address;
        so_far.publish(shown(r));
    }
    told_end a(*own, "this end", so_far);
    told_end b(*other.end, s.self ? "this end" : name, so_far);
    const auto done = diag::observe(a, b, s.wishes, [&](const diag::observations& o) {
        seen = o;
        auto partial = r;
        partial.facts["observations"] = diag::to_json(o);
        so_far.publish(shown(std::move(partial)));
    });
    if (!done) return done.error();
    seen = *done;
    return shown(report_on(seen, s.expected, std::move(r)));
}

}  // namespace

int check(const arguments& given) {
    auto line = describe();
    if (const auto status = line.parse(given)) return *status;
    if (const auto id = line.text("explain")) return explain(line, *id);
    auto s = read(line);
    if (!s) return line.wrong(sentence_of(s.error()));
    std::vector<std::string_view> ids;
    for (const auto& f : diag::path_findings()) ids.push_back(f.id);
    const auto shown = read_report_options(
        line, {.tool = "check", .ids = ids, .timeout = s->listen ? 24h * 24 : 60s});
    if (!shown) return line.wrong(sentence_of(shown.error()));
    diag::report first;
    first.tool = "check";
    return run_diagnosis(*shown, std::move(first), [s = std::move(*s)](progress& so_far) {
        return s.listen ? listen(s, so_far) : examine(s, so_far);
    });
}

}  // namespace rvget::tools
