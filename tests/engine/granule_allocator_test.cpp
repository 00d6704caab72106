#include "engine/granule_allocator.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "support/seed.hpp"

namespace {

using rvget::engine::granule_allocator;
using piece = granule_allocator::piece;

/// What the allocator ought to know, kept the slow way: pieces on loan by (span, first granule).
class naive_model {
public:
    void add_span(std::uint32_t id, std::uint32_t granules) { spans_[id] = granules; }
    void remove_span(std::uint32_t id) { spans_.erase(id); }

    [[nodiscard]] bool is_inside_and_apart(const piece& p) const {
        const auto span = spans_.find(p.span);
        if (span == spans_.end() || p.first + p.granules > span->second) {
            return false;
        }
        return std::none_of(loans_.begin(), loans_.end(), [&](const auto& loan) {
            return loan.first.first == p.span && loan.first.second < p.first + p.granules &&
                   p.first < loan.first.second + loan.second;
        });
    }
    void lend(const piece& p) { loans_[{p.span, p.first}] = p.granules; }
    void take_back(const piece& p) { loans_.erase({p.span, p.first}); }

    [[nodiscard]] std::uint32_t largest_gap() const {
        std::uint32_t largest = 0;
        for (const auto& [id, granules] : spans_) {
            std::uint32_t end = 0;
            for (const auto& [where, size] : loans_) {
                if (where.first == id) {
                    largest = std::max(largest, where.second - end);
                    end = where.second + size;
                }
            }
            largest = std::max(largest, granules - end);
        }
        return largest;
    }

private:
    std::map<std::uint32_t, std::uint32_t> spans_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> loans_;
};

}  // namespace

BOOST_AUTO_TEST_CASE(pieces_random_sizes_agree_with_a_naive_model) {
    auto random = rvget::test::seeded_generator();
    granule_allocator places;
    naive_model model;
    for (const std::uint32_t granules : {1000u, 4096u, 31u, 1u, 777u}) {
        model.add_span(places.add_span(granules), granules);
    }
    std::vector<piece> loans;
    std::size_t placed = 0;
    std::size_t refused = 0;
    for (int step = 0; step < 20000; ++step) {
        // Phases of mostly asking and mostly giving back, so that both full and empty are met.
        const bool asking = random() % 10 < ((step / 1000) % 2 == 0 ? 7 : 3);
        if (asking || loans.empty()) {
            const auto granules = static_cast<std::uint32_t>(1 + random() % (1u << random() % 11));
            const bool promised = places.fits(granules);
            const auto p = places.allocate(granules);
            BOOST_REQUIRE_EQUAL(p.has_value(), promised);
            if (p) {
                BOOST_REQUIRE_EQUAL(p->granules, granules);
                BOOST_REQUIRE(model.is_inside_and_apart(*p));
                model.lend(*p);
                loans.push_back(*p);
                ++placed;
            } else {
                // Refusing is right only while no gap reaches the next class.
                BOOST_REQUIRE_LT(model.largest_gap(), granule_allocator::class_ceiling(granules));
                ++refused;
            }
        } else {
            const std::size_t i = random() % loans.size();
            std::swap(loans[i], loans.back());
            BOOST_REQUIRE_EQUAL(places.release(loans.back().span, loans.back().first),
                                loans.back().granules);
            model.take_back(loans.back());
            loans.pop_back();
        }
        if (step % 64 == 0) {
            BOOST_REQUIRE_EQUAL(places.largest_free(), model.largest_gap());
        }
    }
    BOOST_TEST(placed > 1000u);
    BOOST_TEST(refused > 100u);
}

BOOST_AUTO_TEST_CASE(span_all_given_back_in_any_order_is_one_piece_again) {
    auto random = rvget::test::seeded_generator();
    for (const std::uint32_t span : {1u, 33u, 1024u, 5000u, 16383u}) {
        granule_allocator places;
        const auto id = places.add_span(span);
        std::vector<std::uint32_t> firsts;
        while (const auto p = places.allocate(1 + static_cast<std::uint32_t>(random() % 3))) {
            firsts.push_back(p->first);
        }
        std::shuffle(firsts.begin(), firsts.end(), random);
        for (const std::uint32_t first : firsts) {
            BOOST_TEST(!places.is_free(id));
            places.release(id, first);
        }
        BOOST_TEST(places.is_free(id));
        BOOST_TEST(places.largest_free() == span);
        const auto whole = places.allocate(span);
        BOOST_REQUIRE(whole.has_value());
        BOOST_TEST(whole->first == 0u);
    }
}

