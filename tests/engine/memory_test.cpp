#include "engine/memory.hpp"
#include "engine/rdma_context.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "support/seed.hpp"

namespace {

using rvget::failure;
using rvget::reason;
using rvget::result;
using rvget::engine::block_use;
using rvget::engine::byte_budget;
using rvget::engine::pinned_block;
using rvget::engine::pool;
using rvget::engine::pool_options;
namespace fabric = rvget::fabric;

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;

/// What was registered, shared by a device and its regions so that either may go first.
struct ledger {
    std::mutex mutex;
    std::map<const std::byte*, std::size_t> live;
    std::vector<std::size_t> sizes;  ///< in order of registration
    std::size_t live_bytes = 0;
    std::size_t most_bytes = 0;
    std::uint32_t next_key = 1;
    fabric::access rights = fabric::access::none;
    std::string refuse_with;       ///< not empty: registration fails with this detail
    std::function<void()> at_end;  ///< runs once, while a region is being deregistered
};

class fake_region final : public fabric::memory_region {
public:
    fake_region(std::shared_ptr<ledger> book, std::span<std::byte> bytes, std::uint32_t key)
        : book_(std::move(book)), bytes_(bytes), key_(key) {}
    ~fake_region() override {
        if (const auto f = std::exchange(book_->at_end, nullptr)) f();
        const std::lock_guard lock(book_->mutex);
        book_->live.erase(bytes_.data());
        book_->live_bytes -= bytes_.size();
        // Readable still: the pages must not be unmapped before the region is gone.
        seen_ = std::to_integer<unsigned>(bytes_.front());
    }
    std::uint32_t local_key() const noexcept override { return key_; }
    std::uint32_t remote_key() const noexcept override { return key_ + 1000; }
    std::span<std::byte> bytes() const noexcept override { return bytes_; }

private:
    std::shared_ptr<ledger> book_;
    std::span<std::byte> bytes_;
    std::uint32_t key_;
    volatile unsigned seen_ = 0;
};

class fake_device final : public fabric::device {
public:
    explicit fake_device(std::shared_ptr<ledger> book) : book_(std::move(book)) {}

    result<std::unique_ptr<fabric::memory_region>> register_memory(std::span<std::byte> memory,
                                                                   fabric::access r) override {
        const std::lock_guard lock(book_->mutex);
        if (!book_->refuse_with.empty()) {
            return failure{rvget::device_errc::registration, book_->refuse_with};
        }
        book_->live[memory.data()] = memory.size();
        book_->sizes.push_back(memory.size());
        book_->live_bytes += memory.size();
        book_->most_bytes = std::max(book_->most_bytes, book_->live_bytes);
        book_->rights = r;
        return std::unique_ptr<fabric::memory_region>(
            std::make_unique<fake_region>(book_, memory, book_->next_key++));
    }

