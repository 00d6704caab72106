#include "engine/memory.hpp"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/granule_allocator.hpp"
#include "engine/page_mapping.hpp"

namespace rvget::engine {

namespace {

constexpr std::size_t round_up(std::size_t n, std::size_t unit) noexcept {
    return (n + unit - 1) / unit * unit;
}
constexpr std::size_t round_down(std::size_t n, std::size_t unit) noexcept {
    return n / unit * unit;
}

/// What an arena's size is a multiple of: whole pages and whole granules.
std::size_t arena_unit(const pool_options& o) noexcept {
    return std::max(page_mapping::page_bytes(), o.granule_bytes);
}

}  // namespace

namespace detail {

/// Arenas of one kind and the places in them; the span id of an arena is its index.
struct arena_set {
    granule_allocator places;
    std::vector<std::shared_ptr<arena>> arenas;
};

/// Registered pages. While it lives its bytes count in the budget, also before the pages are mapped
/// and until they are unmapped.
struct arena {
    arena(std::shared_ptr<pool_state> pool, arena_set& its_set,
          byte_budget::claim its_claim) noexcept
        : home(std::move(pool)),
          set(&its_set),
          bytes(its_claim.bytes()),
          claim(std::move(its_claim)) {}
    ~arena();
    arena(const arena&) = delete;
    arena& operator=(const arena&) = delete;

    std::shared_ptr<pool_state> home;
    arena_set* set;  ///< in *home
    std::size_t bytes;
    byte_budget::claim claim;  ///< of `bytes`: goes last
    bool used_since_trim = true;
    granule_allocator::span_id span = 0;
    page_mapping mapping;
    std::unique_ptr<fabric::memory_region> region;  ///< after mapping: goes first
};

/// Outlives the pool as long as a block does. `mutex` guards everything below it and is held for
/// constant-time work only, except where growing and trimming walk the (few) arenas; no arena is
/// ever destroyed under it.
struct pool_state {
    explicit pool_state(const pool_options& o)
        : options(o),
          budget(std::min(o.budget_bytes, granule_allocator::max_granules * o.granule_bytes)),
          bounce(o.bounce_bytes) {}

    pool_options options;
    byte_budget budget;
    byte_budget bounce;
    std::shared_ptr<fabric::device> device;
    std::mutex growth;     ///< one shared arena at a time; before `returning`
    std::mutex returning;  ///< held while arenas go back to the system; before `mutex`

    std::mutex mutex;
    bool closed = false;  ///< the pool is gone
    arena_set shared;     ///< cut into blocks
    arena_set dedicated;  ///< one block each
    std::size_t arenas = 0;
    std::size_t arena_bytes = 0;
    std::size_t empty_bytes = 0;    ///< of arenas without a block
    std::size_t leaving_bytes = 0;  ///< of arenas on their way back to the system
    std::size_t used_granules = 0;
    std::size_t blocks = 0;

