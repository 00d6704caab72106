#pragma once
// Takes out of a check's report who the two hosts are. After judging, so that it changes no
// verdict. Pure.

#include <string>
#include <utility>
#include <vector>

#include "diag/check/observations.hpp"
#include "diag/report.hpp"

namespace rvget::diag {

class redaction {
public:
    /// Names, addresses and MACs in `o`, and `peer`, as who asked named the other host.
    redaction(const observations& o, const std::string& peer);
    /// Replaces them everywhere in what is shown; numbers, device names and netdevs stay.
    void apply(report& r) const;

private:
    [[nodiscard]] std::string masked(const std::string& text) const;
    void mask(boost::json::value& value) const;

    std::vector<std::pair<std::string, std::string>> replacements_;  ///< the longest first
};

}  // namespace rvget::diag
