#pragma once
// A cheap generator of random numbers: a schedule draws thousands of them, and must draw the same
// ones again from the same seed.

#include <cstdint>

namespace rvget::test {

/// splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
class prng {
public:
    explicit prng(std::uint64_t seed) noexcept : state_(seed) {}

    std::uint64_t u64() noexcept {
        std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31);
    }
    /// 0 to `bound` - 1. Precondition: bound > 0.
    std::uint32_t below(std::uint32_t bound) noexcept {
        return static_cast<std::uint32_t>((u64() >> 32) * bound >> 32);
    }
    /// True once in `n` times.
    bool one_in(std::uint32_t n) noexcept { return below(n) == 0; }
    template <class T, std::size_t N>
    const T& of(const T (&values)[N]) noexcept {
        return values[below(N)];
    }

private:
    std::uint64_t state_;
};

}  // namespace rvget::test
