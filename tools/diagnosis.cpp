#include "diagnosis.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <thread>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <boost/json/serialize.hpp>

#include "console.hpp"
#include "fabric/inventory/collect.hpp"
#include "signal_watch.hpp"

namespace rvget::tools {

exit_convention diagnostic_exits() noexcept {
    return {static_cast<int>(exit_status::diagnostic_usage),
            "Exit status:\n"
            "  0  nothing failed\n"
            "  1  warnings, with --strict or --nagios\n"
            "  2  something failed\n"
            "  3  could not judge: no permission, no answer, out of time, all skipped\n"
            "  64  usage\n"
            "  129, 130, 143  ended by SIGHUP, SIGINT, SIGTERM\n"};
}

void add_report_options(command_line& line) {
    line.add("only", "IDS", "judge only these findings: ids or groups (net,gid.v2)");
    line.add("skip", "IDS", "leave these findings out");
    line.add("explain", "ID", "tell about a finding: where it comes from, when it fails");
    line.add("strict", nullptr, "warnings give exit status 1");
    line.add("nagios", nullptr, "one line for a monitoring system; warnings give exit status 1");
    line.add("baseline", "FILE", "only what differs from this report (made with --json)");
    line.add("timeout", "MS", "end after this long, with what there is");
}

void add_facts_options(command_line& line) {
    line.add("facts", "FILE", "use facts recorded with `rvget doctor --save`");
    line.add("sysroot", "DIR", "use the files below DIR/sys, DIR/proc and DIR/dev");
    line.add("redact", nullptr, "mask addresses, GUIDs, MACs and the host's name");
}

namespace {

/// Those of a run, whatever it judges.
constexpr std::array<std::string_view, 4> run_ids{"run.baseline", "run.failed", "run.interrupted",
                                                  "run.timeout"};

std::string_view group_of(std::string_view id) { return id.substr(0, id.find('.')); }

/// A word that selects nothing would pass for "nothing is wrong": --only would show nothing, --skip
/// would leave out nothing.
result<void> know_words(const command_line& line, const char* option, const report_kind& kind) {
    if (!line.has(option)) return {};
    std::set<std::string_view> ids(kind.ids.begin(), kind.ids.end());
    ids.insert(run_ids.begin(), run_ids.end());
    auto words = line.texts(option);
    if (words.empty()) words.emplace_back();
    for (const auto& word : words) {
        if (std::ranges::any_of(ids, [&](auto id) { return diag::selects(word, id); })) continue;
        const auto group = group_of(word);
        const bool known = std::ranges::any_of(ids, [&](auto id) { return group_of(id) == group; });
        std::set<std::string_view> choice;
        for (const auto id : ids) {
            if (!known) choice.insert(group_of(id));
            if (known && group_of(id) == group) choice.insert(id);
        }
        std::string list;
        for (const auto one : choice) list.append(list.empty() ? "" : ", ").append(one);
        auto what = std::string("--").append(option).append(" '").append(word);
        what.append("' is no finding of ").append(kind.tool);
        what.append(known ? "'s; there are " : "'s; its groups are ").append(list);
        return failure{request_errc::invalid_argument, std::move(what)};
    }
    return {};
}

/// Of what a finding is told apart by, one for one.
bool is_finding(const boost::json::value& value) {
    const auto* object = value.if_object();
    return object != nullptr &&
           std::ranges::all_of(std::array{"id", "subject", "outcome"}, [&](const char* key) {
               const auto* part = object->if_contains(key);
               return part != nullptr && part->is_string();
           });
}

/// A report of the same command's; from anything else nothing could be subtracted.
result<boost::json::value> read_baseline(const std::string& file, const std::string& tool) {
    auto value = diag::read_json(file);
    if (!value) return failure{value.error().code, "--baseline: " + sentence_of(value.error())};
    const auto schema = "rvget." + tool + "/1";
    const auto* report = value->if_object();
    const auto* told = report == nullptr ? nullptr : report->if_contains("schema");
    const auto* list = report == nullptr ? nullptr : report->if_contains("findings");
    if (told != nullptr && *told == boost::json::value(schema) && list != nullptr &&
        list->is_array() && std::ranges::all_of(list->get_array(), is_finding)) {
        return value;
    }
    return failure{request_errc::invalid_argument,
                   "--baseline: " + file + " is no report of schema " + schema +
                       "; make one with 'rvget " + tool + " --json'"};
}

}  // namespace

result<diagnosis_settings> read_report_options(const command_line& line, const report_kind& kind) {
    diagnosis_settings s;
    const auto limit = line.milliseconds("timeout");
    if (!limit) return limit.error();
    s.timeout = limit->value_or(kind.timeout);
    for (const auto* option : {"only", "skip"}) {
        if (auto known = know_words(line, option, kind); !known) return known.error();
    }
    if (const auto file = line.text("baseline")) {
        auto value = read_baseline(*file, kind.tool);
        if (!value) return value.error();
        s.baseline = std::move(*value);
    }
    s.shown = {.only = line.texts("only"),
               .skip = line.texts("skip"),
               .strict = line.has("strict"),
               .nagios = line.has("nagios"),
               .verbose = line.has("verbose")};
    s.json = line.json();
    s.redact = line.has("redact");
    return s;
}

bool wants_recorded(const command_line& line) { return line.has("facts") || line.has("sysroot"); }

result<diag::inventory::facts> collect_facts(const command_line& line) {
    namespace inventory = diag::inventory;
    result<inventory::facts> facts = inventory::facts{};
    if (const auto file = line.text("facts")) {
        auto value = diag::read_json(*file);
        if (!value) return value.error();
        facts = diag::facts_from(*value);
        if (!facts) return facts;
    } else {
        facts = inventory::from_files(line.text("sysroot").value_or("/"));
        if (!wants_recorded(line)) inventory::add_live(*facts);
    }
    return facts;
}

void progress::publish(diag::report now) {
    const std::lock_guard lock(mutex_);
    report_ = std::move(now);
}

diag::report progress::latest() const {
    const std::lock_guard lock(mutex_);
    return report_;
}

void progress::doing(std::string step) {
    const std::lock_guard lock(mutex_);
    step_ = std::move(step);
}

std::string progress::step() const {
    const std::lock_guard lock(mutex_);
    return step_;
}

namespace {

/// What the working thread and the waiting one share.
struct shared_work {
    explicit shared_work(diag::report first) : so_far(std::move(first)) {}
    progress so_far;
    std::optional<result<diag::report>> done;  ///< written before `event` is
    int event = ::eventfd(0, EFD_CLOEXEC);
};

int print(const diagnosis_settings& s, diag::report r, std::optional<int> forced) {
    if (!forced) r.select(s.shown);
    if (s.baseline) r.subtract(*s.baseline);
    const int exit = forced.value_or(r.exit_status(s.shown));
    const auto text = s.json           ? boost::json::serialize(r.to_json(exit))
                      : s.shown.nagios ? r.to_nagios(exit)
                                       : r.to_text(s.shown);
    const auto printed = print_line(stdout, text);
    return printed ? exit : report_error(static_cast<exit_status>(3), sentence_of(printed.error()));
}

diag::finding broken(const char* id, std::string message) {
    return {.id = id,
            .outcome = diag::outcome::error,
            .subject = "host",
            .message = std::move(message)};
}

}  // namespace

int run_diagnosis(const diagnosis_settings& settings, diag::report first,
                  const std::function<result<diag::report>(progress&)>& work) {
    signal_watch signals;
    shared_work shared(std::move(first));
    std::thread worker([&shared, &work] {
        try {
            shared.done = work(shared.so_far);
        } catch (const std::exception& e) {
            shared.done = failure{node_errc::internal, e.what()};
        }
        static_cast<void>(::eventfd_write(shared.event, 1));
    });

    const auto until = std::chrono::steady_clock::now() + settings.timeout;
    for (;;) {
        std::array<pollfd, 2> set{{{shared.event, POLLIN, 0}, {signals.descriptor(), POLLIN, 0}}};
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
            until - std::chrono::steady_clock::now());
        ::poll(set.data(), set.size(), static_cast<int>(std::max<long>(0, left.count())));
        if ((set[0].revents & POLLIN) != 0) break;
        const auto signal = signals.received();
        if (!signal && std::chrono::steady_clock::now() < until) continue;
        auto partial = shared.so_far.latest();
        const auto step = shared.so_far.step();
        const auto during = step.empty() ? "" : " while " + step;
        partial.findings.push_back(
            signal
                ? broken("run.interrupted", "ended by signal " + std::to_string(*signal) + during)
                : broken("run.timeout",
                         "not done after " + std::to_string(settings.timeout.count()) + " ms," +
                             (during.empty() ? "" : during + ";") + " see --timeout"));
        const int exit = print(settings, std::move(partial), signal ? 128 + *signal : 3);
        std::_Exit(exit);  // the thread may never return: no destructor may wait for it
    }
    // The event says that the work is done; only the end of its thread gives its writes to this
    // one.
    worker.join();
    ::close(shared.event);
    if (*shared.done) return print(settings, std::move(**shared.done), std::nullopt);
    auto partial = shared.so_far.latest();
    partial.findings.push_back(broken("run.failed", sentence_of(shared.done->error())));
    return print(settings, std::move(partial), 3);
}

}  // namespace rvget::tools
