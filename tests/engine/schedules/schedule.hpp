#pragma once
// One schedule: a world, what its users wish, and the order in which things happen, all of it from
// one seed; how it runs, and what must hold while it runs and when it has come to rest.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/schedules/workload.hpp"
#include "engine/schedules/world.hpp"

namespace rvget::test {

struct schedule {
    std::uint64_t seed = 0;
    world_options options;
    step_weights weights{};
    std::vector<operation> operations;
    /// Steps that are picked at random; what comes after happens in its natural order.
    std::size_t random_steps = 0;
};

[[nodiscard]] schedule make_schedule(std::uint64_t seed);
/// The settings for people.
[[nodiscard]] std::string describe(const schedule& s);

/// Where the order comes from: 0 means the first step there is, other numbers pick by weight.
using choices = std::vector<std::uint32_t>;

struct outcome {
    std::string what;  ///< empty: everything held
    std::size_t steps = 0;
    std::size_t calls = 0;
    std::array<std::size_t, 3> answers{};  ///< good ones, by path
    std::uint64_t revocations = 0;
    std::uint64_t rekeyed = 0;
};

using trace_line = std::function<void(const std::string&)>;

/// Runs `s` with the order of its seed; what was chosen goes to `made`.
outcome run_schedule(const schedule& s, choices& made, const trace_line& trace = {});
/// Runs `s` with this order; where it ends, what comes after happens in its natural order.
outcome replay_schedule(const schedule& s, const choices& order, const trace_line& trace = {});

}  // namespace rvget::test
