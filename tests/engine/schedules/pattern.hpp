#pragma once
// The bytes of slots: each slot has a salt of its own, so that bytes of another slot, or of the
// memory's last use, never pass for its own.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

namespace rvget::test {

class pattern {
public:
    static constexpr std::size_t largest = std::size_t{32} << 10;
    static constexpr std::uint32_t salts = 15;
    static constexpr std::uint32_t poison = 15;  ///< of memory that nobody may write

    static void fill(std::span<std::byte> memory, std::uint32_t salt) {
        std::memcpy(memory.data(), bytes(salt, 0), memory.size());
    }
    [[nodiscard]] static bool matches(std::span<const std::byte> memory, std::uint32_t salt,
                                      std::size_t offset = 0) {
        return memory.empty() ||
               std::memcmp(memory.data(), bytes(salt, offset), memory.size()) == 0;
    }

private:
    using table = std::array<std::array<std::uint8_t, largest>, salts + 1>;
    static const std::uint8_t* bytes(std::uint32_t salt, std::size_t offset) {
        static const std::unique_ptr<const table> all = [] {
            auto t = std::make_unique<table>();
            for (std::uint32_t s = 0; s <= salts; ++s)
                for (std::size_t i = 0; i < largest; ++i)
                    (*t)[s][i] = static_cast<std::uint8_t>((i * 31 + (i >> 8)) ^ (s * 0x11));
            return t;
        }();
        return (*all)[salt].data() + offset;
    }
};

}  // namespace rvget::test
