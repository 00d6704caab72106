// rvget perf: how fast transfers are, where their time goes, and whether that is fast enough.

#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include <sys/utsname.h>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>

#include "commands.hpp"
#include "console.hpp"
#include "diag/perf_chart.hpp"
#include "diag/perf_record.hpp"
#include "listen_address.hpp"
#include "perf_measure.hpp"
#include "perf_memory.hpp"
#include "perf_owner.hpp"
#include "perf_owner_process.hpp"
#include "perf_settings.hpp"
#include "perf_sweep.hpp"
#include "route_pins.hpp"

namespace rvget::tools {
namespace {

using namespace std::chrono_literals;
namespace json = boost::json;

command_line describe() {
    command_line line(
        "perf [sweep] [OWNER] [OPTION...]\n       rvget perf memory [--size LIST]\n       rvget "
        "perf --listen ADDR [--keep]",
        "Times transfers from an owner, each of them, and compares every byte. Start 'rvget perf "
        "--listen ADDR'\non one machine and 'rvget perf ADDR' on another; without OWNER one is "
        "started in a process of its own\non this machine. Latency is that of the whole operation, "
        "never half of a round trip.\n'sweep' measures a few transfers of each size by RDMA, in "
        "chunks and by get_pinned, the "
        "first of each apart;\n'memory' what registering memory and lending it from the pool "
        "cost.\n",
        perf_exits());
    add_perf_options(line);
    line.take_operands("owner");
    return line;
}

/// What the measurement has to say, in the form that was asked for.
class printer {
public:
    explicit printer(const perf_settings& s) : settings_(s) {}

    result<void> begin(const node& consumer, const json::object& owner) {
        const auto rdma = consumer.rdma();
        const std::string why(rvget::to_string(rdma.reason));
        if (settings_.json) {
            utsname machine{};
            ::uname(&machine);
            auto o = diag::perf_record("start");
            o["rvget"] = RVGET_VERSION;
            o["host"] = machine.nodename;
            o["kernel"] = machine.release;
            o["cpus"] = std::thread::hardware_concurrency();
            o["client"] = json::object{{"rdma", rdma.usable},
                                       {"reason", why},
                                       {"detail", rdma.detail},
                                       {"device", rdma.device}};
            o["server"] = owner;
            return print(o);
        }
        if (settings_.csv) return {};
        note("consumer: rdma " + (rdma.usable ? "on " + rdma.device : "off: " + why) +
             "; owner: " + json::serialize(owner));
        return print_line(stdout, diag::perf_heading());
    }

    result<void> point(diag::perf_point p) {
        points_.push_back(std::move(p));
        const auto& latest = points_.back();
        if (settings_.json) return print(diag::to_json(latest));
        if (settings_.csv) return {};
        return print_line(stdout, diag::to_line(latest));
    }

    void interval(std::uint64_t count, std::uint64_t bytes) {
        const auto news = count - count_;
        const auto rate = static_cast<double>(bytes - bytes_) /
                          std::chrono::duration<double>(settings_.interval).count();
        count_ = count;
        bytes_ = bytes;
        if (!settings_.json)
            return note(std::to_string(news) + " transfers, " + std::to_string(rate * 8 / 1e9) +
                        " Gb/s");
        auto o = diag::perf_record("interval");
        o["count"] = news;
        o["bw_gbytes_s"] = rate / 1e9;
        static_cast<void>(print(o));  // the end of the run will meet the same error
    }
    void begin_run() { count_ = bytes_ = 0; }

    /// The pictures and verdicts, and the exit status: `status` unless that is 0 and a verdict bad.
    int end(int status, std::string message) {
        json::array told;
        auto verdicts = diag::judge(settings_.required, points_);
        if (settings_.baseline) {
            auto compared = diag::compare(*settings_.baseline, points_);
            verdicts.insert(verdicts.end(), compared.begin(), compared.end());
        }
        for (const auto& v : verdicts) {
            if (!v.held && status == 0) status = perf_not_good;
            told.push_back(
                json::object{{"subject", v.subject}, {"held", v.held}, {"message", v.message}});
            if (!settings_.json) {
                note((v.held ? "holds: " : "MISSED: ") + v.subject +
                     (v.message.empty() ? "" : ": " + v.message));
            }
        }
        if (!settings_.svg.empty()) {
            std::ofstream out(settings_.svg, std::ios::trunc);
            out << diag::to_svg(points_);
            out.close();
            if (!out) {
                message.append(message.empty() ? "" : "; ");
                message.append("cannot write ").append(settings_.svg).append(": ");
                message.append(std::strerror(errno)).append("; see --svg");
                status = status == 0 ? perf_not_good : status;
            }
        }
        if (!message.empty()) note(message);
        result<void> printed;
        if (settings_.json) {
            auto o = diag::perf_record("end");
            o["points"] = points_.size();
            o["verdicts"] = std::move(told);
            o["message"] = message;
            o["exit"] = status;
            printed = print(o);
        } else if (settings_.csv) {
            auto text = diag::to_csv(points_);
            if (!text.empty()) text.pop_back();
            printed = print_line(stdout, text);
        }
        if (printed) return status;
        return report_error(static_cast<exit_status>(perf_not_started),
                            sentence_of(printed.error()));
    }

private:
    static result<void> print(const json::object& o) {
        return print_line(stdout, json::serialize(o));
    }

