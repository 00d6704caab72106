#include "diag/finding.hpp"

#include <algorithm>

namespace rvget::diag {

std::string_view to_string(outcome o) noexcept {
    switch (o) {
        case outcome::pass:
            return "pass";
        case outcome::skip:
            return "skip";
        case outcome::warn:
            return "warn";
        case outcome::fail:
            return "fail";
        case outcome::error:
            break;
    }
    return "error";
}

bool selects(std::string_view word, std::string_view id) noexcept {
    return id == word ||
           (id.size() > word.size() && id.starts_with(word) && id[word.size()] == '.');
}

int exit_status_of(const std::vector<finding>& findings, bool strict, bool nagios) {
    const auto any = [&](outcome o) {
        return std::any_of(findings.begin(), findings.end(),
                           [o](const finding& f) { return f.outcome == o; });
    };
    if (any(outcome::fail)) return 2;
    // A check that broke leaves the question open, whatever the others say.
    if (any(outcome::error) || (!any(outcome::pass) && !any(outcome::warn))) return 3;
    return any(outcome::warn) && (strict || nagios) ? 1 : 0;
}

}  // namespace rvget::diag
