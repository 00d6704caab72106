// Memory that the caller registered: staged without a copy, filled by gets, given back.

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <mutex>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <rvget/log.hpp>

#include "api/nodes_on_sim.hpp"
#include "support/rogue_consumer.hpp"

namespace rvget::test {
namespace {

constexpr std::size_t skipped = 100;  ///< before the staged part of a region

constexpr lease_key_choice every_mode[] = {lease_key_choice::window, lease_key_choice::exact,
                                           lease_key_choice::fence};

/// An owner that has registered memory, `medium` bytes of the pattern in it.
struct region_nodes : sim_nodes {
    explicit region_nodes(const node_options& owner_options = {},
                          const node_options& consumer_options = {})
        : sim_nodes(owner_options, consumer_options) {
        fill_pattern(std::span(memory).subspan(skipped, medium));
        registered.emplace(owner->register_region(memory).value());
    }
    ~region_nodes() {
        release_dma();
        consumer.reset();
        BOOST_TEST(registered->unregister(100ms).wait_for(patience));
    }
    [[nodiscard]] url stage_there() {
        return owner->url_of(owner->stage_region(*registered, skipped, medium).value());
    }

    std::vector<std::byte> memory = std::vector<std::byte>(skipped + medium + 1, std::byte{0xee});
    std::optional<region> registered;
};

/// A get from there into a region of the consumer's, whose READ is posted and held back.
struct held_get : region_nodes {
    held_get() : region_nodes(with_keys(lease_key_choice::fence)) {  // a window would want binding
        warm_up();
        const auto from = stage_there();
        hold_dma();
        got = get_into(*consumer, from, destination);
        await_dma(destination);
    }

