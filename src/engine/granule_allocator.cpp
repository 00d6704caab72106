#include "engine/granule_allocator.hpp"

#include <algorithm>
#include <bit>

namespace rvget::engine {

granule_allocator::size_class granule_allocator::class_of(std::uint32_t granules) noexcept {
    if (granules < classes) {
        return {0, granules};
    }
    const auto log = static_cast<std::uint32_t>(std::bit_width(granules)) - 1;
    return {log - class_bits + 1, (granules >> (log - class_bits)) & (classes - 1)};
}

std::uint32_t granule_allocator::class_ceiling(std::uint32_t granules) noexcept {
    if (granules < classes) {
        return granules;
    }
    const auto log = static_cast<std::uint32_t>(std::bit_width(granules)) - 1;
    const std::uint32_t width = std::uint32_t{1} << (log - class_bits);
    return (granules + width - 1) & ~(width - 1);
}

granule_allocator::entry& granule_allocator::at(position p) noexcept {
    ++visits_;
    return spans_[p.span].entries[p.granule];
}

const granule_allocator::entry& granule_allocator::at(position p) const noexcept {
    ++visits_;
    return spans_[p.span].entries[p.granule];
}

void granule_allocator::link(position p) noexcept {
    entry& e = at(p);
    const auto [level, index] = class_of(e.granules);
    position& head = heads_[level][index];
    e.free = 1;
    e.next_span = head.span;
    e.next_granule = head.granule;
    e.previous_span = e.previous_granule = none;
    if (head) {
        entry& next = at(head);
        next.previous_span = p.span;
        next.previous_granule = p.granule;
    }
    head = p;
    class_map_[level] |= std::uint32_t{1} << index;
    level_map_ |= std::uint32_t{1} << level;
}

void granule_allocator::unlink(position p) noexcept {
    entry& e = at(p);
    e.free = 0;
    const position next{e.next_span, e.next_granule};
    const position previous{e.previous_span, e.previous_granule};
    if (next) {
        entry& n = at(next);
        n.previous_span = previous.span;
        n.previous_granule = previous.granule;
    }
    if (previous) {
        entry& b = at(previous);
        b.next_span = next.span;
        b.next_granule = next.granule;
        return;
    }
    const auto [level, index] = class_of(e.granules);
    heads_[level][index] = next;
    if (!next) {
        class_map_[level] &= ~(std::uint32_t{1} << index);
        if (class_map_[level] == 0) {
            level_map_ &= ~(std::uint32_t{1} << level);
        }
    }
}

granule_allocator::position granule_allocator::find(std::uint32_t granules) const noexcept {
    // One look into the class of the request itself, where a piece may or may not be large enough:
    // without it a span of an odd size could never be taken whole, though all of it is free.
    const auto own = class_of(granules);
    if (const position head = heads_[own.level][own.index]; head && at(head).granules >= granules) {
        return head;
    }
    // From the class that begins at or above the request on, every piece is.
    auto [level, index] = class_of(class_ceiling(granules));
    std::uint32_t map = level < levels ? class_map_[level] & (~std::uint32_t{0} << index) : 0;
    if (map == 0 && level + 1 < levels) {
        const std::uint32_t above = level_map_ & (~std::uint32_t{0} << (level + 1));
        if (above != 0) {
            level = static_cast<std::uint32_t>(std::countr_zero(above));
            map = class_map_[level];
        }
    }
    return map != 0 ? heads_[level][static_cast<std::uint32_t>(std::countr_zero(map))] : position{};
}

granule_allocator::span_id granule_allocator::add_span(std::uint32_t granules) {
    auto entries = std::make_unique_for_overwrite<entry[]>(granules);
    auto slot =
        std::find_if(spans_.begin(), spans_.end(), [](const span& s) { return !s.entries; });
    if (slot == spans_.end()) {
        slot = spans_.insert(slot, span{});
    }
    *slot = span{std::move(entries), granules, 0};
    const position whole{static_cast<span_id>(slot - spans_.begin()), 0};
    entry& e = at(whole);
    e.granules = granules;
    e.before = none;
    link(whole);
    return whole.span;
}

void granule_allocator::remove_span(span_id id) noexcept {
    unlink({id, 0});
    spans_[id] = span{};
}

granule_allocator::piece granule_allocator::take(position p, std::uint32_t granules) noexcept {
    unlink(p);
    entry& e = at(p);
    span& s = spans_[p.span];
    if (const std::uint32_t rest = e.granules - granules; rest != 0) {
        const position cut{p.span, p.granule + granules};
        const std::uint32_t behind = p.granule + e.granules;
        e.granules = granules;
        entry& remainder = at(cut);
        remainder.granules = rest;
        remainder.before = p.granule;
        link(cut);
        if (behind < s.granules) {
            at({p.span, behind}).before = cut.granule;
        }
    }
    ++s.pieces;
    return piece{p.span, p.granule, granules};
}

std::optional<granule_allocator::piece> granule_allocator::allocate(
    std::uint32_t granules) noexcept {
    const position p = find(granules);
    return p ? std::optional(take(p, granules)) : std::nullopt;
}

std::optional<granule_allocator::piece> granule_allocator::allocate_whole(
    std::uint32_t granules) noexcept {
    const position p = find(granules);
    if (!p || at(p).granules / 2 > granules) {
        return std::nullopt;
    }
    return take(p, at(p).granules);
}

bool granule_allocator::fits(std::uint32_t granules) const noexcept {
    return static_cast<bool>(find(granules));
}

bool granule_allocator::fits_whole(std::uint32_t granules) const noexcept {
    const position p = find(granules);
    return p && at(p).granules / 2 <= granules;
}

std::uint32_t granule_allocator::release(span_id id, std::uint32_t first) noexcept {
    span& s = spans_[id];
    --s.pieces;
    position p{id, first};
    const std::uint32_t released = at(p).granules;
    std::uint32_t granules = released;
    if (const std::uint32_t behind = first + granules; behind < s.granules) {
        if (const entry& next = at({id, behind}); next.free != 0) {
            granules += next.granules;
            unlink({id, behind});
        }
    }
    if (const std::uint32_t before = at(p).before; before != none) {
        if (const entry& previous = at({id, before}); previous.free != 0) {
            granules += previous.granules;
            p.granule = before;
            unlink(p);
        }
    }
    at(p).granules = granules;
    if (const std::uint32_t behind = p.granule + granules; behind < s.granules) {
        at({id, behind}).before = p.granule;
    }
    link(p);
    return released;
}

std::uint32_t granule_allocator::largest_free() const noexcept {
    if (level_map_ == 0) {
        return 0;
    }
    const auto level = static_cast<std::uint32_t>(std::bit_width(level_map_)) - 1;
    const auto index = static_cast<std::uint32_t>(std::bit_width(class_map_[level])) - 1;
    std::uint32_t largest = 0;
    for (position p = heads_[level][index]; p;) {
        const entry& e = at(p);
        largest = std::max<std::uint32_t>(largest, e.granules);
        p = {e.next_span, e.next_granule};
    }
    return largest;
}

}  // namespace rvget::engine
