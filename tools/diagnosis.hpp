#pragma once
// What doctor, check and list share: their options, and an end in time that always says something.

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "command_line.hpp"
#include "diag/facts_file.hpp"
#include "diag/report.hpp"

namespace rvget::tools {

/// 0 to 3 and 64, as monitoring systems want it; for --help.
exit_convention diagnostic_exits() noexcept;

/// --only, --skip, --strict, --nagios, --baseline, --timeout, --explain.
void add_report_options(command_line& line);
/// --facts, --sysroot, --redact.
void add_facts_options(command_line& line);

struct diagnosis_settings {
    diag::report_options shown;
    std::optional<boost::json::value> baseline;
    std::chrono::milliseconds timeout{0};
    bool json = false;
    bool redact = false;
};
/// What read_report_options() must know of a command.
struct report_kind {
    std::string tool;                   ///< "doctor": a baseline's schema is "rvget.doctor/1"
    std::vector<std::string_view> ids;  ///< of its findings, without those of the run itself
    std::chrono::milliseconds timeout;  ///< where --timeout does not say
};
result<diagnosis_settings> read_report_options(const command_line& line, const report_kind& kind);

/// The facts that the options ask for, not redacted yet: recorded ones, or this machine's.
result<diag::inventory::facts> collect_facts(const command_line& line);
[[nodiscard]] bool wants_recorded(const command_line& line);

/// What the work has found so far, for the case that it does not come to its end.
class progress {
public:
    explicit progress(diag::report first) : report_(std::move(first)) {}
    void publish(diag::report now);
    [[nodiscard]] diag::report latest() const;
    /// What is being done, and with whom: "reading the devices of HOST". Told where it never ends.
    void doing(std::string step);
    [[nodiscard]] std::string step() const;

private:
    mutable std::mutex mutex_;
    diag::report report_;
    std::string step_;
};

/// Runs `work` on a thread of its own until it is done, a signal comes or the time is up; prints
/// the report, whole or what there is of it; returns the exit status. After a signal or the time
/// limit the process must end: `work` may hang in the kernel.
int run_diagnosis(const diagnosis_settings& settings, diag::report first,
                  const std::function<result<diag::report>(progress&)>& work);

}  // namespace rvget::tools