    // A pool asks for nothing else.
    const rvget::route::device_facts& facts() const noexcept override { std::abort(); }
    const fabric::quirks& quirks() const noexcept override { std::abort(); }
    result<void> refresh() override { return unused(); }
    result<std::shared_ptr<fabric::completion_queue>> create_completion_queue(
        std::uint32_t) override {
        return unused();
    }
    result<std::unique_ptr<fabric::queue_pair>> create_queue_pair(
        std::shared_ptr<fabric::completion_queue>, std::uint8_t,
        const fabric::queue_pair_options&) override {
        return unused();
    }
    result<std::unique_ptr<fabric::memory_window>> allocate_window() override { return unused(); }
    int event_descriptor() const noexcept override { return -1; }
    std::optional<fabric::async_event> next_event() override { return std::nullopt; }

private:
    static failure unused() { return failure{rvget::request_errc::not_supported}; }
    std::shared_ptr<ledger> book_;
};

struct fixture {
    std::shared_ptr<ledger> book = std::make_shared<ledger>();
    std::shared_ptr<fabric::device> device = std::make_shared<fake_device>(book);
};

/// A megabyte instead of 64: the same proportions, quick under sanitizers.
pool_options small_options() {
    pool_options o;
    o.first_arena_bytes = mib;
    o.max_arena_bytes = 8 * mib;
    o.dedicated_bytes = mib;
    o.budget_bytes = 32 * mib;
    return o;
}

pinned_block must_allocate(pool& p, std::size_t bytes) {
    auto block = p.allocate(bytes);
    if (!block && block.error().why == reason::pool_exhausted) {
        const auto grown = p.grow_for(bytes);
        BOOST_REQUIRE_MESSAGE(grown, grown.error().detail);
        block = p.allocate(bytes);
    }
    BOOST_REQUIRE_MESSAGE(block, block.error().detail);
    return std::move(*block);
}

template <class Result>
void expect_refusal(const Result& r, reason why, std::string_view detail_part) {
    BOOST_REQUIRE(!r);
    BOOST_TEST((r.error().detail.find(detail_part) != std::string::npos), r.error().detail);
    BOOST_TEST((r.error().why == why), r.error().detail);
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(memory, fixture)

BOOST_AUTO_TEST_CASE(pool_without_device_refuses_not_configured) {
    pool p(nullptr, small_options());
    expect_refusal(p.allocate(1), reason::not_configured, "no RDMA device");
    expect_refusal(p.grow_for(1), reason::not_configured, "no RDMA device");
    BOOST_TEST(p.stats().registered_bytes == 0u);
}

BOOST_AUTO_TEST_CASE(pool_options_without_power_of_two_granule_are_a_broken_precondition) {
    pool_options o = small_options();
    o.granule_bytes = 5000;
    BOOST_CHECK_THROW(pool(device, o), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(zero_bytes_asked_for_are_refused_as_zero_length) {
    pool p(device, small_options());
    expect_refusal(p.allocate(0), reason::zero_length, "zero bytes");
    expect_refusal(p.grow_for(0), reason::zero_length, "zero bytes");
    BOOST_TEST(p.stats().arenas == 0u);
}

BOOST_AUTO_TEST_CASE(allocate_before_growth_is_exhausted_and_growth_cures_it) {
    pool p(device, small_options());
    expect_refusal(p.allocate(5000), reason::pool_exhausted, "5000 bytes");
    BOOST_TEST(book->sizes.empty());  // allocate never grows
    BOOST_REQUIRE(p.grow_for(5000));
    auto block = p.allocate(5000);
    BOOST_REQUIRE(block);
    BOOST_TEST(block->bytes().size() == 5000u);
    BOOST_TEST(reinterpret_cast<std::uintptr_t>(block->bytes().data()) % 4096 == 0u);
    BOOST_TEST(block->local_key() == 1u);
    BOOST_TEST(block->remote_key() == 1001u);
    const auto whole = block->region().bytes();
    BOOST_TEST(whole.size() == mib);
    BOOST_TEST((block->bytes().data() >= whole.data() &&
                block->bytes().data() + 5000 <= whole.data() + whole.size()));
    BOOST_TEST((book->rights == (fabric::access::local_write | fabric::access::remote_read)));
    const auto s = p.stats();
    BOOST_TEST(s.registered_bytes == mib);
    BOOST_TEST(s.used_bytes == 8192u);
    BOOST_TEST(s.blocks == 1u);
    BOOST_TEST(s.arenas == 1u);
    BOOST_TEST(s.largest_free == mib - 8192);
}

BOOST_AUTO_TEST_CASE(contract_5_1_default_options_follow_the_contract) {
    pool p(device, {});  // 5.1
    BOOST_REQUIRE(p.grow_for(1));
    BOOST_TEST(p.stats().registered_bytes == 64 * mib);
    BOOST_REQUIRE(p.grow_for(64 * mib));
    BOOST_TEST(p.stats().registered_bytes == 128 * mib);
    BOOST_TEST(must_allocate(p, 64 * mib).bytes().size() == 64 * mib);
    expect_refusal(p.grow_for(1024 * mib + 1), reason::budget, "1073741824 bytes");
}

BOOST_AUTO_TEST_CASE(contract_5_1_arenas_double_to_the_maximum_and_the_last_takes_what_is_left) {
    pool p(device, small_options());
    std::vector<pinned_block> blocks;
    for (;;) {
        auto block = p.allocate(512 * kib);
        if (!block && !p.grow_for(512 * kib)) {
            break;
        }
        if (block) {
            blocks.push_back(std::move(*block));
        }
    }
    const std::vector<std::size_t> expected{mib, 2 * mib, 4 * mib, 8 * mib, 8 * mib, 8 * mib, mib};
    BOOST_TEST(book->sizes == expected, boost::test_tools::per_element());
    BOOST_TEST(blocks.size() == 64u);
    expect_refusal(p.allocate(512 * kib), reason::budget, "33554432");
}

BOOST_AUTO_TEST_CASE(blocks_do_not_overlap_and_keep_their_bytes) {
    auto random = rvget::test::seeded_generator();
    pool_options o = small_options();
    o.budget_bytes = 16 * mib;
    pool p(device, o);
    struct held {
        pinned_block block;
        std::byte mark;
    };
    std::vector<held> blocks;
    const auto intact = [](const held& h) {
        const auto b = h.block.bytes();
        return std::all_of(b.begin(), b.end(), [&](std::byte x) { return x == h.mark; });
    };
    std::size_t refusals = 0;
    std::size_t used = 0;
    for (int step = 0; step < 3000; ++step) {
        if (random() % 100 < 55 || blocks.empty()) {
            const std::size_t bytes = 1 + random() % (std::size_t{1} << (random() % 22));
            auto block = p.allocate(bytes);
            if (!block && block.error().why == reason::pool_exhausted && p.grow_for(bytes)) {
                block = p.allocate(bytes);
            }
            if (!block) {
                ++refusals;
                continue;
            }
            const auto mark = static_cast<std::byte>(random());
            BOOST_REQUIRE_EQUAL(block->bytes().size(), bytes);
            std::fill(block->bytes().begin(), block->bytes().end(), mark);
            blocks.push_back({std::move(*block), mark});
        } else {
            const std::size_t i = random() % blocks.size();
            std::swap(blocks[i], blocks.back());
            BOOST_REQUIRE(intact(blocks.back()));
            blocks.pop_back();
        }
        BOOST_REQUIRE_EQUAL(p.stats().blocks, blocks.size());
        BOOST_REQUIRE_EQUAL(p.stats().registered_bytes, book->live_bytes);
        used = std::max(used, p.stats().used_bytes);
    }
    BOOST_TEST(std::all_of(blocks.begin(), blocks.end(), intact));
    BOOST_TEST(refusals > 0u);
    BOOST_TEST(used > 8 * mib);
    BOOST_TEST(book->most_bytes <= 16 * mib);
    blocks.clear();
    BOOST_TEST(p.stats().used_bytes == 0u);
}

BOOST_AUTO_TEST_CASE(arena_after_all_blocks_came_back_holds_one_block_of_its_size) {
    auto random = rvget::test::seeded_generator();
    pool_options o = small_options();
    o.dedicated_bytes = 2 * mib;
    pool p(device, o);
    std::vector<pinned_block> blocks;
    BOOST_REQUIRE(p.grow_for(1));
    while (auto block = p.allocate(1 + random() % (16 * kib))) {
        blocks.push_back(std::move(*block));
    }
    BOOST_TEST(blocks.size() > 50u);
    expect_refusal(p.allocate(mib), reason::pool_exhausted, "1048576");
    std::shuffle(blocks.begin(), blocks.end(), random);
    blocks.clear();
    BOOST_TEST(p.stats().largest_free == mib);
    auto whole = p.allocate(mib);
    BOOST_REQUIRE(whole);
    BOOST_TEST(whole->bytes().data() == whole->region().bytes().data());
    BOOST_TEST(book->sizes.size() == 1u);
}

BOOST_AUTO_TEST_CASE(contract_5_1_large_requests_get_an_arena_of_their_own_which_is_used_again) {
    pool p(device, small_options());
    auto small = must_allocate(p, 4 * kib);
    auto large = must_allocate(p, 3 * mib + 1);
    BOOST_TEST(large.bytes().data() == large.region().bytes().data());
    BOOST_TEST(large.region().bytes().size() == 4 * mib);
    BOOST_TEST(large.local_key() != small.local_key());
    auto other = must_allocate(p, 3 * mib + 1);
    BOOST_TEST(other.local_key() != large.local_key());
    const auto key = large.local_key();
    large = {};
    BOOST_TEST(must_allocate(p, 3 * mib).local_key() == key);
    BOOST_TEST(book->sizes.size() == 3u);
    // Small blocks never go there, however empty it is.
    pool_options o = small_options();
    pool q(device, o);
    BOOST_REQUIRE(q.grow_for(2 * mib));
    expect_refusal(q.allocate(4 * kib), reason::pool_exhausted, "4096");
}

BOOST_AUTO_TEST_CASE(contract_5_1_growth_over_the_budget_is_refused_until_blocks_come_back) {
    pool_options o = small_options();
    o.budget_bytes = 4 * mib;
    pool p(device, o);
    auto first = must_allocate(p, 2 * mib);
    auto second = must_allocate(p, mib);
    expect_refusal(p.allocate(2 * mib), reason::budget, "registration budget of 4194304");
    expect_refusal(p.grow_for(2 * mib), reason::budget, "registration budget of 4194304");
    BOOST_TEST(book->live_bytes <= 4 * mib);
    first = {};
    BOOST_TEST(must_allocate(p, 2 * mib).bytes().size() == 2 * mib);
    BOOST_TEST(book->most_bytes <= 4 * mib);
}

BOOST_AUTO_TEST_CASE(growth_short_of_budget_returns_empty_arenas_first) {
    pool_options o = small_options();
    o.budget_bytes = 4 * mib;
    pool p(device, o);
    must_allocate(p, 3 * mib);  // given back at once, stays registered
    BOOST_TEST(p.stats().registered_bytes == 4 * mib);
    expect_refusal(p.allocate(4 * kib), reason::pool_exhausted, "4096");
    BOOST_TEST(must_allocate(p, 4 * kib).bytes().size() == 4 * kib);
    BOOST_TEST(book->most_bytes <= 4 * mib);
    BOOST_TEST(book->live.size() == 1u);
}

BOOST_AUTO_TEST_CASE(contract_5_1_budget_smaller_than_an_arena_counts_whole_pages) {
    pool_options o = small_options();
    o.budget_bytes = 10000;
    pool p(device, o);
    expect_refusal(p.allocate(8193), reason::budget, "exceeds the whole registration budget");
    auto block = must_allocate(p, 8192);
    BOOST_TEST(p.stats().registered_bytes == 8192u);
    expect_refusal(p.allocate(1), reason::budget, "8192 of the registration budget of 10000");
    expect_refusal(p.grow_for(~std::size_t{0}), reason::budget, "exceeds the whole");
}

BOOST_AUTO_TEST_CASE(registration_failure_is_refused_with_the_devices_detail) {
    pool p(device, small_options());
    book->refuse_with = "ibv_reg_mr on rxe0: Cannot allocate memory (memlock 8192 KiB)";
    expect_refusal(p.grow_for(4096), reason::registration, "memlock 8192 KiB");
    BOOST_TEST(p.stats().registered_bytes == 0u);  // the budget has it back
    BOOST_TEST(p.stats().arenas == 0u);
    book->refuse_with.clear();
    BOOST_TEST(must_allocate(p, 4096).bytes().size() == 4096u);
}

BOOST_AUTO_TEST_CASE(
    contract_5_4_block_outliving_its_pool_keeps_its_arena_registered_until_it_goes) {
    pinned_block survivor;
    pinned_block other;
    {
        pool p(device, small_options());
        survivor = must_allocate(p, 100);
        must_allocate(p, mib);  // an empty arena, gone with the pool
        other = must_allocate(p, 100);
        device.reset();
    }
    BOOST_TEST(book->live.size() == 1u);
    std::memset(survivor.bytes().data(), 1, survivor.bytes().size());
    other = {};
    BOOST_TEST(book->live.size() == 1u);
    survivor = {};
    BOOST_TEST(book->live.empty());
    BOOST_TEST(!survivor);
}

BOOST_AUTO_TEST_CASE(block_moved_leaves_an_empty_one_and_is_given_back_once) {
    pool p(device, small_options());
    auto a = must_allocate(p, 100);
    const auto* const where = a.bytes().data();
    pinned_block b(std::move(a));
    BOOST_TEST(!a);  // NOLINT(bugprone-use-after-move)
    BOOST_TEST(a.bytes().empty());
    BOOST_TEST(b.bytes().data() == where);
    a = std::move(b);
    BOOST_TEST(p.stats().blocks == 1u);
    a = must_allocate(p, 200);  // the first goes back when it is overwritten
    BOOST_TEST(p.stats().blocks == 1u);
    BOOST_TEST(a.bytes().size() == 200u);
}

BOOST_AUTO_TEST_CASE(contract_5_4_trim_returns_empty_arenas_only_and_keeps_the_warm_floor) {
    pool p(device, small_options());
    auto kept = must_allocate(p, 4096);
    must_allocate(p, 6 * mib);
    must_allocate(p, 2 * mib);
    BOOST_TEST(p.stats().registered_bytes == 9 * mib);
    BOOST_TEST(p.trim(0) == 0u);             // none was empty before
    BOOST_TEST(p.trim(5 * mib) == 2 * mib);  // returning the larger would undercut the floor
    BOOST_TEST(book->live_bytes == 7 * mib);
    BOOST_TEST(p.trim(0) == 6 * mib);
    BOOST_TEST(book->live_bytes == mib);
    BOOST_TEST(p.trim(0) == 0u);
    kept = {};
    BOOST_TEST(p.trim(0) == 0u);
    BOOST_TEST(p.trim(0) == mib);
    BOOST_TEST(book->live.empty());
    BOOST_TEST(p.stats().arenas == 0u);
    BOOST_TEST(must_allocate(p, 4096).bytes().size() == 4096u);
    BOOST_TEST(book->sizes.back() == mib);  // doubling begins anew
}

BOOST_AUTO_TEST_CASE(contract_5_1_bytes_on_their_way_back_are_waited_for_and_not_refused) {
    auto o = small_options();
    o.budget_bytes = mib;  // one arena
    o.dedicated_bytes = 2 * mib;
    pool p(device, o);
    must_allocate(p, mib);
    BOOST_TEST(p.trim(0) == 0u);  // it had a block since the last one
    const std::vector<std::byte> callers(mib - 2 * 4096);
    std::optional<byte_budget::claim> claim;
    std::thread claimer;
    book->at_end = [&] {
        const auto block = p.allocate(mib / 2);
        BOOST_TEST((block.error().why == reason::pool_exhausted));  // growing cures it
        claimer = std::thread([&] {
            if (auto claimed = p.claim(callers)) claim = std::move(*claimed);
        });
    };
    BOOST_TEST(p.trim(0) == mib);
    claimer.join();
    BOOST_TEST(claim.has_value());
    claim.reset();
    must_allocate(p, mib / 2);
}

BOOST_AUTO_TEST_CASE(contract_5_4_an_arena_used_since_the_last_trim_stays) {
    pool p(device, small_options());
    must_allocate(p, 6 * mib);
    BOOST_TEST(p.trim(0) == 0u);
    must_allocate(p, 6 * mib);
    BOOST_TEST(p.trim(0) == 0u);
    BOOST_TEST(p.trim(0) == 6 * mib);
}

BOOST_AUTO_TEST_CASE(contract_5_1_memory_beside_the_arenas_takes_from_the_same_budget) {
    pool_options o = small_options();
    o.budget_bytes = 8 * mib;
    pool p(device, o);
    must_allocate(p, 6 * mib);  // and given back: empty, and registered still
    const std::vector<std::byte> pages(4 * mib);
    auto claimed = p.claim(pages);
    BOOST_REQUIRE(claimed);
    BOOST_TEST(claimed->bytes() >= 4 * mib);  // whole pages
    BOOST_TEST(book->live.empty());           // the empty arena made room
    BOOST_TEST(p.stats().registered_bytes == claimed->bytes());
    const auto more = p.allocate(6 * mib);
    BOOST_REQUIRE(more.has_error());
    BOOST_TEST((more.error().why == reason::budget));
    const auto kept = must_allocate(p, 2 * mib);
    const auto refused = p.claim(pages);
    BOOST_REQUIRE(refused.has_error());
    BOOST_TEST((refused.error().why == reason::budget));
    claimed = byte_budget::claim{};
    BOOST_TEST(bool(p.claim(pages)));
}

BOOST_AUTO_TEST_CASE(registration_that_ends_is_deregistered_before_its_room_is_back) {
    pool p(device, small_options());
    std::vector<std::byte> memory(mib);
    std::size_t held = 0;  // in the budget, when the region goes
    struct looking_region final : fabric::memory_region {
        looking_region(const pool& its_pool, std::size_t& seen) : home(its_pool), held(seen) {}
        ~looking_region() override { held = home.stats().registered_bytes; }
        std::uint32_t local_key() const noexcept override { return 1; }
        std::uint32_t remote_key() const noexcept override { return 2; }
        std::span<std::byte> bytes() const noexcept override { return {}; }
        const pool& home;
        std::size_t& held;
    };
    const auto make = [&] {
        return rvget::engine::registration{std::move(*p.claim(memory)),
                                           std::make_unique<looking_region>(p, held)};
    };
    auto r = make();
    r.end();
    BOOST_TEST(held >= mib);
    BOOST_TEST(p.stats().registered_bytes == 0u);
    held = 0;
    { const auto dropped = make(); }
    BOOST_TEST(held >= mib);
    BOOST_TEST(p.stats().registered_bytes == 0u);
}

BOOST_AUTO_TEST_CASE(contract_5_1_bounce_memory_has_a_budget_of_its_own) {
    pool_options o = small_options();
    o.bounce_bytes = 64 * kib;
    pool p(device, o);
    must_allocate(p, 4096);  // registers the first arena
    auto passing = p.allocate(40 * kib, block_use::bounce);
    BOOST_REQUIRE(passing);
    const auto refused = p.allocate(40 * kib, block_use::bounce);
    BOOST_REQUIRE(refused.has_error());
    BOOST_TEST((refused.error().why == reason::budget));
    BOOST_TEST(refused.error().detail.find("bounce_budget_bytes") != std::string::npos);
    BOOST_TEST(bool(p.allocate(40 * kib)));  // what stays is counted apart
    passing = pinned_block{};
    BOOST_TEST(bool(p.allocate(40 * kib, block_use::bounce)));
}

BOOST_AUTO_TEST_CASE(threads_sharing_a_pool_never_share_a_block) {
    pool_options o = small_options();
    o.budget_bytes = 8 * mib;
    pool p(device, o);
    std::atomic<int> clashes{0};
    std::atomic<int> served{0};
    const auto work = [&](unsigned id) {
        std::minstd_rand random(id);
        std::vector<pinned_block> held;
        for (int i = 0; i < 400; ++i) {
            const std::size_t bytes = 1 + random() % (i % 50 == 0 ? 2 * mib : 64 * kib);
            auto block = p.allocate(bytes);
            if (!block && block.error().why == reason::pool_exhausted && p.grow_for(bytes)) {
                block = p.allocate(bytes);
            }
            if (block) {
                ++served;
                std::memset(block->bytes().data(), static_cast<int>(id), bytes);
                held.push_back(std::move(*block));
            }
            if (held.size() > 8 || (!block && !held.empty())) {
                std::swap(held[random() % held.size()], held.back());
                const auto b = held.back().bytes();
                clashes += !std::all_of(b.begin(), b.end(),
                                        [&](std::byte x) { return x == std::byte(id); });
                held.pop_back();
            }
            if (i % 100 == 99) {
                p.trim(mib);
            }
        }
    };
    std::vector<std::thread> threads;
    for (unsigned id = 1; id <= 4; ++id) {
        threads.emplace_back(work, id);
    }
    for (auto& t : threads) {
        t.join();
    }
    BOOST_TEST(clashes == 0);
    BOOST_TEST(served > 400);
    BOOST_TEST(p.stats().blocks == 0u);
    BOOST_TEST(book->most_bytes <= 8 * mib);
    p.trim(0);
    p.trim(0);  // what was used since the last one stays once
    BOOST_TEST(book->live.empty());
}

BOOST_AUTO_TEST_SUITE_END()