BOOST_AUTO_TEST_CASE(allocate_and_release_many_pieces_visit_a_bounded_number_of_entries) {
    granule_allocator places;
    const auto id = places.add_span(1u << 18);  // 1 GiB of 4 KiB granules
    auto random = rvget::test::seeded_generator();
    std::vector<std::uint32_t> firsts;
    std::uint64_t most = 0;
    const auto counted = [&](auto&& call) {
        const std::uint64_t before = places.visits();
        call();
        most = std::max(most, places.visits() - before);
    };
    // 40,000 pieces, every second one given back: 20,000 holes in few classes, the worst for a
    // scan.
    for (int i = 0; i < 40000; ++i) {
        counted([&] { firsts.push_back(places.allocate(1 + i % 5)->first); });
    }
    for (std::size_t i = 0; i < firsts.size(); i += 2) {
        counted([&] { places.release(id, firsts[i]); });
    }
    for (int i = 0; i < 20000; ++i) {
        const auto granules = static_cast<std::uint32_t>(1 + random() % 40);
        std::optional<piece> p;
        counted([&] { p = places.allocate(granules); });
        BOOST_REQUIRE(p.has_value());
        if (i % 3 != 0) {
            counted([&] { places.release(id, p->first); });
        }
    }
    BOOST_TEST_MESSAGE("most entries visited by one call: " << most);
    BOOST_TEST(most > 0u);
    BOOST_TEST(most <= 16u);
}

BOOST_AUTO_TEST_CASE(span_removed_is_never_given_out_again) {
    granule_allocator places;
    const auto small = places.add_span(8);
    const auto large = places.add_span(64);
    places.remove_span(large);
    BOOST_TEST(places.largest_free() == 8u);
    BOOST_TEST(!places.allocate(9).has_value());
    const auto p = places.allocate(8);
    BOOST_REQUIRE(p.has_value());
    BOOST_TEST(p->span == small);
    BOOST_TEST(places.add_span(16) == large);  // its id is used again
    BOOST_TEST(places.allocate(16).has_value());
}

BOOST_AUTO_TEST_CASE(allocate_whole_odd_span_takes_all_of_it_and_wastes_at_most_half) {
    granule_allocator places;
    const auto id = places.add_span(20001);
    BOOST_TEST(!places.fits_whole(20002));
    BOOST_TEST(!places.fits_whole(9999));
    BOOST_TEST(!places.allocate_whole(9999).has_value());
    for (const std::uint32_t granules : {20001u, 19990u, 10001u}) {
        BOOST_TEST(places.fits_whole(granules));
        const auto p = places.allocate_whole(granules);
        BOOST_REQUIRE(p.has_value());
        BOOST_TEST(p->granules == 20001u);
        BOOST_TEST(places.largest_free() == 0u);
        BOOST_TEST(places.release(id, p->first) == 20001u);
    }
}

BOOST_AUTO_TEST_CASE(class_ceiling_wastes_at_most_one_part_in_thirty_two) {
    BOOST_TEST(granule_allocator::class_ceiling(1) == 1u);
    BOOST_TEST(granule_allocator::class_ceiling(31) == 31u);
    BOOST_TEST(granule_allocator::class_ceiling(65) == 66u);
    BOOST_TEST(granule_allocator::class_ceiling(16383) == 16384u);
    for (std::uint32_t n = 1; n < 100000; n += 7) {
        const std::uint32_t ceiling = granule_allocator::class_ceiling(n);
        BOOST_REQUIRE_GE(ceiling, n);
        BOOST_REQUIRE_LE(ceiling - n, n / 32);
    }
}