    const perf_settings& settings_;
    std::vector<diag::perf_point> points_;
    std::uint64_t count_ = 0;
    std::uint64_t bytes_ = 0;
};

/// All points; how it ended, as an exit status and a sentence. What breaks off after something was
/// measured has failed; before, it could not start.
std::pair<int, std::string> measure_all(const perf_settings& s, perf_measure& m, printer& out,
                                        signal_watch& signals) {
    bool measured = false;
    for (const auto operation : s.operations) {
        for (const auto depth : s.depths) {
            for (const auto bytes : s.sizes) {
                out.begin_run();
                auto p = m.measure(operation, bytes, depth,
                                   [&](auto count, auto done) { out.interval(count, done); });
                const auto signal = signals.received();
                if (!p) {
                    if (signal) return {128 + *signal, "ended by a signal"};
                    return {measured ? perf_not_good : perf_not_started, sentence_of(p.error())};
                }
                const auto broken_off = p->broken_off;
                measured = measured || !p->runs.empty();
                if (!p->runs.empty()) {
                    if (auto printed = out.point(std::move(*p)); !printed) {
                        return {perf_not_started, sentence_of(printed.error())};
                    }
                }
                if (signal) return {128 + *signal, "ended by a signal: this is what was done"};
                if (!broken_off.empty()) return {perf_not_good, broken_off};
            }
        }
    }
    return {0, ""};
}

int consume_perf(const perf_settings& s) {
    signal_watch signals;
    printer out(s);
    const auto not_started = [&](const failure& f) {
        const auto signal = signals.received();
        return out.end(signal ? 128 + *signal : perf_not_started, sentence_of(f));
    };
    std::optional<perf_owner_process> own;
    auto at = s.owner;
    if (!at) {
        auto started = perf_owner_process::start(s.own_at, s.pins, s.budget_bytes, signals);
        if (!started) return not_started(started.error());
        own.emplace(std::move(*started));
        at = own->address();
    }
    auto owner = perf_session::open(*at, s.wish, signals);
    if (!owner) return not_started(owner.error());
    auto m = perf_measure::begin(s, *owner, signals);
    if (!m) return not_started(m.error());
    if (auto printed = out.begin(m->consumer(), owner->greeting()); !printed) {
        return not_started(printed.error());
    }
    const auto [status, message] = measure_all(s, *m, out, signals);
    return out.end(status, message);
}

result<perf_owner_settings> read_owner(const command_line& line, const std::string& listen) {
    perf_owner_settings s;
    const auto at = parse_listen(listen, "listen", perf_port);
    const auto budget = line.bytes("budget");
    const auto idle = line.bytes("idle");
    const auto pins = read_route_pins(line);
    if (!pins) return pins.error();
    if (!at) return at.error();
    if (!budget) return budget.error();
    if (!idle) return idle.error();
    s.listen = *at;
    s.pins = *pins;
    s.most_bytes = budget->value_or(node_options{}.registered_budget_bytes);
    s.idle = std::chrono::seconds(std::min<std::uint64_t>(idle->value_or(0), 86'400));
    s.keep = line.has("keep");
    s.json = line.json();
    return s;
}

}  // namespace

int perf(const arguments& given) {
    auto line = describe();
    if (const auto over = line.parse(given)) return *over;
    auto operands = line.operands();
    if (operands == std::vector<std::string>{"memory"}) return measure_memory(line);
    const bool sweep = !operands.empty() && operands.front() == "sweep";
    if (sweep) operands.erase(operands.begin());
    if (operands.size() > 1) return line.wrong("more than one owner");
    if (const auto listen = line.text("listen")) {
        if (sweep || !operands.empty()) return line.wrong("--listen is an owner, and needs none");
        const auto s = read_owner(line, *listen);
        return s ? own_perf(*s) : line.wrong(sentence_of(s.error()));
    }
    const auto s = read_perf_settings(
        line, operands.empty() ? std::nullopt : std::optional(operands.front()), sweep);
    if (!s) return line.wrong(sentence_of(s.error()));
    return sweep ? sweep_perf(*s) : consume_perf(*s);
}

}  // namespace rvget::tools
