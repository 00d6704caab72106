// rvget get: fetches what a URL names.

#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <rvget/node.hpp>

#include "base/printable.hpp"

#include "authentication.hpp"
#include "commands.hpp"
#include "console.hpp"
#include "download.hpp"
#include "option_names.hpp"
#include "quantity.hpp"
#include "route_pins.hpp"
#include "wireup.hpp"

namespace rvget::tools {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t default_segment_bytes = std::uint64_t{4} << 20;
constexpr std::uint32_t segments_in_flight = 4;

struct get_settings {
    node_options node = node_options::from_environment();
    download_settings what;
    std::string output;
    route_pins pins;
    bool json = false;
    bool quiet = false;
    bool sync = false;
};

command_line describe() {
    command_line line(
        "get URL [-o FILE|-] [--range A-B] [--policy prefer|require|never] [OPTION...]",
        "Fetches what URL (from 'rvget serve') names. FILE appears when all of it has arrived, "
        "never "
        "in part.\nEnds with one line: path, reason, device, port, GID, path MTU, bytes, and where "
        "the time went;\non standard output, or on standard error where that carries the data.\n");
    line.add("output,o", "FILE",
             "where to write; - is standard output (default where that is no "
             "terminal)");
    line.add("range", "A-B", "bytes A to B, both included, counted from 0; A- is to the end");
    line.add("policy", "POLICY", "prefer RDMA (default), require it, or never use it");
    line.add("deadline", "MS",
             "give up after this many milliseconds, also where nobody reads FILE, a pipe; default: "
             "each segment may take 30 s");
    line.add("segment", "BYTES", "ask for this much at once (default 4M); 0: for all");
    line.add("checksum", nullptr,
             "compare the CRC-32C of each segment with the owner's, before it is written");
    add_route_pins(line);
    add_wireup(line);
    line.add("sync", nullptr, "flush FILE to its disk before it gets its name");
    line.add("quiet,q", nullptr, "no progress bar, no result line");
    add_authentication(line);
    line.take_operands("url");
    return line;
}

result<get_settings> read(const command_line& line) {
    get_settings s;
    const auto operands = line.operands();
    if (operands.size() != 1) {
        return failure{request_errc::invalid_argument,
                       operands.empty() ? "no URL" : "more than one URL"};
    }
    const auto from = url::parse(operands.front());
    if (!from) {
        return failure{from.error().code,
                       sentence_of(from.error()) + "; copy the URL as 'rvget serve' printed it"};
    }
    s.what.from = *from;
    if (const auto range = line.text("range")) {
        auto parsed = byte_range::parse(*range);
        if (!parsed) {
            return parsed.error();
        }
        s.what.range = *parsed;
    }
    const auto policy = line.policy("policy");
    const auto deadline = line.milliseconds("deadline");
    const auto segment = line.bytes("segment");
    const auto pins = read_route_pins(line);
    const auto wireup = read_wireup(line);
    if (!pins) return pins.error();
    if (!wireup) return wireup.error();
    if (!policy) return policy.error();
    if (!deadline) return deadline.error();
    if (!segment) return segment.error();
    s.what.policy = policy->value_or(path_policy::prefer);
    if (*deadline) s.what.until = std::chrono::steady_clock::now() + **deadline;
    s.what.segment_bytes = segment->value_or(default_segment_bytes);
    s.what.segments_in_flight = s.what.segment_bytes == 0 ? 1 : segments_in_flight;
    s.pins = *pins;
    s.node.wireup = wireup->value_or(s.node.wireup);
    s.what.checksum = line.has("checksum");
    s.json = line.json();
    s.quiet = line.has("quiet");
    s.sync = line.has("sync");
    if (const auto output = line.text("output")) {
        s.output = *output;
    } else if (::isatty(STDOUT_FILENO) == 1) {
        return failure{request_errc::invalid_argument,
                       "standard output is a terminal; give -o FILE, or -o - to write there"};
    } else {
        s.output = "-";
    }
    return s;
}

node_options options_for(const get_settings& s) {
    auto o = s.node;
    o.policy = s.what.policy;
    s.pins.apply(o);
    o.spare_queue_pairs = 0;  // it speaks to one owner, once
    // Nothing is registered that would not be used.
    o.rdma_disabled = o.rdma_disabled || s.what.policy == path_policy::never;
    const auto flight = s.what.segment_bytes * s.what.segments_in_flight;
    o.first_arena_bytes = std::clamp<std::size_t>(flight, 64 << 10, 64 << 20);
    // The bytes that one get of everything needs are asked for on purpose.
    o.registered_budget_bytes = std::size_t{16} << 30;
    return o;
}

std::string result_text(const download_summary& d) {
    const auto or_dash = [](const std::string& text) { return text.empty() ? "-" : text; };
    const bool by_nic = !d.device.empty();
    std::string line = "path=" + std::string(d.path_name());
    line += " reason=" + std::string(to_string(d.reason));
    line += " device=" + or_dash(d.device);
    line += " port=" + (by_nic ? std::to_string(d.port) : "-");
    line += " gid=" + or_dash(d.gid);
    line += " mtu=" + (by_nic ? std::to_string(d.path_mtu) : "-");
    line += " bytes=" + std::to_string(d.bytes);
    line += " acquire=" + format_time(d.acquire) + " transfer=" + format_time(d.transfer) +
            " copy=" + format_time(d.copy) + " write=" + format_time(d.write) +
            " total=" + format_time(d.total);
    if (d.path_name() == "mixed") {
        for (const auto p : {path::rdma, path::inline_answer, path::chunked}) {
            line += " " + std::string(to_string(p)) +
                    "_bytes=" + std::to_string(d.path_bytes[static_cast<std::size_t>(p)]);
        }
    }
    return line;
}

std::string result_json(const download_summary& d, const std::string& file) {
    const auto bytes_by = [&](path p) { return d.path_bytes[static_cast<std::size_t>(p)]; };
    boost::json::object o{
        {"schema", "rvget.get/1"},
        {"exit", 0},
        {"file", printable(file)},
        {"path", d.path_name()},
        {"reason", to_string(d.reason)},
        {"detail", d.detail},
        {"device", nullptr},
        {"port", nullptr},
        {"gid", nullptr},
        {"path_mtu_bytes", nullptr},
        {"bytes", d.bytes},
        {"offset_bytes", d.offset},
        {"slot_bytes", d.slot_bytes},
        {"segments", d.segments},
        {"path_bytes",
         {{"rdma", bytes_by(path::rdma)},
          {"inline", bytes_by(path::inline_answer)},
          {"chunked", bytes_by(path::chunked)}}},
        {"copied_bytes", d.copied_bytes},
        {"acquire_ns", d.acquire.count()},
        {"transfer_ns", d.transfer.count()},
        {"copy_ns", d.copy.count()},
        {"write_ns", d.write.count()},
        {"total_ns", d.total.count()},
    };
    if (!d.device.empty()) {
        o["device"] = d.device;
        o["port"] = d.port;
        o["gid"] = d.gid;
        o["path_mtu_bytes"] = d.path_mtu;
    }
    return boost::json::serialize(o);
}

/// Why it was not RDMA, where that is a surprise and not a plain setting.
bool is_worth_a_note(reason r) {
    switch (r) {
        case reason::ok:
        case reason::inline_answer:
        case reason::below_min:
        case reason::policy:
        case reason::kill_switch:
        case reason::not_configured:
        case reason::zero_length:
        case reason::plain:
            return false;
        default:
            return true;
    }
}

std::string_view next_step(exit_status s) {
    switch (s) {
        case exit_status::not_found:
            return "; ask its owner for a new URL";
        case exit_status::refused:
            return "; try again later";
        case exit_status::connection:
            return "; see whether its owner still runs, then try again";
        case exit_status::deadline:
            return "; give more time with --deadline";
        case exit_status::path_not_available:
            return "; see what the owner said when it began to serve, or allow --policy prefer";
        default:
            return "";
    }
}

/// "<owner>: <cause>; <next step>". Local failures name their own thing. Never the handle.
std::string explain(const failure& f, exit_status s, const endpoint_address& owner,
                    const output_file& out) {
    std::string text = sentence_of(f);
    const bool local = s == exit_status::io || text.starts_with(out.name() + ": ");
    if (!local) {
        text = by_option_names(std::move(text));
    }
    if (!local && text.find(owner.to_string()) == std::string::npos) {
        text.insert(0, owner.to_string() + ": ");
    }
    if (text.find("; ") == std::string::npos) {
        text += next_step(s);
    }
    return text;
}

int fetch(const get_settings& s, output_file& out) {
    std::FILE* const results = out.is_standard_output() ? stderr : stdout;
    const auto failed = [&](const failure& f) {
        const auto status = status_of(f.code, s.what.policy);
        return report_error(status, explain(f, status, s.what.from.address, out), s.json, results);
    };
    signal_watch signals;
    boost::asio::io_context context;  // outlives the node, whose gets complete in it
    const auto options = options_for(s);
    if (const auto valid = validated(options); !valid) {
        return failed(valid.error());
    }
    auto n = node::start(options);
    if (!n) {
        return failed(n.error());
    }
    result<void> done;
    download_summary summary;
    {
        progress_bar bar(!s.quiet && !s.json);
        download d(context, *n, s.what, out, bar, signals);
        done = d.run();
        if (done) {
            done = out.commit(s.sync);
        }
        summary = d.summary();
    }
    n->shutdown(1s);
    if (!done) {
        if (const auto signal = signals.received()) {
            return report_signal(*signal, "nothing was left behind", s.json, results);
        }
        return failed(done.error());
    }
    if (s.quiet) {
        return static_cast<int>(exit_status::ok);
    }
    if (!s.json && is_worth_a_note(summary.reason) && !summary.detail.empty()) {
        note("not by RDMA: " + std::string(to_string(summary.reason)) + ": " +
             by_option_names(summary.detail));
    }
    const auto printed =
        print_line(results, s.json ? result_json(summary, out.name()) : result_text(summary));
    return printed ? static_cast<int>(exit_status::ok)
                   : report_error(exit_status::io, sentence_of(printed.error()));
}

}  // namespace

int get(const arguments& given) {
    auto line = describe();
    if (const auto over = line.parse(given)) {
        return *over;
    }
    auto settings = read(line);
    if (!settings) {
        return line.wrong(sentence_of(settings.error()));
    }
    if (auto known = read_authentication(line, settings->node); !known) {
        return report_error(status_of(known.error().code), sentence_of(known.error()),
                            settings->json);
    }
    // Before signals are watched: opening a FIFO waits for its reader, and must end at a Ctrl-C.
    auto out = output_file::open(settings->output, settings->what.until);
    if (!out) {
        return report_error(status_of(out.error().code), sentence_of(out.error()), settings->json);
    }
    return fetch(*settings, *out);
}

}  // namespace rvget::tools
