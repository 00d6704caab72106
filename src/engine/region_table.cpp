#include "engine/region_table.hpp"

#include <utility>

namespace rvget::engine {
namespace {

std::uintptr_t address_of(const std::byte* p) { return reinterpret_cast<std::uintptr_t>(p); }

}  // namespace

void region_table::add(region r) {
    const std::lock_guard lock(mutex_);
    const auto first = address_of(r->bytes().data());
    regions_[first] = std::move(r);
}

void region_table::remove(const fabric::memory_region& r) {
    region last;  // deregistered after the lock, if this was the last reference
    const std::lock_guard lock(mutex_);
    const auto it = regions_.find(address_of(r.bytes().data()));
    if (it != regions_.end() && it->second.get() == &r) {
        last = std::move(it->second);
        regions_.erase(it);
    }
}

region_table::region region_table::find(std::span<const std::byte> bytes) const {
    const std::lock_guard lock(mutex_);
    auto it = regions_.upper_bound(address_of(bytes.data()));
    if (it == regions_.begin()) return nullptr;
    --it;
    const auto whole = it->second->bytes();
    const auto skip = address_of(bytes.data()) - it->first;
    if (skip > whole.size() || bytes.size() > whole.size() - skip) return nullptr;
    return it->second;
}

std::size_t region_table::size() const {
    const std::lock_guard lock(mutex_);
    return regions_.size();
}

bool region_table::take(std::span<const std::byte> destination) {
    if (destination.empty()) return true;
    const std::lock_guard lock(mutex_);
    if (overlaps_taken(destination)) return false;
    taken_.emplace(address_of(destination.data()), destination.size());
    return true;
}

bool region_table::is_taken(std::span<const std::byte> bytes) const {
    if (bytes.empty()) return false;
    const std::lock_guard lock(mutex_);
    return overlaps_taken(bytes);
}

bool region_table::overlaps_taken(std::span<const std::byte> bytes) const {
    const auto first = address_of(bytes.data());
    const auto next = taken_.lower_bound(first);
    if (next != taken_.end() && next->first < first + bytes.size()) return true;
    if (next == taken_.begin()) return false;
    const auto before = std::prev(next);
    return before->first + before->second > first;
}

void region_table::give_back(std::span<const std::byte> destination) {
    if (destination.empty()) return;
    const std::lock_guard lock(mutex_);
    taken_.erase(address_of(destination.data()));
}

}  // namespace rvget::engine
