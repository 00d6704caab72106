#pragma once
// Places pieces of whole granules in spans of granules, in constant time: two-level segregated fit
// (Masmano et al., "TLSF: a new dynamic memory allocator for real-time systems", 2004). It deals in
// numbers only: what it knows about a granule lies in its own tables, never in the granule, because
// a NIC may write there.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace rvget::engine {

/// Free pieces are listed by size class: sizes below 32 granules exactly, larger ones in 32 classes
/// per power of two. Freeing joins a piece with its free neighbours. Not thread safe.
class granule_allocator {
public:
    using span_id = std::uint32_t;
    struct piece {
        span_id span = 0;
        std::uint32_t first = 0;     ///< granule, counted from the start of the span
        std::uint32_t granules = 0;  ///< as asked for, or the whole span
    };
    static constexpr std::uint32_t max_granules = (std::uint32_t{1} << 31) - 1;  ///< in a span

    /// Adds a free span of 1 to max_granules granules. Throws std::bad_alloc, and is then
    /// unchanged.
    span_id add_span(std::uint32_t granules);
    /// Forgets a span. Precondition: is_free(id).
    void remove_span(span_id id) noexcept;
    /// How many pieces of a span are on loan.
    [[nodiscard]] std::uint32_t pieces(span_id id) const noexcept { return spans_[id].pieces; }
    [[nodiscard]] bool is_free(span_id id) const noexcept { return pieces(id) == 0; }

    /// Cuts a piece of exactly `granules` (at least 1), or nothing if none is found: a free piece
    /// in the size class of the request itself may be overlooked unless it is first in its list,
    /// which costs at most 1/32 of its size. A request of class_ceiling() size overlooks none.
    std::optional<piece> allocate(std::uint32_t granules) noexcept;
    /// A whole free span of at least `granules` and at most twice that. Meant for an allocator of
    /// which spans are never cut.
    std::optional<piece> allocate_whole(std::uint32_t granules) noexcept;
    /// Gives a piece back by its first granule; returns how many granules it had.
    std::uint32_t release(span_id id, std::uint32_t first) noexcept;

    /// Whether the next allocate() or allocate_whole() of this size would succeed.
    [[nodiscard]] bool fits(std::uint32_t granules) const noexcept;
    [[nodiscard]] bool fits_whole(std::uint32_t granules) const noexcept;
    /// The smallest size not below `granules` at which a size class begins.
    [[nodiscard]] static std::uint32_t class_ceiling(std::uint32_t granules) noexcept;
    /// Walks the list of the largest class: for statistics, not for the hot path.
    [[nodiscard]] std::uint32_t largest_free() const noexcept;
    /// Table entries visited since construction. Every visit counts, so a test can prove that the
    /// work per call does not grow with the number of pieces.
    [[nodiscard]] std::uint64_t visits() const noexcept { return visits_; }

private:
    static constexpr std::uint32_t class_bits = 5;
    static constexpr std::uint32_t classes = std::uint32_t{1} << class_bits;
    static constexpr std::uint32_t levels = 31 - class_bits + 1;
    static constexpr std::uint32_t none = ~std::uint32_t{0};

    struct position {
        span_id span = none;
        std::uint32_t granule = none;
        explicit operator bool() const noexcept { return span != none; }
    };
    /// What is known of the piece that begins at a granule; meaningless at any other granule.
    /// Trivial on purpose: the table of a large span costs memory only where pieces begin.
    struct entry {
        std::uint32_t granules : 31;
        std::uint32_t free : 1;
        std::uint32_t before;                   ///< first granule of the piece in front, or none
        std::uint32_t next_span, next_granule;  ///< in the list of its class
        std::uint32_t previous_span, previous_granule;  ///< likewise
    };
    struct span {
        std::unique_ptr<entry[]> entries;  ///< null: the id is unused
        std::uint32_t granules = 0;
        std::uint32_t pieces = 0;
    };
    struct size_class {
        std::uint32_t level;
        std::uint32_t index;
    };

    static size_class class_of(std::uint32_t granules) noexcept;
    entry& at(position p) noexcept;
    const entry& at(position p) const noexcept;
    void link(position p) noexcept;
    void unlink(position p) noexcept;
    [[nodiscard]] position find(std::uint32_t granules) const noexcept;
    piece take(position p, std::uint32_t granules) noexcept;

    std::vector<span> spans_;
    std::uint32_t level_map_ = 0;                    ///< bit l: class_map_[l] is not 0
    std::array<std::uint32_t, levels> class_map_{};  ///< bit c: heads_[l][c] is not empty
    std::array<std::array<position, classes>, levels> heads_{};
    mutable std::uint64_t visits_ = 0;
};

}  // namespace rvget::engine
