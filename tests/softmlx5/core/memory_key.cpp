#include "softmlx5/core/memory_key.hpp"

namespace softmlx5 {

std::uint32_t key_table::add(memory_key entry, std::optional<std::uint8_t> variant) {
    const auto index = next_index_++ & 0xffffff;
    // A different low byte each time, so that a key kept too long is noticed.
    entry.key = index << 8 | variant.value_or(next_variant_);
    if (!variant) next_variant_ = static_cast<std::uint8_t>(next_variant_ + 0x11);
    entries_[index] = entry;
    return entry.key;
}

bool key_table::remove(std::uint32_t key) { return entries_.erase(key >> 8) > 0; }

memory_key* key_table::at(std::uint32_t key) noexcept {
    const auto found = entries_.find(key >> 8);
    return found == entries_.end() ? nullptr : &found->second;
}

std::byte* key_table::resolve(std::uint32_t key, std::uint64_t address, std::uint64_t length,
                              const key_use& use) noexcept {
    static std::byte nowhere;
    if (length == 0) return &nowhere;
    const auto* entry = at(key);
    if (entry == nullptr || entry->key != key || entry->free || entry->domain != use.domain) {
        return nullptr;
    }
    if (entry->window && (!use.remote || entry->bound_queue_pair != use.queue_pair)) return nullptr;
    if ((entry->rights & use.rights) != use.rights) return nullptr;
    if (address < entry->start || length > entry->length ||
        address - entry->start > entry->length - length) {
        return nullptr;
    }
    return entry->memory + (address - entry->start);
}

std::size_t key_table::windows_over(std::uint32_t key) const noexcept {
    std::size_t count = 0;
    for (const auto& [index, entry] : entries_) {
        count += entry.window && !entry.free && entry.parent == key ? 1 : 0;
    }
    return count;
}

}  // namespace softmlx5
