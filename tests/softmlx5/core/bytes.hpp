#pragma once
// Big-endian words in memory that a driver and the device share. Reads and writes that order other
// data go through the acquire and release forms.

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace softmlx5 {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint16_t swapped(std::uint16_t v) noexcept { return __builtin_bswap16(v); }
constexpr std::uint32_t swapped(std::uint32_t v) noexcept { return __builtin_bswap32(v); }
constexpr std::uint64_t swapped(std::uint64_t v) noexcept { return __builtin_bswap64(v); }

template <class T>
T load_be(const std::byte* from) noexcept {
    T value;
    std::memcpy(&value, from, sizeof value);
    return swapped(value);
}
inline std::uint16_t load16(const std::byte* from) noexcept { return load_be<std::uint16_t>(from); }
inline std::uint32_t load32(const std::byte* from) noexcept { return load_be<std::uint32_t>(from); }
inline std::uint64_t load64(const std::byte* from) noexcept { return load_be<std::uint64_t>(from); }

template <class T>
void store_be(std::byte* to, T value) noexcept {
    value = swapped(value);
    std::memcpy(to, &value, sizeof value);
}

/// A word of a doorbell record: the driver wrote what it stands for before it.
inline std::uint32_t load_record(std::byte* word) noexcept {
    return swapped(
        std::atomic_ref(*reinterpret_cast<std::uint32_t*>(word)).load(std::memory_order_acquire));
}

}  // namespace softmlx5
