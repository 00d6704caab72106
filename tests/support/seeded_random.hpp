#pragma once
// Random values for property tests, repeatable: the seed is printed, and RVGET_TEST_SEED sets it.

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <string_view>

namespace rvget::test {

class seeded_random {
public:
    explicit seeded_random(std::string_view user) : engine_(seed()) {
        std::cout << user << ": RVGET_TEST_SEED=" << seed() << std::endl;
    }

    std::uint64_t u64() { return engine_(); }
    /// 0 to `bound` - 1. Precondition: bound > 0.
    std::uint64_t below(std::uint64_t bound) { return engine_() % bound; }
    bool coin() { return (engine_() & 1) != 0; }
    /// Random, with the values at the edges of the type far more often than chance gives them.
    template <class T>
    T number() {
        switch (below(8)) {
            case 0:
                return 0;
            case 1:
                return 1;
            case 2:
                return static_cast<T>(~T{0});
            default:
                return static_cast<T>(engine_() >> below(sizeof(T) * 8));
        }
    }

private:
    static std::uint64_t seed() {
        static const std::uint64_t value = [] {
            const char* given = std::getenv("RVGET_TEST_SEED");
            return given != nullptr ? std::stoull(given) : std::uint64_t{std::random_device{}()};
        }();
        return value;
    }
    std::mt19937_64 engine_;
};

}  // namespace rvget::test
