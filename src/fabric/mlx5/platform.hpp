#pragma once
// Stores that a device watches, and the barriers between them. A policy, so that tests can put a
// recorder in its place.
//
// Order of a post: the request, A, the doorbell record, B, the register, C. Of a poll: the owner
// bit, D, the rest of the entry and the payload; E, the consumer index.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rvget::fabric::mlx5 {

struct hardware {
#if defined(__x86_64__)
    // Stores to ordinary memory are seen in order; those to write-combining memory are not, and
    // only sfence orders them with the others.
    static void before_record() noexcept { compiler_barrier(); }
    static void before_register() noexcept { asm volatile("sfence" ::: "memory"); }
    static void after_register() noexcept { asm volatile("sfence" ::: "memory"); }
    static void after_owner() noexcept { compiler_barrier(); }
    static void before_consumer() noexcept { compiler_barrier(); }
#elif defined(__aarch64__)
    // The outer shareable domain contains the device.
    static void before_record() noexcept { asm volatile("dmb oshst" ::: "memory"); }
    static void before_register() noexcept { asm volatile("dmb oshst" ::: "memory"); }
    static void after_register() noexcept { asm volatile("dmb oshst" ::: "memory"); }
    static void after_owner() noexcept { asm volatile("dmb oshld" ::: "memory"); }
    static void before_consumer() noexcept { asm volatile("dmb ish" ::: "memory"); }
#else
#error "the direct mlx5 path knows the barriers of x86-64 and aarch64 only"
#endif

    /// One store, never torn or repeated. `value` is big-endian already.
    static void store_record(std::uint32_t* word, std::uint32_t value) noexcept {
        std::atomic_ref(*word).store(value, std::memory_order_relaxed);
    }
    static void store_register(std::byte* at, std::uint64_t value) noexcept {
        std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at))
            .store(value, std::memory_order_relaxed);
    }
    static std::uint8_t load_owner(const std::byte* at) noexcept {
        auto* byte = const_cast<std::uint8_t*>(reinterpret_cast<const std::uint8_t*>(at));
        return std::atomic_ref(*byte).load(std::memory_order_relaxed);
    }

private:
    static void compiler_barrier() noexcept { asm volatile("" ::: "memory"); }
};

}  // namespace rvget::fabric::mlx5
