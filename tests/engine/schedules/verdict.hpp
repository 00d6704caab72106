#pragma once
// The first invariant that did not hold.

#include <string>
#include <utility>

namespace rvget::test {

class verdict {
public:
    void fail(std::string what) {
        if (what_.empty()) what_ = std::move(what);
    }
    [[nodiscard]] bool failed() const noexcept { return !what_.empty(); }
    [[nodiscard]] const std::string& what() const noexcept { return what_; }

private:
    std::string what_;
};

}  // namespace rvget::test
