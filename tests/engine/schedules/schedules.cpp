// The explorer: runs random schedules of whole nodes until one breaks an invariant, and then shows
// the smallest one that still does.
//
//     schedules [--seed S] [--count N]    N schedules from seed S on (RVGET_SCHEDULES, a fresh
//     seed) schedules --replay S                the one schedule of seed S, with its trace
//
// The seed of each schedule is the first one plus its number.

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include <rvget/log.hpp>

#include "engine/schedules/keep_freed_memory.hpp"
#include "engine/schedules/shrink.hpp"

namespace {

using namespace rvget::test;
using namespace std::chrono_literals;

std::uint64_t default_count() {
    if (const char* given = std::getenv("RVGET_SCHEDULES")) return std::stoull(given);
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    return 100'000;
#else
    return 5'000;
#endif
}

void print_line(const std::string& line) { std::cout << "  " << line << '\n'; }

std::chrono::milliseconds patience = 60s;

int report(const schedule& s, const choices& order, const outcome& o) {
    std::cout << "FAILED: " << o.what << "\nseed " << s.seed << "; shrinking\n" << std::flush;
    const auto small = shrink(s, order, patience);
    std::cout << "smallest schedule: " << small.what.operations.size() << " wishes, "
              << small.order.size() << " choices, " << small.result.steps << " steps\n"
              << describe(small.what);
    replay_schedule(small.what, small.order, print_line);
    std::cout << "FAILED: " << small.result.what << "\nrun again: schedules --replay " << s.seed
              << '\n';
    return 1;
}

int replay(std::uint64_t seed) {
    const auto s = make_schedule(seed);
    choices order;
    std::cout << describe(s);
    const auto o = run_schedule(s, order, print_line);
    if (o.what.empty()) {
        std::cout << "everything held in " << o.steps << " steps\n";
        return 0;
    }
    return report(s, order, o);
}

int explore(std::uint64_t first, std::uint64_t count) {
    std::cout << count << " schedules from seed " << first << '\n' << std::flush;
    const auto begun = std::chrono::steady_clock::now();
    choices order;
    std::uint64_t steps = 0;
    std::uint64_t calls = 0;
    std::uint64_t revocations = 0;
    std::uint64_t rekeyed = 0;
    std::array<std::uint64_t, 3> answers{};
    for (std::uint64_t i = 0; i < count; ++i) {
        const auto s = make_schedule(first + i);
        const auto o = run_schedule(s, order);
        if (!o.what.empty()) return report(s, order, o);
        steps += o.steps;
        calls += o.calls;
        revocations += o.revocations;
        rekeyed += o.rekeyed;
        for (std::size_t p = 0; p < answers.size(); ++p) answers[p] += o.answers[p];
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    std::cout << "all held: " << steps << " steps, " << calls << " gets (rdma " << answers[0]
              << ", inline " << answers[1] << ", chunked " << answers[2] << " with bytes), "
              << revocations << " revocations, " << rekeyed << " re-keyed, " << took.count()
              << " s, " << static_cast<double>(count) / took.count() << " schedules/s\n";
    // A run that never took a path proves nothing about it.
    return count < 1000 || (answers[0] != 0 && answers[1] != 0 && answers[2] != 0 &&
                            revocations != 0 && rekeyed != 0)
               ? 0
               : 1;
}

}  // namespace

int main(int argc, char** argv) {
    rvget::set_log_level(rvget::log_level::off);
    keep_freed_memory();
    std::uint64_t seed = (std::uint64_t{std::random_device{}()} << 16) % 1'000'000'007;
    std::uint64_t count = default_count();
    std::optional<std::uint64_t> only;
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string_view option = argv[i];
        const auto value = std::stoull(argv[i + 1]);
        if (option == "--seed") {
            seed = value;
        } else if (option == "--count") {
            count = value;
        } else if (option == "--patience") {
            patience = std::chrono::milliseconds(value);
        } else if (option == "--replay") {
            only = value;
        } else {
            std::cerr << "usage: schedules [--seed S] [--count N] [--patience T] [--replay S]\n";
            return 2;
        }
    }
    return only ? replay(*only) : explore(seed, count);
}
