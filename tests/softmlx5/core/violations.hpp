#pragma once
// What a driver did that a ConnectX would not have to forgive: each a rule's name and a sentence.

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace softmlx5 {

struct violation {
    std::string rule;  ///< "wqe.index", "uar.wrong", ...: what tests look for
    std::string text;
};

class violation_log {
public:
    /// Called for each, besides being kept; for a front that prints them.
    std::function<void(const violation&)> on_report;

    void report(std::string_view rule, std::string text) {
        all_.push_back({std::string(rule), std::move(text)});
        if (on_report) on_report(all_.back());
    }
    [[nodiscard]] const std::vector<violation>& all() const noexcept { return all_; }
    [[nodiscard]] bool has(std::string_view rule) const noexcept {
        for (const auto& v : all_) {
            if (v.rule == rule) return true;
        }
        return false;
    }
    std::vector<violation> take() { return std::exchange(all_, {}); }

private:
    std::vector<violation> all_;
};

}  // namespace softmlx5
