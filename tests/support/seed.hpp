#pragma once
// The random generator of a test: seeded anew each run, and told, so that a failure can be repeated
// by RVGET_TEST_SEED=<number>.

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>

namespace rvget::test {

inline std::mt19937_64 seeded_generator() {
    const char* const given = std::getenv("RVGET_TEST_SEED");
    const std::uint64_t seed = given != nullptr ? std::stoull(given) : std::random_device{}();
    std::cout << "RVGET_TEST_SEED=" << seed << '\n';
    return std::mt19937_64{seed};
}

}  // namespace rvget::test
