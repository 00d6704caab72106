#pragma once
// What a diagnostic command found, as text and as JSON; the same for doctor, check and list.

#include <string>
#include <vector>

#include <boost/json/object.hpp>

#include "diag/finding.hpp"

namespace rvget::diag {

/// Which findings to show and how to count them.
struct report_options {
    std::vector<std::string> only;  ///< ids or groups; empty: all
    std::vector<std::string> skip;
    bool strict = false;
    bool nagios = false;
    bool verbose = false;
};

struct report {
    std::string tool;  ///< "doctor": the schema is "rvget.doctor/1"
    std::string host;
    boost::json::object facts;       ///< shown first
    std::vector<std::string> lines;  ///< the same for people
    std::vector<finding> findings;

    void select(const report_options& options);
    /// Drops what an earlier report of the same tool had found just so.
    void subtract(const boost::json::value& baseline);
    [[nodiscard]] int exit_status(const report_options& options) const;
    [[nodiscard]] boost::json::object to_json(int exit) const;
    [[nodiscard]] std::string to_text(const report_options& options) const;
    /// One line for a monitoring system.
    [[nodiscard]] std::string to_nagios(int exit) const;
};

}  // namespace rvget::diag