    std::vector<std::byte> destination = std::vector<std::byte>(medium);
    region there = consumer->register_region(destination).value();
    std::future<into_answer> got;
};

template <class Condition>
bool becomes(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::yield();
    }
    return true;
}

void check_outcome(const unregistration& u, unregister_outcome expected) {
    BOOST_REQUIRE(u.wait_for(patience));
    BOOST_REQUIRE(u.outcome().has_value());
    BOOST_TEST((*u.outcome() == expected));
}

template <class T>
void check_code(const result<T>& r, const error_code& expected) {
    BOOST_REQUIRE(!r);
    BOOST_TEST(r.error().code == expected, r.error().message());
    BOOST_TEST(!r.error().detail.empty());
}

/// Lines of the log while it lives.
class log_capture {
public:
    log_capture() {
        set_log_sink([this](log_level level, std::string_view line) {
            const std::lock_guard lock(mutex_);
            if (level == log_level::warning) text_.append(line) += '\n';
        });
    }
    ~log_capture() { set_log_sink({}); }
    [[nodiscard]] bool warned_of(std::string_view what) const {
        const std::lock_guard lock(mutex_);
        return text_.find(what) != std::string::npos;
    }

private:
    mutable std::mutex mutex_;
    std::string text_;
};

/// A buffer that says when its memory is freed.
buffer watched_buffer(std::size_t bytes, std::atomic<bool>& freed) {
    auto* const memory = new std::vector<std::byte>(bytes);
    fill_pattern(*memory);
    return {std::shared_ptr<void>(memory,
                                  [memory, &freed](void*) {
                                      freed = true;
                                      delete memory;
                                  }),
            *memory};
}

BOOST_AUTO_TEST_SUITE(staging_a_region)

BOOST_AUTO_TEST_CASE(contract_5_1_region_beyond_the_budget_is_refused_until_there_is_room) {
    node_options tight;
    tight.first_arena_bytes = std::size_t{1} << 20;
    tight.registered_budget_bytes = std::size_t{4} << 20;
    tight.max_arena_bytes = tight.registered_budget_bytes;
    sim_nodes n(tight);
    std::vector<std::byte> memory(std::size_t{2} << 20);
    auto first = n.owner->register_region(memory).value();
    BOOST_TEST(n.owner->statistics().registered_bytes >= tight.first_arena_bytes + memory.size());
    std::vector<std::byte> more(std::size_t{3} << 20);
    const auto refused = n.owner->register_region(more);
    check_code(refused, make_error_code(device_errc::registration));
    BOOST_TEST(refused.error().message().find("budget") != std::string::npos);
    BOOST_TEST(first.unregister().wait_for(patience));
    auto second = n.owner->register_region(more);
    BOOST_REQUIRE(second);
    BOOST_TEST(second->unregister().wait_for(patience));
    // The arena that nobody uses may have made room.
    BOOST_TEST(n.owner->statistics().registered_bytes <= tight.first_arena_bytes);
}

BOOST_AUTO_TEST_CASE(contract_1_3_stage_region_serves_the_callers_memory_with_no_copy) {
    for (const auto keys : every_mode) {
        BOOST_TEST_CONTEXT("lease keys " << static_cast<int>(keys)) {
            region_nodes n(with_keys(keys));
            BOOST_REQUIRE((n.owner->rdma().lease_keys == keys));
            const auto from = n.stage_there();
            BOOST_TEST(n.owner->metadata(from.handle)->pinned);
            BOOST_TEST(n.owner->metadata(from.handle)->bytes == medium);
            const auto got = n.consumer->get_pinned(from, {.policy = path_policy::require}).value();
            BOOST_TEST(got.report.path == path::rdma);
            BOOST_TEST(got.report.copied_bytes == 0u);
            check_pattern(got.data.bytes());
            // What is there now is what the NIC reads: nothing was copied when it was staged.
            n.memory[skipped] ^= std::byte{0xff};
            const auto again = n.consumer->get(from).value();
            BOOST_TEST((again.data.bytes()[0] == n.memory[skipped]));
            BOOST_TEST(n.owner->statistics().bytes_copied == 0u);
            BOOST_TEST(n.owner->release(from.handle).value() == 0u);
            check_outcome(n.registered->unregister(), unregister_outcome::drained);
        }
    }
}

BOOST_FIXTURE_TEST_CASE(contract_3_4_region_slot_serves_chunks_and_inline_too, region_nodes) {
    const auto from = stage_there();
    const auto chunks = consumer->get(from, {.policy = path_policy::never}).value();
    BOOST_TEST(chunks.report.path == path::chunked);
    check_pattern(chunks.data.bytes());
    const auto small = consumer->get(from, {.offset = 5, .length = 100}).value();
    BOOST_TEST(small.report.path == path::inline_answer);
    check_pattern(small.data.bytes(), 5);
}

BOOST_FIXTURE_TEST_CASE(contract_1_3_stage_region_fails_outside_of_a_region, region_nodes) {
    const auto invalid = make_error_code(request_errc::invalid_argument);
    const auto size = memory.size();
    check_code(owner->stage_region(*registered, size + 1, 0), invalid);
    check_code(owner->stage_region(*registered, 0, size + 1), invalid);
    check_code(owner->stage_region(*registered, 2, size - 1), invalid);
    check_code(owner->stage_region(*registered, 1, ~std::size_t{0}), invalid);
    check_code(owner->stage_region({}, 0, 0), invalid);
    check_code(consumer->stage_region(*registered, 0, 1), invalid);  // another node's
    BOOST_TEST(owner->stage_region(*registered, 0, size).has_value());
    BOOST_TEST(registered->unregister().wait_for(patience));
    check_code(owner->stage_region(*registered, 0, 1), invalid);
}

BOOST_AUTO_TEST_CASE(contract_1_3_stage_region_fails_where_the_device_takes_no_registration) {
    region_nodes n(with_keys(lease_key_choice::fence));
    n.owner_plan->fail(fault::call::register_memory,
                       n.owner_plan->count(fault::call::register_memory) + 1,
                       {device_errc::registration, "planned: memlock"});
    check_code(n.owner->stage_region(*n.registered, 0, medium),
               make_error_code(device_errc::registration));
    check_pattern(n.consumer->get(n.stage_there())->data.bytes());  // the region is still good
}

BOOST_FIXTURE_TEST_CASE(contract_1_3_nothing_of_a_region_is_plain, region_nodes) {
    const auto h = owner->stage_region(*registered, memory.size(), 0).value();
    BOOST_TEST(!owner->metadata(h)->pinned);
    const auto got = consumer->get(owner->url_of(h), {.policy = path_policy::require}).value();
    BOOST_TEST(got.report.path == path::inline_answer);
    BOOST_TEST(got.data.size() == 0u);
}

/// The key of a lease on part of a region, and what lies beside it.
BOOST_AUTO_TEST_CASE(contract_5_2_key_of_a_staged_part_opens_nothing_beside_it) {
    constexpr std::size_t part = std::size_t{64} << 10;
    for (const auto keys : every_mode) {
        BOOST_TEST_CONTEXT("lease keys " << static_cast<int>(keys)) {
            region_nodes n(with_keys(keys));
            const auto h = n.owner->stage_region(*n.registered, skipped + part, part).value();
            auto nic = n.net.attach(sim::roce_host("rogue", sim::ipv4_gid(10, 0, 0, 3)));
            rogue_consumer rogue(*nic, connect_raw(*n.owner->address()), part);
            for (const std::int64_t beside : {-1, 1}) {
                const auto lease = rogue.lease(h.slot);
                const auto key = lease.keys.front().remote_key;
                BOOST_TEST(
                    (rogue.read(lease.address, key, part) == fabric::completion_status::success));
                BOOST_TEST(pattern_mismatch(rogue.sink(), part) == part);
                BOOST_TEST((rogue.read(lease.address + static_cast<std::uint64_t>(beside), key,
                                       part) == fabric::completion_status::remote_access));
                BOOST_TEST(rogue.sink_untouched());
                rogue.drop_lane();
            }
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(unregistering)

BOOST_FIXTURE_TEST_CASE(contract_5_3_unregister_gates_new_use, region_nodes) {
    const auto from = stage_there();
    BOOST_TEST(owner->add_reference(from.handle).value() == 2u);  // no matter who holds some
    check_outcome(registered->unregister(), unregister_outcome::drained);
    const auto not_found = make_error_code(request_errc::not_found);
    check_code(consumer->get(from), not_found);
    check_code(owner->metadata(from.handle), not_found);
    BOOST_TEST(owner->statistics().slots == 0u);
    BOOST_TEST(registered->unregister().resolved());  // again, as often as wanted
}

BOOST_FIXTURE_TEST_CASE(
    contract_5_3_destination_that_was_unregistered_is_filled_over_a_bounce_buffer, region_nodes) {
    std::vector<std::byte> destination(medium);
    auto there = consumer->register_region(destination).value();
    BOOST_TEST(there.unregister().wait_for(patience));
    const auto got = consumer->get_into(stage_there(), destination).value();
    BOOST_TEST(got.report.path == path::rdma);
    BOOST_TEST(got.report.copied_bytes == medium);
    check_pattern(destination);
}

BOOST_FIXTURE_TEST_CASE(contract_5_3_unregister_waits_for_a_lease_and_says_drained, held_get) {
    const auto over = registered->unregister(patience);
    BOOST_TEST(owner->statistics().leases_active == 1u);
    BOOST_TEST(!over.resolved());
    BOOST_TEST(!over.outcome().has_value());
    release_dma();
    check_outcome(over, unregister_outcome::drained);
    BOOST_TEST(!got.get().code);
    check_pattern(destination);
    BOOST_TEST(owner->statistics().leases_expired == 0u);
    BOOST_TEST(there.unregister().wait_for(patience));
}

/// Its consumer keeps a lease that still has 30 s: the memory is the caller's again all the same,
/// and no NIC reads it any more.
BOOST_AUTO_TEST_CASE(contract_5_3_unregister_that_timed_out_has_revoked_the_leases) {
    for (const auto keys : every_mode) {
        BOOST_TEST_CONTEXT("lease keys " << static_cast<int>(keys)) {
            auto o = with_keys(keys);
            o.lease_timeout = 1h;  // so that no lease is over by itself
            region_nodes n(o);
            const auto from = n.stage_there();
            auto nic = n.net.attach(sim::roce_host("rogue", sim::ipv4_gid(10, 0, 0, 3)));
            rogue_consumer rogue(*nic, connect_raw(*n.owner->address()), medium);
            const auto lease = rogue.lease(from.handle.slot);
            const auto key = lease.keys.front().remote_key;
            BOOST_TEST(
                (rogue.read(lease.address, key, medium) == fabric::completion_status::success));
            check_pattern(rogue.sink());
            check_outcome(n.registered->unregister(1ms), unregister_outcome::timed_out);
            std::ranges::fill(n.memory, std::byte{0x11});
            BOOST_TEST(n.owner->statistics().leases_expired == 1u);
            BOOST_TEST(
                (rogue.read(lease.address, key, medium) != fabric::completion_status::success));
            BOOST_TEST(rogue.sink_untouched());
        }
    }
}

BOOST_FIXTURE_TEST_CASE(contract_5_3_unregister_under_a_get_waits_and_then_ends_it, held_get) {
    const auto over = there.unregister(1ms);
    const auto answer = got.get();
    BOOST_TEST(answer.code == make_error_code(request_errc::cancelled));
    BOOST_TEST(answer.result.report.detail.find("unregistered") != std::string::npos);
    BOOST_TEST(!answer.result.quiet.resolved());
    BOOST_TEST(!over.resolved());  // whatever the time: the NIC may still write
    release_dma();
    check_outcome(over, unregister_outcome::timed_out);
    BOOST_TEST(answer.result.quiet.resolved());
    BOOST_TEST(!net.dma_pending_into(destination));
}

BOOST_AUTO_TEST_CASE(contract_2_2_destination_is_buffer_busy_for_other_use_until_it_is_quiet) {
    region_nodes n(with_keys(lease_key_choice::fence));
    n.warm_up();
    const auto from = n.stage_there();
    std::vector<std::byte> destination(2 * medium);
    auto there = n.consumer->register_region(destination).value();
    n.hold_dma();
    const auto parked = cancellable_get(n, from, std::span(destination).first(medium)).cancel();
    const auto busy = make_error_code(request_errc::buffer_busy);
    check_code(n.consumer->stage_region(there, 0, medium), busy);
    check_code(n.consumer->stage_region(there, medium - 1, 2), busy);
    BOOST_TEST(n.consumer->stage_region(there, medium, medium).has_value());
    const auto over = there.unregister(patience);
    BOOST_TEST(!over.resolved());
    BOOST_TEST(get_into(*n.consumer, from, std::span(destination).first(1)).get().code == busy);
    n.release_dma();
    BOOST_TEST(parked.wait_for(patience));
    check_outcome(over, unregister_outcome::drained);
}

BOOST_AUTO_TEST_CASE(contract_5_3_region_of_a_node_that_was_shut_down_comes_back_at_once) {
    std::vector<std::byte> memory(medium);
    for (const bool gone : {false, true}) {
        sim_nodes n;
        auto r = n.owner->register_region(memory).value();
        static_cast<void>(n.owner->stage_region(r, 0, medium).value());
        BOOST_TEST(n.owner->shutdown(20s));
        if (gone) n.owner.reset();
        const auto over = r.unregister();
        BOOST_TEST(over.resolved());
        BOOST_TEST((over.outcome() == unregister_outcome::drained));
        if (!gone)
            check_code(n.owner->stage_region(r, 0, 1),
                       make_error_code(request_errc::invalid_argument));
    }
}

BOOST_AUTO_TEST_CASE(contract_5_3_dropped_guard_unregisters_in_the_background_with_a_warning) {
    std::atomic<bool> freed{false};
    sim_nodes n(with_keys(lease_key_choice::fence));
    n.warm_up();
    std::vector<std::byte> destination(medium);
    auto there = n.consumer->register_region(destination).value();
    const log_capture log;
    std::future<into_answer> got;
    {
        const auto dropped = n.owner->register_owned(watched_buffer(medium, freed)).value();
        const auto from = n.owner->url_of(n.owner->stage_region(dropped, 0, medium).value());
        n.hold_dma();
        got = get_into(*n.consumer, from, destination);
        n.await_dma(destination);
        BOOST_TEST(!log.warned_of("region=dropped"));
    }  // does not wait for the READ
    BOOST_TEST(log.warned_of("region=dropped"));
    BOOST_TEST(!freed);
    n.release_dma();
    BOOST_TEST(!got.get().code);
    check_pattern(destination);
    BOOST_TEST(becomes([&] { return freed.load(); }));
    BOOST_TEST(there.unregister().wait_for(patience));
}

BOOST_AUTO_TEST_CASE(region_that_is_assigned_over_is_dropped) {
    std::atomic<bool> freed{false};
    sim_nodes n;
    const log_capture log;
    auto r = n.owner->register_owned(watched_buffer(medium, freed)).value();
    r = region();
    BOOST_TEST(log.warned_of("region=dropped"));
    BOOST_TEST(becomes([&] { return freed.load(); }));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(other_memory)

BOOST_AUTO_TEST_CASE(contract_5_3_register_owned_gives_the_buffer_back_on_unregister) {
    std::atomic<bool> freed{false};
    sim_nodes n(with_keys(lease_key_choice::fence));
    n.warm_up();
    std::vector<std::byte> destination(medium);
    auto there = n.consumer->register_region(destination).value();
    auto b = watched_buffer(medium, freed);
    const auto* const data = b.data();
    auto r = n.owner->register_owned(std::move(b)).value();
    BOOST_TEST(r.bytes().data() == data);
    const auto from = n.owner->url_of(n.owner->stage_region(r, 0, medium).value());
    n.hold_dma();
    auto got = get_into(*n.consumer, from, destination);
    n.await_dma(destination);
    const auto over = r.unregister();
    BOOST_TEST(over.take_buffer().size() == 0u);  // not yet
    n.release_dma();
    check_outcome(over, unregister_outcome::drained);
    const auto back = over.take_buffer();
    BOOST_TEST(back.data() == data);
    check_pattern(back.bytes());
    BOOST_TEST(over.take_buffer().size() == 0u);
    BOOST_TEST(!freed);
    BOOST_TEST(!got.get().code);
    BOOST_TEST(there.unregister().wait_for(patience));
}

BOOST_AUTO_TEST_CASE(contract_5_3_register_owned_gives_the_buffer_back_on_failure) {
    std::atomic<bool> freed{false};
    auto b = watched_buffer(medium, freed);
    const auto* const data = b.data();
    auto without_device = start_tcp_node();
    check_code(without_device.register_owned(std::move(b)), make_error_code(device_errc::none));
    BOOST_TEST(b.data() == data);  // NOLINT(bugprone-use-after-move): that is the promise
    sim_nodes n;
    n.owner_plan->fail(fault::call::register_memory,
                       n.owner_plan->count(fault::call::register_memory) + 1,
                       {device_errc::registration, "planned: memlock"});
    check_code(n.owner->register_owned(std::move(b)), make_error_code(device_errc::registration));
    BOOST_TEST(b.data() == data);  // NOLINT(bugprone-use-after-move)
    BOOST_TEST(!freed);
}

/// A file in memory, which the tests take for a dma-buf: it can be mapped as one can.
struct shared_file {
    explicit shared_file(std::size_t bytes) : fd(::memfd_create("rvget", MFD_CLOEXEC)) {
        BOOST_REQUIRE(fd >= 0 && ::ftruncate(fd, static_cast<off_t>(bytes)) == 0);
        std::vector<std::byte> content(bytes);
        fill_pattern(content);
        BOOST_REQUIRE(::pwrite(fd, content.data(), bytes, 0) == static_cast<ssize_t>(bytes));
    }
    ~shared_file() { ::close(fd); }
    shared_file(const shared_file&) = delete;
    shared_file& operator=(const shared_file&) = delete;
    int fd;
};

BOOST_FIXTURE_TEST_CASE(contract_5_3_register_dmabuf_is_not_supported_by_a_device_without_it,
                        sim_nodes) {
    const shared_file file(medium);
    const auto refused = owner->register_dmabuf(file.fd, 0, medium);
    check_code(refused, make_error_code(request_errc::not_supported));
    BOOST_TEST((refused.error().code == boost::system::errc::operation_not_supported));
    BOOST_TEST(refused.error().detail.find("sim0") != std::string::npos);
    const auto invalid = make_error_code(request_errc::invalid_argument);
    check_code(owner->register_dmabuf(-1, 0, medium), invalid);
    check_code(owner->register_dmabuf(file.fd, 1, medium), invalid);
    check_code(owner->register_dmabuf(file.fd, 0, 0), invalid);
    check_code(start_tcp_node().register_dmabuf(file.fd, 0, medium),
               make_error_code(device_errc::none));
}

/// A device that can: it takes the mapping for ordinary memory.
class dmabuf_device final : public fabric::device {
public:
    explicit dmabuf_device(std::shared_ptr<device> beneath) : beneath_(std::move(beneath)) {}
    [[nodiscard]] const route::device_facts& facts() const noexcept override {
        return beneath_->facts();
    }
    [[nodiscard]] const fabric::quirks& quirks() const noexcept override {
        return beneath_->quirks();
    }
    result<void> refresh() override { return beneath_->refresh(); }
    result<std::unique_ptr<fabric::memory_region>> register_memory(std::span<std::byte> memory,
                                                                   fabric::access rights) override {
        return beneath_->register_memory(memory, rights);
    }
    result<std::unique_ptr<fabric::memory_region>> register_dmabuf(int, std::uint64_t,
                                                                   std::span<std::byte> mapped,
                                                                   fabric::access rights) override {
        return beneath_->register_memory(mapped, rights);
    }
    result<std::shared_ptr<fabric::completion_queue>> create_completion_queue(
        std::uint32_t entries) override {
        return beneath_->create_completion_queue(entries);
    }
    result<std::unique_ptr<fabric::queue_pair>> create_queue_pair(
        std::shared_ptr<fabric::completion_queue> completions, std::uint8_t port,
        const fabric::queue_pair_options& options) override {
        return beneath_->create_queue_pair(std::move(completions), port, options);
    }
    result<std::unique_ptr<fabric::memory_window>> allocate_window() override {
        return beneath_->allocate_window();
    }
    [[nodiscard]] int event_descriptor() const noexcept override {
        return beneath_->event_descriptor();
    }
    std::optional<fabric::async_event> next_event() override { return beneath_->next_event(); }

private:
    std::shared_ptr<device> beneath_;
};

class dmabuf_provider final : public fabric::provider {
public:
    explicit dmabuf_provider(fabric::provider& beneath) : beneath_(beneath) {}
    [[nodiscard]] std::string_view name() const noexcept override { return beneath_.name(); }
    [[nodiscard]] result<std::vector<route::device_facts>> list() override {
        return beneath_.list();
    }
    result<std::shared_ptr<fabric::device>> open(std::string_view device_name) override {
        auto opened = beneath_.open(device_name);
        if (!opened) return opened;
        return std::shared_ptr<fabric::device>(
            std::make_shared<dmabuf_device>(std::move(opened.value())));
    }

private:
    fabric::provider& beneath_;
};

BOOST_FIXTURE_TEST_CASE(contract_5_3_register_dmabuf_serves_what_the_descriptor_maps, sim_nodes) {
    auto nic = net.attach(sim::roce_host("gpu", sim::ipv4_gid(10, 0, 0, 4)));
    dmabuf_provider provider(*nic);
    auto n = start_node_on(&provider, patient({})).value();
    std::optional<region> r;
    {
        const shared_file file(medium);
        r.emplace(n.register_dmabuf(file.fd, 4096, medium - 4096).value());
    }  // the descriptor may be closed
    const auto from = n.url_of(n.stage_region(*r, 0, medium - 4096).value());
    const auto got = consumer->get(from, {.policy = path_policy::require}).value();
    BOOST_TEST(got.report.path == path::rdma);
    check_pattern(got.data.bytes(), 4096);
    check_outcome(r->unregister(), unregister_outcome::drained);
    BOOST_TEST(consumer->shutdown(20s));
    BOOST_TEST(n.shutdown(20s));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace rvget::test
