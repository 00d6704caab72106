#include "engine/schedules/shrink.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>

namespace rvget::test {
namespace {

/// Failures are the same when they read the same but for the numbers.
std::string kind_of(const std::string& what) {
    std::string kind;
    std::copy_if(what.begin(), what.end(), std::back_inserter(kind),
                 [](unsigned char c) { return std::isdigit(c) == 0; });
    return kind;
}

class shrinker {
public:
    shrinker(schedule s, choices order, std::chrono::milliseconds patience)
        : until_(std::chrono::steady_clock::now() + patience),
          best_{std::move(s), std::move(order), {}} {
        best_.result = replay_schedule(best_.what, best_.order);
        kind_ = kind_of(best_.result.what);
    }

    shrunk operator()() {
        for (bool progress = true; progress && !late();) {
            progress = shorten_order();
            progress |= remove_chunks(&shrinker::operations);
            progress |= remove_chunks(&shrinker::order);
            progress |= calm_order();
        }
        return std::move(best_);
    }

private:
    [[nodiscard]] bool late() const { return std::chrono::steady_clock::now() >= until_; }

    static std::vector<operation>& operations(shrunk& s) { return s.what.operations; }
    static choices& order(shrunk& s) { return s.order; }

    bool try_out(shrunk candidate) {
        candidate.result = replay_schedule(candidate.what, candidate.order);
        if (kind_of(candidate.result.what) != kind_) return false;
        best_ = std::move(candidate);
        return true;
    }

    bool shorten_order() {
        bool any = false;
        while (!best_.order.empty() && !late()) {
            auto candidate = best_;
            candidate.order.resize(candidate.order.size() / 2);
            if (!try_out(std::move(candidate))) break;
            any = true;
        }
        return any;
    }

    template <class Vector>
    bool remove_chunks(Vector& (*part)(shrunk&)) {
        bool any = false;
        for (auto chunk = std::max<std::size_t>(part(best_).size() / 2, 1); chunk != 0; chunk /= 2)
            for (std::size_t at = 0; at < part(best_).size() && !late();) {
                auto candidate = best_;
                auto& v = part(candidate);
                const auto first = v.begin() + static_cast<std::ptrdiff_t>(at);
                v.erase(first, first + static_cast<std::ptrdiff_t>(std::min(chunk, v.size() - at)));
                if (try_out(std::move(candidate)))
                    any = true;
                else
                    at += chunk;
            }
        return any;
    }

    /// Lets chunks of the order happen naturally.
    bool calm_order() {
        bool any = false;
        for (auto chunk = std::max<std::size_t>(best_.order.size() / 2, 1); chunk != 0; chunk /= 2)
            for (std::size_t at = 0; at < best_.order.size() && !late(); at += chunk) {
                auto candidate = best_;
                const auto first = candidate.order.begin() + static_cast<std::ptrdiff_t>(at);
                const auto last = first + static_cast<std::ptrdiff_t>(
                                              std::min(chunk, candidate.order.size() - at));
                if (std::all_of(first, last, [](auto c) { return c == 0; })) continue;
                std::fill(first, last, 0);
                any |= try_out(std::move(candidate));
            }
        return any;
    }

    std::chrono::steady_clock::time_point until_;
    shrunk best_;
    std::string kind_;
};

}  // namespace

shrunk shrink(schedule s, choices order, std::chrono::milliseconds patience) {
    return shrinker(std::move(s), std::move(order), patience)();
}

}  // namespace rvget::test
