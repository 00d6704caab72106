// Plants each bug of engine/planted.hpp in turn and runs random schedules until one notices. Built
// with engine objects of its own; the library has no such switch.
//
//     planted_bugs [--seed S] [--count N]    at most N schedules (10000) for each bug
//     planted_bugs --bug K --replay S        one schedule with one bug, and its trace

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include <rvget/log.hpp>

#include "engine/planted.hpp"
#include "engine/schedules/keep_freed_memory.hpp"
#include "engine/schedules/shrink.hpp"

#if !defined(RVGET_PLANTED_BUGS)
#error "this program needs engine objects built with RVGET_PLANTED_BUGS"
#endif

#if defined(__SANITIZE_ADDRESS__)
/// A world in which a bug struck is left where it stands.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }
#endif

namespace {

using namespace rvget::test;
using rvget::engine::bug;

/// The number of the first schedule that fails, from 1; 0 where none of `count` does.
std::uint64_t find(std::uint64_t seed, std::uint64_t count, std::string& what) {
    choices order;
    for (std::uint64_t i = 0; i < count; ++i) {
        what = run_schedule(make_schedule(seed + i), order).what;
        if (!what.empty()) return i + 1;
    }
    return 0;
}

int replay(bug b, std::uint64_t seed) {
    rvget::engine::active_bug = b;
    const auto print = [](const std::string& line) { std::cout << "  " << line << '\n'; };
    const auto s = make_schedule(seed);
    choices order;
    const auto o = run_schedule(s, order);
    if (!o.what.empty()) {
        const auto small = shrink(s, order, std::chrono::seconds(30));
        std::cout << describe(small.what);
        replay_schedule(small.what, small.order, print);
    }
    std::cout << (o.what.empty() ? "everything held" : o.what) << '\n';
    return 0;
}

int find_all(std::uint64_t seed, std::uint64_t count) {
    std::cout << "seed " << seed << '\n';
    unsigned wrong = 0;
    for (int b = 0; b <= static_cast<int>(rvget::engine::last_bug); ++b) {
        rvget::engine::active_bug = static_cast<bug>(b);
        std::string what;
        const auto found = find(seed, b == 0 ? std::min<std::uint64_t>(count, 2000) : count, what);
        const bool right = (found != 0) == (b != 0);
        if (!right) ++wrong;
        std::cout << (right ? "" : "WRONG: ") << "bug " << b;
        if (found != 0)
            std::cout << ": found by schedule " << found << ": " << what << '\n';
        else
            std::cout << (b == 0 ? " (none): nothing found\n" : ": not found\n");
        std::cout << std::flush;
    }
    return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    rvget::set_log_level(rvget::log_level::off);
    keep_freed_memory();
    std::uint64_t seed = 1;  // the same in every run: how soon a bug is found is a matter of luck
    std::uint64_t count = 10'000;
    bug planted = bug::none;
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string_view option = argv[i];
        const auto value = std::stoull(argv[i + 1]);
        if (option == "--seed")
            seed = value;
        else if (option == "--count")
            count = value;
        else if (option == "--bug")
            planted = static_cast<bug>(value);
        else if (option == "--replay")
            return replay(planted, value);
    }
    return find_all(seed, count);
}