    [[nodiscard]] bool is_dedicated(std::size_t size) const noexcept {
        return size >= options.dedicated_bytes;
    }
    [[nodiscard]] std::uint32_t granules(std::size_t size) const noexcept {
        return static_cast<std::uint32_t>((size + options.granule_bytes - 1) /
                                          options.granule_bytes);
    }
    /// Whether growing, with every empty arena returned, would make room for `size`.
    [[nodiscard]] bool obtainable(std::size_t size) const noexcept {
        return round_up(size, arena_unit(options)) <= budget.room() + empty_bytes + leaving_bytes;
    }
    [[nodiscard]] bool fits(std::size_t size) const noexcept {
        return is_dedicated(size) ? dedicated.places.fits_whole(granules(size))
                                  : shared.places.fits(granules(size));
    }
    [[nodiscard]] std::size_t new_arena_bytes(std::size_t size, std::size_t room) const noexcept;
    void insert(const std::shared_ptr<arena>& a);
    std::shared_ptr<arena> remove(arena& a) noexcept;
    [[nodiscard]] std::vector<arena*> empty_arenas() const;
    std::vector<std::shared_ptr<arena>> remove_empty(std::size_t size);
    bool make_room(std::size_t size);
    void return_to_system(std::vector<std::shared_ptr<arena>> removed) noexcept;
    void give_back(std::shared_ptr<arena> a, const std::byte* first) noexcept;
};

arena::~arena() {
    region.reset();
    mapping = page_mapping{};
}

}  // namespace detail

namespace {

using detail::arena;
using detail::arena_set;
using detail::pool_state;

pool::refusal refuse(reason why, std::initializer_list<std::string_view> words) noexcept {
    pool::refusal r{why, {}};
    try {
        for (const std::string_view word : words) {
            r.detail += word;
        }
    } catch (const std::bad_alloc&) {
        r.detail.clear();  // the reason alone must do
    }
    return r;
}

/// What is wrong with a request whatever the state of the pool.
std::optional<pool::refusal> refuse_outright(const pool_state& s, std::size_t bytes) noexcept {
    if (!s.device) {
        return refuse(reason::not_configured, {"no RDMA device: no memory can be registered"});
    }
    if (bytes == 0) {
        return refuse(reason::zero_length, {"zero bytes need no registered memory"});
    }
    if (bytes > round_down(s.budget.limit(), arena_unit(s.options))) {
        return refuse(reason::budget, {"a block of ", std::to_string(bytes),
                                       " bytes exceeds the whole registration budget of ",
                                       std::to_string(s.budget.limit()), " bytes"});
    }
    return std::nullopt;
}

pool::refusal refuse_budget(const pool_state& s, std::size_t bytes) noexcept {
    return refuse(reason::budget,
                  {"a block of ", std::to_string(bytes),
                   " bytes does not fit: ", std::to_string(s.budget.used()),
                   " of the registration budget of ", std::to_string(s.budget.limit()),
                   " bytes are registered and in use; raise the budget or retry later"});
}

}  // namespace

namespace detail {

/// How much to register for a request of `size`: never more than there is room for in the budget,
/// never less than the request. Precondition: `room` has place for the request.
std::size_t pool_state::new_arena_bytes(std::size_t size, std::size_t room) const noexcept {
    constexpr std::size_t huge = page_mapping::huge_page_bytes;
    const std::size_t unit = arena_unit(options);
    const std::size_t least = round_up(size, unit);
    std::size_t wanted = least;
    if (!is_dedicated(size)) {
        wanted = options.first_arena_bytes;
        for (const auto& a : shared.arenas) {
            if (a && wanted < options.max_arena_bytes) {
                wanted = std::min(wanted * 2, options.max_arena_bytes);
            }
        }
        // A size class's own beginning is found whatever else lies in the lists.
        const std::size_t found =
            granule_allocator::class_ceiling(granules(size)) * options.granule_bytes;
        wanted = std::max(wanted, found);
    }
    wanted = round_up(wanted, wanted >= huge ? std::max(huge, unit) : unit);
    if (wanted <= room) {
        return wanted;
    }
    const std::size_t whole_huge = round_down(room, std::max(huge, unit));
    return std::max(least,
                    std::min(wanted, whole_huge >= least ? whole_huge : round_down(room, unit)));
}

void pool_state::insert(const std::shared_ptr<arena>& a) {
    arena_set& set = *a->set;
    set.arenas.reserve(set.arenas.size() + 1);  // so that nothing throws once the span is there
    a->span = set.places.add_span(static_cast<std::uint32_t>(a->bytes / options.granule_bytes));
    if (a->span == set.arenas.size()) {
        set.arenas.emplace_back();
    }
    ++arenas;
    arena_bytes += a->bytes;
    empty_bytes += a->bytes;
    set.arenas[a->span] = a;
}

std::shared_ptr<arena> pool_state::remove(arena& a) noexcept {
    a.set->places.remove_span(a.span);
    --arenas;
    arena_bytes -= a.bytes;
    empty_bytes -= a.bytes;
    leaving_bytes += a.bytes;
    return std::exchange(a.set->arenas[a.span], nullptr);
}

std::vector<arena*> pool_state::empty_arenas() const {
    std::vector<arena*> empty;
    for (const arena_set* set : {&shared, &dedicated}) {
        for (const auto& a : set->arenas) {
            if (a && set->places.is_free(a->span)) {
                empty.push_back(a.get());
            }
        }
    }
    std::sort(empty.begin(), empty.end(),
              [](const arena* a, const arena* b) { return a->bytes > b->bytes; });
    return empty;
}

/// Of at least `size` bytes together, if there are as many: their end makes room in the budget.
std::vector<std::shared_ptr<arena>> pool_state::remove_empty(std::size_t size) {
    const auto empty = empty_arenas();
    std::vector<std::shared_ptr<arena>> removed;
    removed.reserve(empty.size());
    std::size_t bytes = 0;
    for (auto a = empty.begin(); a != empty.end() && bytes < size; ++a) {
        bytes += (*a)->bytes;
        removed.push_back(remove(**a));
    }
    return removed;
}

/// Deregisters and unmaps. Precondition: `returning` is held and `mutex` is not, so that who needs
/// room waits for what is on its way instead of being refused.
void pool_state::return_to_system(std::vector<std::shared_ptr<arena>> removed) noexcept {
    std::size_t bytes = 0;
    for (auto& a : removed) {
        bytes += a->bytes;
        a.reset();
    }
    const std::lock_guard lock(mutex);
    leaving_bytes -= bytes;
}

/// Whether the budget has room for `size` now, after returning as many empty arenas as that takes:
/// taking it may still fail, as others take too.
bool pool_state::make_room(std::size_t size) {
    const std::lock_guard one_at_a_time(returning);
    std::vector<std::shared_ptr<arena>> removed;
    {
        const std::lock_guard lock(mutex);
        const std::size_t room = budget.room();
        if (size <= room) return true;
        if (size > room + empty_bytes) return false;
        removed = remove_empty(size - room);
    }
    return_to_system(std::move(removed));
    return true;
}

void pool_state::give_back(std::shared_ptr<arena> a, const std::byte* first) noexcept {
    const std::lock_guard lock(mutex);
    if (closed) {
        return;  // `a`, perhaps the arena's last owner, outlives the lock: it is a parameter
    }
    granule_allocator& places = a->set->places;
    const auto offset = static_cast<std::size_t>(first - a->mapping.bytes().data());
    used_granules -=
        places.release(a->span, static_cast<std::uint32_t>(offset / options.granule_bytes));
    --blocks;
    if (places.is_free(a->span)) {
        empty_bytes += a->bytes;
    }
    // The set still holds the arena. Let go before trim() can take it, or this thread, which may be
    // a reactor, would be the one to deregister it.
    a.reset();
}

}  // namespace detail

pinned_block::pinned_block(pinned_block&& other) noexcept
    : arena_(std::move(other.arena_)),
      bytes_(std::exchange(other.bytes_, {})),
      bounce_(std::move(other.bounce_)) {}

pinned_block& pinned_block::operator=(pinned_block&& other) noexcept {
    const pinned_block old(std::move(*this));
    arena_ = std::move(other.arena_);
    bytes_ = std::exchange(other.bytes_, {});
    bounce_ = std::move(other.bounce_);
    return *this;
}

pinned_block::~pinned_block() {
    if (arena_) {
        const std::shared_ptr<pool_state> home = arena_->home;
        home->give_back(std::move(arena_), bytes_.data());
    }
}

std::uint32_t pinned_block::local_key() const noexcept { return arena_->region->local_key(); }
std::uint32_t pinned_block::remote_key() const noexcept { return arena_->region->remote_key(); }
const fabric::memory_region& pinned_block::region() const noexcept { return *arena_->region; }

pool::pool(std::shared_ptr<fabric::device> device, const pool_options& options)
    : state_(std::make_shared<pool_state>(options)) {
    if (!std::has_single_bit(options.granule_bytes) || options.first_arena_bytes == 0 ||
        options.dedicated_bytes == 0) {
        throw std::invalid_argument(
            "pool_options: granule_bytes must be a power of two, first_arena_bytes and "
            "dedicated_bytes must not be 0");
    }
    state_->device = std::move(device);
}

pool::~pool() {
    std::vector<std::shared_ptr<arena>> shared;
    std::vector<std::shared_ptr<arena>> dedicated;
    const std::lock_guard lock(state_->mutex);
    state_->closed = true;
    shared.swap(state_->shared.arenas);
    dedicated.swap(state_->dedicated.arenas);
}

boost::system::result<pinned_block, pool::refusal> pool::allocate(std::size_t bytes,
                                                                  block_use use) {
    pool_state& s = *state_;
    if (auto refused = refuse_outright(s, bytes)) {
        return std::move(*refused);
    }
    std::optional<byte_budget::claim> bounce(std::in_place);
    if (use == block_use::bounce && !(bounce = s.bounce.take(bytes))) {
        return refuse(reason::budget,
                      {"a block of ", std::to_string(bytes), " bytes does not fit: ",
                       std::to_string(s.bounce.used()), " of ", std::to_string(s.bounce.limit()),
                       " bytes of bounce memory are in use; raise bounce_budget_bytes"});
    }
    const std::uint32_t granules = s.granules(bytes);
    const std::lock_guard lock(s.mutex);
    const bool dedicated = s.is_dedicated(bytes);
    arena_set& set = dedicated ? s.dedicated : s.shared;
    const auto piece =
        dedicated ? set.places.allocate_whole(granules) : set.places.allocate(granules);
    if (!piece) {
        if (!s.obtainable(bytes)) {
            return refuse_budget(s, bytes);
        }
        return refuse(reason::pool_exhausted,
                      {"no free block of ", std::to_string(bytes), " bytes in ",
                       std::to_string(s.arena_bytes), " registered bytes"});
    }
    pinned_block block;
    block.arena_ = set.arenas[piece->span];
    block.arena_->used_since_trim = true;
    block.bounce_ = std::move(*bounce);
    block.bytes_ = block.arena_->mapping.bytes().subspan(
        std::size_t{piece->first} * s.options.granule_bytes, bytes);
    if (set.places.pieces(piece->span) == 1) {
        s.empty_bytes -= block.arena_->bytes;
    }
    s.used_granules += piece->granules;
    ++s.blocks;
    return block;
}

boost::system::result<void, pool::refusal> pool::grow_for(std::size_t bytes) {
    pool_state& s = *state_;
    if (auto refused = refuse_outright(s, bytes)) {
        return std::move(*refused);
    }
    try {
        std::unique_lock growth(s.growth, std::defer_lock);
        const bool dedicated = s.is_dedicated(bytes);
        if (!dedicated) {
            growth.lock();  // two small requests need one arena, two large ones need two
        }
        const std::size_t least = round_up(bytes, arena_unit(s.options));
        std::shared_ptr<arena> made;
        while (!made) {
            {
                const std::lock_guard lock(s.mutex);
                if (s.fits(bytes)) {
                    return {};
                }
                const std::size_t room = s.budget.room();
                if (least <= room) {
                    if (auto claim = s.budget.take(s.new_arena_bytes(bytes, room))) {
                        made = std::make_shared<arena>(state_, dedicated ? s.dedicated : s.shared,
                                                       std::move(*claim));
                    }
                    continue;  // where a region took the room meanwhile: once more
                }
            }
            if (!s.make_room(least)) {
                return refuse_budget(s, bytes);
            }
        }
        auto mapping = page_mapping::map(made->bytes);
        if (!mapping) {
            return refuse(reason::registration, {mapping.error().message()});
        }
        made->mapping = std::move(*mapping);
        auto region = s.device->register_memory(made->mapping.bytes(), s.options.rights);
        if (!region) {
            return refuse(reason::registration, {region.error().message()});
        }
        made->region = std::move(*region);
        const std::lock_guard lock(s.mutex);
        s.insert(made);
        return {};
    } catch (const std::bad_alloc&) {
        return refuse(reason::registration, {"plain memory is out"});
    }
}

boost::system::result<pinned_block, pool::refusal> pool::obtain(std::size_t bytes) {
    for (;;) {
        auto block = allocate(bytes);
        if (block || block.error().why != reason::pool_exhausted) return block;
        if (auto grown = grow_for(bytes); !grown) return grown.error();
    }
}

boost::system::result<byte_budget::claim, pool::refusal> pool::claim(
    std::span<const std::byte> memory) {
    pool_state& s = *state_;
    const auto page = page_mapping::page_bytes();
    const auto first = reinterpret_cast<std::uintptr_t>(memory.data());
    const auto bytes = round_up(first + memory.size(), page) - round_down(first, page);
    try {
        do {
            if (auto claimed = s.budget.take(bytes)) {
                return std::move(*claimed);
            }
        } while (s.make_room(bytes));
    } catch (const std::bad_alloc&) {
        return refuse(reason::registration, {"plain memory is out"});
    }
    return refuse_budget(s, bytes);
}

pool::statistics pool::stats() const {
    pool_state& s = *state_;
    const std::lock_guard lock(s.mutex);
    return {.registered_bytes = s.budget.used(),
            .used_bytes = s.used_granules * s.options.granule_bytes,
            .largest_free =
                s.options.granule_bytes * std::max<std::size_t>(s.shared.places.largest_free(),
                                                                s.dedicated.places.largest_free()),
            .arenas = s.arenas,
            .blocks = s.blocks};
}

std::size_t pool::trim(std::size_t warm_floor_bytes) {
    pool_state& s = *state_;
    const std::lock_guard one_at_a_time(s.returning);
    std::vector<std::shared_ptr<arena>> returned;
    std::size_t bytes = 0;
    {
        const std::lock_guard lock(s.mutex);
        std::size_t left = s.arena_bytes;
        const auto empty = s.empty_arenas();
        returned.reserve(empty.size());
        for (arena* a : empty) {
            if (!std::exchange(a->used_since_trim, false) && left - a->bytes >= warm_floor_bytes) {
                left -= a->bytes;
                bytes += a->bytes;
                returned.push_back(s.remove(*a));
            }
        }
    }
    s.return_to_system(std::move(returned));
    return bytes;
}

}  // namespace rvget::engine
