#pragma once
// Memory keys: what a region, a window or a DEVX key lets a queue pair touch.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

namespace softmlx5 {

enum right : std::uint8_t {
    local_write = 1,
    remote_read = 2,
    remote_write = 4,
    remote_atomic = 8,
};

struct memory_key {
    std::uint32_t key = 0;  ///< index in the upper 24 bits, the variant in the low 8
    std::uint32_t domain = 0;
    std::uint8_t rights = 0;
    std::uint64_t start = 0;  ///< the first address that the key covers,
    std::uint64_t length = 0;
    std::byte* memory = nullptr;  ///< and where that is
    bool window = false;
    bool bindable = false;               ///< a region over which windows may be bound
    bool free = false;                   ///< a window that is not bound
    std::uint32_t bound_queue_pair = 0;  ///< the only one that a type-2 window works on
    std::uint32_t parent = 0;            ///< the key of the region that a window covers a part of
};

/// Who uses a key, and for what.
struct key_use {
    std::uint32_t domain = 0;
    std::uint32_t queue_pair = 0;
    std::uint8_t rights = 0;  ///< all of them are needed
    bool remote = false;
};

class key_table {
public:
    /// The reserved key that ends a list of scatter entries.
    static constexpr std::uint32_t terminator = 0x100;

    /// Adds an entry; its key is chosen here, the low byte from `variant` where given (DEVX).
    std::uint32_t add(memory_key entry, std::optional<std::uint8_t> variant = {});
    bool remove(std::uint32_t key);
    /// The entry with that index, whatever the variant; null if there is none.
    memory_key* at(std::uint32_t key) noexcept;
    /// Where `length` bytes at `address` are if `key` allows `use`, else null. Zero bytes need no
    /// valid key (C9-81) and are somewhere.
    std::byte* resolve(std::uint32_t key, std::uint64_t address, std::uint64_t length,
                       const key_use& use) noexcept;
    [[nodiscard]] std::size_t windows_over(std::uint32_t key) const noexcept;

private:
    std::unordered_map<std::uint32_t, memory_key> entries_;
    std::uint32_t next_index_ = 0x1000;
    std::uint8_t next_variant_ = 0x11;
};

}  // namespace softmlx5
