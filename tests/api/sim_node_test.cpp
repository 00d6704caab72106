// Two nodes over real TCP and a simulated NIC that runs in a thread of its own: the RDMA path with
// real threads and clocks. Stopping that thread holds every DMA back.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "api/nodes_on_sim.hpp"
#include "api/raw_peer.hpp"
#include "api/scripted_owner.hpp"
#include "base/crc32c.hpp"
#include "base/log.hpp"
#include "support/rogue_consumer.hpp"

namespace rvget::test {
namespace {

/// Grants leases while no NIC moves: a window would have to be bound first.
struct held_back_nodes : sim_nodes {
    held_back_nodes() : sim_nodes(with_keys(lease_key_choice::fence)) {}
};

/// Whether its metrics have this line.
bool tells(const node& n, const std::string& line) {
    return n.metrics().find("\n" + line + "\n") != std::string::npos;
}

path expected_path(std::size_t bytes) {
    return bytes <= 4096 ? path::inline_answer : bytes < 65536 ? path::chunked : path::rdma;
}

void check_report(const transfer_report& r, std::size_t bytes) {
    const auto p = expected_path(bytes);
    BOOST_TEST(r.path == p);
    BOOST_TEST(r.bytes == bytes);
    if (p != path::rdma) return;
    BOOST_TEST(r.reason == reason::ok);
    BOOST_TEST(r.device == "sim0");
    BOOST_TEST(r.port == 1);
    BOOST_TEST(r.path_mtu == 1024u);
    BOOST_TEST(!r.gid.empty());
}

BOOST_FIXTURE_TEST_SUITE(transfers, sim_nodes)

BOOST_AUTO_TEST_CASE(contract_2_3_get_of_every_size_takes_its_path) {
    BOOST_TEST(owner->rdma().device == "sim0");
    for (const auto size : transfer_sizes) {
        const auto got = consumer->get(stage(size)).value();
        BOOST_TEST(got.data.size() == size);
        check_pattern(got.data.bytes());
        check_report(got.report, size);
        BOOST_TEST(got.report.copied_bytes == (got.report.path == path::chunked ? 0 : size));
    }
}

BOOST_AUTO_TEST_CASE(contract_2_1_get_pinned_over_rdma_copies_nothing) {
    for (const auto size : transfer_sizes) {
        const auto before = consumer->statistics().bytes_copied;
        const auto got = consumer->get_pinned(stage(size)).value();
        check_report(got.report, size);
        check_pattern(got.data.bytes());
        BOOST_TEST(got.data.registered() == (size > 0));
        const auto copied = consumer->statistics().bytes_copied - before;
        BOOST_TEST(copied == (got.report.path == path::inline_answer ? size : 0));
    }
}

BOOST_AUTO_TEST_CASE(contract_2_1_get_into_a_region_copies_nothing) {
    std::vector<std::byte> memory(large + 100, std::byte{0xee});
    auto registered = consumer->register_region(memory).value();
    for (const auto size : transfer_sizes) {
        const auto before = consumer->statistics().bytes_copied;
        const auto destination = std::span(memory).subspan(50, size);
        const auto got = consumer->get_into(stage(size), destination).value();
        check_report(got.report, size);
        check_pattern(destination);
        const auto copied = consumer->statistics().bytes_copied - before;
        BOOST_TEST(copied == (got.report.path == path::inline_answer ? size : 0));
    }
    BOOST_TEST((memory[49] == std::byte{0xee} && memory[50 + large] == std::byte{0xee}));
    BOOST_TEST(registered.unregister().wait_for(20s));
}

BOOST_AUTO_TEST_CASE(get_into_plain_memory_goes_over_a_bounce_buffer) {
    std::vector<std::byte> memory(medium);
    const auto got = consumer->get_into(stage(medium), memory).value();
    BOOST_TEST(got.report.path == path::rdma);
    BOOST_TEST(got.report.copied_bytes == medium);
    check_pattern(memory);
    // A region that holds only part of the destination does not help.
    auto part = consumer->register_region(std::span(memory).first(medium - 1)).value();
    BOOST_TEST(consumer->get_into(stage(medium), memory)->report.copied_bytes == medium);
    BOOST_TEST(part.unregister().wait_for(20s));
}

BOOST_AUTO_TEST_CASE(range_over_rdma_begins_and_ends_where_it_should) {
    const auto from = stage(medium);
    for (const std::uint64_t offset : {0, 1, 4097, 900'000}) {
        const auto got = consumer->get(from, {.offset = offset, .length = 100'001}).value();
        BOOST_TEST(got.report.path == path::rdma);
        BOOST_TEST(got.data.size() == 100'001u);
        check_pattern(got.data.bytes(), offset);
    }
}

BOOST_AUTO_TEST_CASE(concurrent_gets_each_get_their_bytes) {
    const std::size_t sizes[] = {65536, 100, 300'000, 5000};
    std::vector<url> urls;
    for (const auto size : sizes) urls.push_back(stage(size));
    constexpr std::size_t gets = 200;
    answers done;
    std::atomic<std::size_t> good{0};
    std::atomic<std::size_t> by_rdma{0};
    for (std::size_t i = 0; i < gets; ++i)
        consumer->async_get(urls[i % 4], {}, [&, i](error_code ec, const get_result& r) {
            good += !ec && r.data.size() == sizes[i % 4] &&
                    pattern_mismatch(r.data.bytes()) == sizes[i % 4];
            by_rdma += r.report.path == path::rdma;
            done.add(i, ec);
        });
    BOOST_REQUIRE(done.wait_for(gets));
    BOOST_TEST(done.each_once());
    BOOST_TEST(good == gets);
    BOOST_TEST(by_rdma == gets / 2);
}

BOOST_AUTO_TEST_CASE(contract_1_1_both_nodes_own_and_consume_at_once) {
    const auto there = stage(medium);
    const auto here = consumer->url_of(consumer->stage_pinned(payload(medium)).value());
    constexpr std::size_t gets = 20;
    answers done;
    std::atomic<std::size_t> good{0};
    for (std::size_t i = 0; i < gets; ++i) {
        auto& n = i % 2 == 0 ? *consumer : *owner;
        n.async_get_pinned(i % 2 == 0 ? there : here, {},
                           [&, i](error_code ec, const get_pinned_result& r) {
                               good += !ec && r.report.path == path::rdma &&
                                       pattern_mismatch(r.data.bytes()) == medium;
                               done.add(i, ec);
                           });
    }
    BOOST_REQUIRE(done.wait_for(gets));
    BOOST_TEST(good == gets);
}

BOOST_AUTO_TEST_CASE(node_reads_from_itself) {
    const auto got = owner->get(stage(medium)).value();
    BOOST_TEST(got.report.path == path::rdma);
    check_pattern(got.data.bytes());
}

BOOST_AUTO_TEST_CASE(contract_1_4_metadata_says_pinned) {
    const auto from = stage(medium);
    BOOST_TEST(owner->metadata(from.handle)->pinned);
    BOOST_TEST(consumer->metadata(from)->pinned);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(reasons)

BOOST_FIXTURE_TEST_CASE(contract_2_4_plain_slot_is_not_pinned, sim_nodes) {
    const auto from = owner->url_of(owner->stage(payload(medium)).value());
    const auto got = consumer->get(from).value();
    BOOST_TEST(got.report.path == path::chunked);
    BOOST_TEST(got.report.reason == reason::not_pinned);
    const auto refused = consumer->get(from, {.policy = path_policy::require});
    BOOST_REQUIRE(!refused);
    BOOST_TEST(refused.error().code == make_error_code(request_errc::not_pinned));
}

BOOST_FIXTURE_TEST_CASE(contract_2_4_small_range_is_below_min_unless_required, sim_nodes) {
    const auto from = stage(5000);
    BOOST_TEST(consumer->get(from)->report.reason == reason::below_min);
    for (const std::size_t length : {1, 4096, 5000}) {
        const auto got =
            consumer->get(from, {.length = length, .policy = path_policy::require}).value();
        BOOST_TEST(got.report.path == path::rdma);
        BOOST_TEST(got.data.size() == length);
        check_pattern(got.data.bytes());
    }
    const auto nothing = consumer->get(from, {.length = 0, .policy = path_policy::require}).value();
    BOOST_TEST(nothing.report.path == path::inline_answer);
}

BOOST_FIXTURE_TEST_CASE(contract_2_4_policy_never_makes_no_offer, sim_nodes) {
    const auto got = consumer->get(stage(medium), {.policy = path_policy::never}).value();
    BOOST_TEST(got.report.path == path::chunked);
    BOOST_TEST(got.report.reason == reason::policy);
    check_pattern(got.data.bytes());
}

BOOST_AUTO_TEST_CASE(contract_3_5_kill_switch_works_on_either_side) {
    node_options off;
    off.rdma_disabled = true;
    for (const bool at_owner : {true, false}) {
        sim_nodes n(at_owner ? off : node_options{}, at_owner ? node_options{} : off);
        const auto from = n.stage(medium);
        const auto got = n.consumer->get(from).value();
        BOOST_TEST(got.report.path == path::chunked);
        BOOST_TEST(got.report.reason == reason::kill_switch);
        const auto refused = n.consumer->get(from, {.policy = path_policy::require});
        BOOST_REQUIRE(!refused);
        BOOST_TEST(refused.error().message().find("kill_switch") != std::string::npos);
    }
}

BOOST_AUTO_TEST_CASE(contract_3_3_budget_that_is_used_up_falls_back_on_either_side) {
    node_options tight;
    tight.registered_budget_bytes = tight.max_arena_bytes = tight.first_arena_bytes = std::size_t{1}
                                                                                      << 20;
    sim_nodes n(tight, tight);
    const auto staged = n.owner->make_staging(large).value();
    BOOST_TEST(!staged.pinned());
    BOOST_TEST(staged.why_plain() == reason::budget);
    // 600 kB fit the owner once; the consumer's pool is full while it holds the first.
    const auto from = n.stage(600'000);
    const auto held = n.consumer->get_pinned(from).value();
    BOOST_TEST(held.report.path == path::rdma);
    const auto second = n.consumer->get(from).value();
    BOOST_TEST(second.report.path == path::chunked);
    BOOST_TEST(second.report.reason == reason::pool_exhausted);
    check_pattern(second.data.bytes());
}

BOOST_AUTO_TEST_CASE(contract_5_1_exact_keys_beyond_the_budget_fall_back) {
    auto tight = with_keys(lease_key_choice::exact);
    tight.registered_budget_bytes = tight.max_arena_bytes = tight.first_arena_bytes = std::size_t{1}
                                                                                      << 20;
    sim_nodes n(tight);
    const auto got = n.consumer->get(n.stage(600'000)).value();
    BOOST_TEST(got.report.path == path::chunked);
    BOOST_TEST(got.report.reason == reason::registration);
    BOOST_TEST(got.report.detail.find("budget") != std::string::npos, got.report.detail);
    check_pattern(got.data.bytes());
}

BOOST_AUTO_TEST_CASE(contract_5_1_gets_beyond_the_bounce_budget_fall_back) {
    node_options narrow;
    narrow.bounce_budget_bytes = medium - 1;
    sim_nodes n({}, narrow);
    const auto from = n.stage(medium);
    const auto bounced = n.consumer->get(from).value();
    BOOST_TEST(bounced.report.path == path::chunked);
    BOOST_TEST(bounced.report.reason == reason::pool_exhausted);
    check_pattern(bounced.data.bytes());
    BOOST_TEST(n.consumer->get_pinned(from)->report.path == path::rdma);  // it passes nowhere
}

BOOST_AUTO_TEST_CASE(contract_5_4_arenas_that_nobody_uses_go_back_after_their_time) {
    node_options brief;
    brief.first_arena_bytes = std::size_t{1} << 20;
    brief.arena_idle_time = 1ms;
    brief.warm_floor_bytes = 0;
    sim_nodes n({}, brief);
    const auto from = n.stage(large);
    BOOST_TEST(n.consumer->get_pinned(from)->report.path == path::rdma);
    const auto end = std::chrono::steady_clock::now() + patience;
    while (n.consumer->statistics().registered_bytes != 0 && std::chrono::steady_clock::now() < end)
        std::this_thread::yield();
    BOOST_TEST(n.consumer->statistics().registered_bytes == 0u);
    BOOST_TEST(n.consumer->get_pinned(from)->report.path == path::rdma);  // and come again
}

BOOST_AUTO_TEST_CASE(pool_grows_for_what_it_has_no_room_for) {
    sim_nodes n(small_arena(), small_arena());
    const auto got = n.consumer->get_pinned(n.stage(large)).value();
    BOOST_TEST(got.report.path == path::rdma);
    BOOST_TEST(got.data.registered());
    check_pattern(got.data.bytes());
    BOOST_TEST(n.consumer->statistics().registered_bytes >= large);
}

BOOST_FIXTURE_TEST_CASE(contract_3_4_failed_read_falls_back_once_with_the_right_bytes, sim_nodes) {
    warm_up();
    plan->fail_read(plan->reads() + 1, fabric::completion_status::retry_exceeded);
    const auto from = stage(medium);
    const auto got = consumer->get(from).value();
    BOOST_TEST(got.report.path == path::chunked);
    BOOST_TEST(got.report.reason == reason::get_failed);
    BOOST_TEST(got.report.detail.find("retry") != std::string::npos, got.report.detail);
    check_pattern(got.data.bytes());
    BOOST_TEST(consumer->statistics().queue_pairs_failed == 1u);
    // A new queue pair is made, after its backoff.
    const auto end = std::chrono::steady_clock::now() + patience;
    auto last = path::chunked;
    while (last != path::rdma && std::chrono::steady_clock::now() < end)
        last = consumer->get(from)->report.path;
    BOOST_TEST(last == path::rdma);
}

/// Bytes that change between the owner's checksum and the READ: what a NIC, a bus or a memory that
/// fails looks like.
struct changed_under_a_read : held_back_nodes {
    changed_under_a_read() {
        warm_up();
        auto s = owner->make_staging(medium).value();
        std::ranges::copy(payload(medium), s.bytes().begin());
        staged = s.bytes();
        from = owner->url_of(owner->stage(std::move(s)).value());
    }
    [[nodiscard]] into_answer get_changed(std::span<std::byte> into, get_options o) {
        o.checksum = true;
        hold_dma();
        auto answer = get_into(*consumer, from, into, o);
        await_dma(into);
        staged[medium / 2] ^= std::byte{1};
        release_dma();
        return answer.get();
    }
    std::span<std::byte> staged;
    url from;
};

BOOST_FIXTURE_TEST_CASE(contract_2_5_checksum_of_a_read_is_reported, changed_under_a_read) {
    get_options o;
    o.checksum = true;
    const auto got = consumer->get(from, o);
    BOOST_REQUIRE_MESSAGE(got, got.error().message());
    BOOST_TEST(got->report.path == path::rdma);
    BOOST_TEST((got->report.crc32c == crc32c(payload(medium))));
}

BOOST_FIXTURE_TEST_CASE(contract_2_5_checksum_mismatch_of_a_read_is_retried_in_chunks,
                        changed_under_a_read) {
    std::vector<std::byte> into(medium);
    auto region = consumer->register_region(into).value();
    const auto answer = get_changed(into, {});
    BOOST_REQUIRE_MESSAGE(!answer.code, answer.code.message());
    BOOST_TEST(answer.result.report.path == path::chunked);
    BOOST_TEST(answer.result.report.reason == reason::get_failed);
    BOOST_TEST((answer.result.report.crc32c == crc32c(staged)));
    BOOST_TEST(std::ranges::equal(into, staged));
    BOOST_TEST(region.unregister().wait_for(20s));
}

BOOST_FIXTURE_TEST_CASE(contract_2_5_checksum_mismatch_under_require_is_an_error,
                        changed_under_a_read) {
    std::vector<std::byte> into(medium);
    auto region = consumer->register_region(into).value();
    const auto answer = get_changed(into, {.policy = path_policy::require});
    BOOST_TEST(answer.code == make_error_code(request_errc::checksum));
    BOOST_TEST(answer.result.report.detail.find("CRC-32C") != std::string::npos);
    BOOST_TEST(region.unregister().wait_for(20s));
}

BOOST_FIXTURE_TEST_CASE(contract_9_1_ok_counts_completed_reads_alone, held_back_nodes) {
    const std::string ok =
        "rvget_path_decisions_total{side=\"consumer\",path=\"rdma\",reason=\"ok\"} ";
    const auto from = stage(medium);
    BOOST_REQUIRE(consumer->get(from)->report.path == path::rdma);
    BOOST_TEST(consumer->metrics().find(ok + "1\n") != std::string::npos);
    BOOST_REQUIRE(consumer->get(stage(100)));
    // One that nobody waited for: its READ completes, its caller has got an error.
    hold_dma();
    std::vector<std::byte> into(medium);
    auto region = consumer->register_region(into).value();
    cancellable_get late(*this, from, into);
    const auto over = late.cancel();
    release_dma();
    BOOST_TEST(over.wait_for(20s));
    BOOST_TEST(region.unregister().wait_for(20s));
    plan->fail_read(plan->reads() + 1, fabric::completion_status::remote_access);
    BOOST_REQUIRE(consumer->get(from)->report.path == path::chunked);
    const auto text = consumer->metrics();
    BOOST_TEST(text.find(ok + "1\n") != std::string::npos, text);
    BOOST_TEST(text.find("rvget_completion_errors_total{status=\"remote_access_error\"} 1\n") !=
               std::string::npos);
    BOOST_TEST(owner->metrics().find(
                   "rvget_path_decisions_total{side=\"owner\",path=\"rdma\",reason=\"ok\"} ") !=
               std::string::npos);
    BOOST_TEST(text.find("rvget_wireup_duration_seconds_count 0\n") == std::string::npos);
    BOOST_TEST(tells(*consumer, "rvget_gets_total{result=\"ok\"} 1"));
    BOOST_TEST(tells(*consumer, "rvget_gets_total{result=\"other_path\"} 2"));
    BOOST_TEST(tells(*consumer, "rvget_gets_total{result=\"error\"} 1"));
}

BOOST_FIXTURE_TEST_CASE(contract_9_1_ok_for_another_path_than_rdma_is_a_protocol_error, sim_nodes) {
    const scripted_owner liar([](const raw_socket& s) {
        while (const auto asked = s.read_frame()) {
            if (!std::holds_alternative<wire::acquire>(asked->frame.body)) continue;
            wire::acquire_reply r;
            r.answer = wire::answer::chunked;
            r.why = reason::ok;
            r.slot_bytes = r.range_bytes = medium;
            r.lease = 5;
            r.duration_ms = 10'000;
            s.write(wire::frame{asked->frame.id, r});
        }
    });
    const auto got = consumer->get(liar.target(), {.deadline = 20s});
    BOOST_TEST(consumer->shutdown(20s));  // ends the script
    BOOST_REQUIRE(!got);
    BOOST_TEST(got.error().code == make_error_code(connection_errc::protocol),
               got.error().message());
}

BOOST_FIXTURE_TEST_CASE(contract_9_1_failed_bind_is_a_completion_error_by_status, sim_nodes) {
    warm_up();
    net.set_link("owner", "sim0", 1, false);
    const auto got = consumer->get(stage(medium));
    BOOST_REQUIRE_MESSAGE(got, got.error().message());
    BOOST_TEST(got->report.path == path::chunked);
    BOOST_TEST(tells(
        *owner, "rvget_completion_errors_total{status=\"local_queue_pair_operation_error\"} 1"));
}

BOOST_FIXTURE_TEST_CASE(contract_9_1_memory_regions_and_lease_keys_show_while_they_last,
                        sim_nodes) {
    BOOST_TEST(
        tells(*owner, "rvget_rdma_info{reason=\"ok\",device=\"sim0\",lease_keys=\"window\"} 1"));
    BOOST_TEST(tells(*owner, "rvget_arenas 1"));
    BOOST_TEST(tells(
        *owner, "rvget_registered_bytes " + std::to_string(owner->statistics().registered_bytes)));
    BOOST_TEST(owner->statistics().registered_bytes > 0u);
    BOOST_TEST(tells(*owner, "rvget_arena_used_bytes 0"));
    const auto staged = stage(5000);  // two granules
    BOOST_TEST(tells(*owner, "rvget_arena_used_bytes 8192"));
    BOOST_TEST(owner->release(staged.handle).value() == 0u);
    BOOST_TEST(tells(*owner, "rvget_arena_used_bytes 0"));
    std::vector<std::byte> memory(medium);
    auto region = consumer->register_region(memory).value();
    BOOST_TEST(tells(*consumer, "rvget_regions 1"));
    BOOST_TEST(region.unregister().wait_for(patience));
    BOOST_TEST(tells(*consumer, "rvget_regions 0"));
}

BOOST_AUTO_TEST_CASE(owner_that_gives_no_reason_for_chunks_breaks_the_protocol) {
    sim_nodes n;
    const scripted_owner bad([](const raw_socket& s) {
        while (const auto asked = s.read_frame()) {
            if (!std::holds_alternative<wire::acquire>(asked->frame.body)) continue;
            wire::acquire_reply r;
            r.slot_bytes = r.range_bytes = medium;
            r.lease = 5;
            r.duration_ms = 30'000;
            s.write(wire::frame{asked->frame.id, r});
        }
    });
    const auto got = n.consumer->get(bad.target());
    BOOST_TEST(n.consumer->shutdown(20s));  // ends the script
    BOOST_REQUIRE(!got);
    BOOST_TEST(got.error().code == make_error_code(connection_errc::protocol));
}

BOOST_FIXTURE_TEST_CASE(contract_9_2_failed_read_under_require_is_an_error, sim_nodes) {
    warm_up();
    plan->fail_read(plan->reads() + 1, fabric::completion_status::remote_access);
    const auto got = consumer->get(stage(medium), {.policy = path_policy::require});
    BOOST_REQUIRE(!got);
    BOOST_TEST(got.error().code == make_error_code(connection_errc::queue_pair));
    BOOST_TEST(got.error().detail.find("sim0") != std::string::npos);
}

/// Of gets side by side one is refused its READ, whose queue pair takes the others' down with it.
void refuse_one_of_many(lease_key_choice keys, path_policy policy) {
    constexpr std::size_t gets = 50;
    sim_nodes n(with_keys(keys));
    n.warm_up();
    const auto from = n.stage(medium);
    n.plan->fail_read(n.plan->reads() + 10, fabric::completion_status::remote_access);
    answers done;
    std::atomic<std::size_t> by_rdma{0};
    std::atomic<std::size_t> by_chunks{0};
    for (std::size_t i = 0; i < gets; ++i)
        n.consumer->async_get(from, {.policy = policy}, [&, i](error_code ec, const get_result& r) {
            if (!ec && is_pattern(r.data.bytes()))
                ++(r.report.path == path::rdma ? by_rdma : by_chunks);
            done.add(i, ec);
        });
    BOOST_REQUIRE(done.wait_for(gets));
    BOOST_TEST(done.each_once());
    BOOST_TEST(by_rdma == gets - 1);
    BOOST_TEST(by_chunks == (policy == path_policy::require ? 0u : 1u));
    const auto rekeyed = n.consumer->statistics().gets_rekeyed;
    BOOST_TEST(rekeyed > 0u);
    BOOST_TEST(tells(*n.consumer, "rvget_rekeys_total " + std::to_string(rekeyed)));
    BOOST_TEST(n.owner->statistics().leases_expired == 0u);
}

BOOST_AUTO_TEST_CASE(contract_4_4_gets_beside_a_refused_read_are_rekeyed_with_windows) {
    refuse_one_of_many(lease_key_choice::window, path_policy::prefer);
    refuse_one_of_many(lease_key_choice::window, path_policy::require);
}
BOOST_AUTO_TEST_CASE(contract_4_4_gets_beside_a_refused_read_are_rekeyed_with_exact_keys) {
    refuse_one_of_many(lease_key_choice::exact, path_policy::prefer);
    refuse_one_of_many(lease_key_choice::exact, path_policy::require);
}
BOOST_AUTO_TEST_CASE(contract_4_4_gets_beside_a_refused_read_are_rekeyed_with_shared_keys) {
    refuse_one_of_many(lease_key_choice::fence, path_policy::prefer);
    refuse_one_of_many(lease_key_choice::fence, path_policy::require);
}

BOOST_FIXTURE_TEST_CASE(contract_3_4_failed_read_into_a_region_falls_back_into_the_region,
                        sim_nodes) {
    warm_up();
    std::vector<std::byte> memory(large);
    auto registered = consumer->register_region(memory).value();
    plan->fail_read(plan->reads() + 3, fabric::completion_status::remote_operation);
    const auto got = consumer->get_into(stage(large), memory).value();
    BOOST_TEST(got.report.path == path::chunked);
    BOOST_TEST(got.report.reason == reason::get_failed);
    check_pattern(memory);
    BOOST_TEST(registered.unregister().wait_for(20s));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(held_back)

BOOST_FIXTURE_TEST_CASE(contract_2_2_deadline_under_a_read_answers_at_once_and_parks_the_region,
                        held_back_nodes) {
    warm_up();
    const auto from = stage(medium);
    std::vector<std::byte> memory(2 * medium, std::byte{0xee});
    auto registered = consumer->register_region(memory).value();
    const auto destination = std::span(memory).first(medium);
    hold_dma();
    const auto late = get_into(*consumer, from, destination, {.deadline = 500ms}).get();
    BOOST_TEST(late.code == make_error_code(request_errc::deadline_exceeded));
    BOOST_TEST(!late.result.quiet.resolved());
    BOOST_TEST(net.dma_pending_into(destination));

    const auto again = get_into(*consumer, from, destination, {.deadline = 500ms}).get();
    BOOST_TEST(again.code == make_error_code(request_errc::buffer_busy));
    BOOST_TEST(again.result.quiet.resolved());  // this one never began
    // What does not overlap is free.
    const auto beside =
        get_into(*consumer, from, std::span(memory).last(medium), {.policy = path_policy::never})
            .get();
    BOOST_TEST(!beside.code);
    check_pattern(std::span(memory).last(medium));

    const auto unregistered = registered.unregister();
    BOOST_TEST(!unregistered.resolved());
    BOOST_TEST(!unregistered.wait_for(1ms));
    BOOST_TEST(!late.result.quiet.wait_for(1ms));
    std::promise<void> told;
    late.result.quiet.on_resolved([&] { told.set_value(); });

    release_dma();
    BOOST_TEST(late.result.quiet.wait_for(patience));
    BOOST_TEST(unregistered.wait_for(patience));
    BOOST_TEST((told.get_future().wait_for(patience) == std::future_status::ready));
    BOOST_TEST(!net.dma_pending_into(memory));
    std::ranges::fill(memory, std::byte{0xee});
    BOOST_TEST(get_into(*consumer, from, destination).get().result.bytes == medium);
    check_pattern(destination);
}

BOOST_FIXTURE_TEST_CASE(contract_2_2_deadline_under_a_read_leaves_plain_memory_free_at_once,
                        held_back_nodes) {
    warm_up();
    const auto from = stage(medium);
    std::vector<std::byte> memory(medium, std::byte{0xee});
    hold_dma();
    const auto late = get_into(*consumer, from, memory, {.deadline = 500ms}).get();
    BOOST_TEST(late.code == make_error_code(request_errc::deadline_exceeded));
    BOOST_TEST(late.result.quiet.resolved());
    const auto chunked = get_into(*consumer, from, memory, {.policy = path_policy::never}).get();
    BOOST_TEST(!chunked.code);
    check_pattern(memory);
    std::ranges::fill(memory, std::byte{0xee});
    release_dma();
    BOOST_TEST(consumer->get(from)->report.path == path::rdma);  // behind the late READ
    BOOST_TEST(std::ranges::all_of(memory, [](std::byte b) { return b == std::byte{0xee}; }));
}

BOOST_FIXTURE_TEST_CASE(contract_2_2_cancel_under_a_read_leaves_the_others_alone, held_back_nodes) {
    warm_up();
    const auto from = stage(medium);
    std::vector<std::byte> memory(medium);
    auto registered = consumer->register_region(memory).value();
    hold_dma();
    cancellable_get get(*this, from, memory);
    answers done;
    bool good = false;
    consumer->async_get(from, {}, [&](error_code ec, const get_result& r) {
        good = !ec && is_pattern(r.data.bytes());
        done.add(0, ec);
    });
    const auto parked = get.cancel();
    BOOST_TEST(!parked.resolved());
    BOOST_TEST(done.count() == 0u);
    release_dma();
    BOOST_TEST(parked.wait_for(patience));
    BOOST_REQUIRE(done.wait_for(1));
    BOOST_TEST(good);
    BOOST_TEST(consumer->statistics().queue_pairs_failed == 0u);  // cancelling never touches it
    BOOST_TEST(registered.unregister().wait_for(patience));
}

BOOST_FIXTURE_TEST_CASE(contract_5_3_region_dropped_under_a_read_is_deregistered_behind_it,
                        held_back_nodes) {
    warm_up();
    std::vector<std::byte> memory(medium);
    std::future<into_answer> got;
    {
        auto registered = consumer->register_region(memory).value();
        hold_dma();
        got = get_into(*consumer, stage(medium), memory);
        await_dma(memory);
    }
    release_dma();
    const auto answer = got.get();
    BOOST_TEST(!answer.code);
    BOOST_TEST(answer.result.report.copied_bytes == 0u);
    check_pattern(memory);  // the fixture looks for a deregistration under a READ
}

BOOST_AUTO_TEST_CASE(contract_4_3_abandoned_lease_is_fenced_and_its_slot_freed) {
    sim_nodes n(short_lived(), short_lived());
    n.warm_up();
    const auto from = n.stage(medium);
    std::vector<std::byte> memory(medium);
    auto registered = n.consumer->register_region(memory).value();
    const auto slots = n.owner->statistics().slots;
    const auto begin = std::chrono::steady_clock::now();
    n.hold_dma();
    const auto parked = cancellable_get(n, from, memory).cancel();
    BOOST_TEST(n.owner->release(from.handle).value() == 0u);
    auto s = n.owner->statistics();
    while (s.slots == slots && std::chrono::steady_clock::now() - begin < patience)
        s = n.owner->statistics();
    BOOST_TEST(s.slots == slots - 1);
    BOOST_TEST(s.leases_expired >= 1u);
    BOOST_TEST((std::chrono::steady_clock::now() - begin >= short_lease));  // not before its end
    BOOST_TEST(!parked.resolved());
    n.release_dma();
    BOOST_TEST(parked.wait_for(patience));
    BOOST_TEST(registered.unregister().wait_for(patience));
    // Its identity stays fenced, and is served chunks.
    const auto got = n.consumer->get(n.stage(medium));
    BOOST_REQUIRE_MESSAGE(got, got.error().message());
    BOOST_TEST(got->report.path == path::chunked);
    check_pattern(got->data.bytes());
}

/// What every kind of key but the shared one promises.
void late_read_is_refused(lease_key_choice keys) {
    auto o = short_lived();
    o.lease_keys = keys;
    sim_nodes n(o, short_lived());
    BOOST_TEST((n.owner->rdma().lease_keys == keys));
    const auto from = n.stage(medium);
    const auto innocent = n.stage(medium);
    auto nic = n.net.attach(sim::roce_host("rogue", sim::ipv4_gid(10, 0, 0, 3)));
    {
        rogue_consumer rogue(*nic, connect_raw(*n.owner->address()), medium);
        const auto lease = rogue.lease(from.handle.slot);
        const auto key = lease.keys.front().remote_key;
        BOOST_TEST((rogue.read(lease.address, key, medium) == fabric::completion_status::success));
        check_pattern(rogue.sink());
        const auto end = std::chrono::steady_clock::now() + patience;
        while (rogue.metadata(from.handle.slot).leases != 0 &&
               std::chrono::steady_clock::now() < end)
            std::this_thread::yield();
        BOOST_TEST(n.owner->statistics().leases_expired == 1u);
        BOOST_TEST(tells(*n.owner, "rvget_leases_expired_total 1"));
        BOOST_TEST(tells(*n.owner, "rvget_revocations_total 1"));
        BOOST_TEST(
            (rogue.read(lease.address, key, medium) == fabric::completion_status::remote_access));
        BOOST_TEST(rogue.sink_untouched());
        rogue.drop_lane();
        static_cast<void>(rogue.lease(innocent.handle.slot));  // another queue pair
        BOOST_TEST(
            (rogue.read(lease.address, key, medium) == fabric::completion_status::remote_access));
        BOOST_TEST(rogue.sink_untouched());
    }
    const auto got = n.consumer->get(innocent);
    BOOST_REQUIRE_MESSAGE(got, got.error().message());
    BOOST_TEST(got->report.path == path::rdma, got->report.detail);
}

BOOST_AUTO_TEST_CASE(contract_4_1_lease_shorter_than_the_retry_window_falls_back_at_once) {
    sim_nodes n(short_lived());  // the consumer's window is longer than the owner's leases
    const auto got = n.consumer->get(n.stage(medium), {.deadline = patience});
    BOOST_REQUIRE_MESSAGE(got, got.error().message());
    BOOST_TEST(got->report.path == path::chunked);
    BOOST_TEST(got->report.reason == reason::lease_lost);
    BOOST_TEST(got->report.detail.find("raise lease_timeout there") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(contract_4_3_late_read_with_a_windows_key_is_refused) {
    late_read_is_refused(lease_key_choice::window);
}

BOOST_AUTO_TEST_CASE(contract_4_3_late_read_with_an_exact_key_is_refused) {
    late_read_is_refused(lease_key_choice::exact);
}

BOOST_AUTO_TEST_CASE(contract_6_4_no_log_line_holds_a_handle_or_a_key) {
    std::mutex mutex;
    std::string lines;
    set_log_sink([&](log_level, std::string_view line) {
        const std::lock_guard lock(mutex);
        (lines += line) += '\n';
    });
    set_log_level(log_level::trace);
    std::uint64_t slot = 0;
    std::uint32_t key = 0;
    {
        auto o = short_lived();
        o.lease_keys = lease_key_choice::window;
        sim_nodes n(o, short_lived());
        const auto from = n.stage(medium);
        slot = from.handle.slot;
        auto nic = n.net.attach(sim::roce_host("rogue", sim::ipv4_gid(10, 0, 0, 3)));
        rogue_consumer rogue(*nic, connect_raw(*n.owner->address()), medium);
        const auto lease = rogue.lease(slot);
        key = lease.keys.front().remote_key;
        const auto end = std::chrono::steady_clock::now() + patience;
        while (rogue.metadata(slot).leases != 0 && std::chrono::steady_clock::now() < end)
            std::this_thread::yield();
        BOOST_TEST(
            (rogue.read(lease.address, key, medium) == fabric::completion_status::remote_access));
        n.plan->fail_read(1, fabric::completion_status::retry_exceeded);
        BOOST_TEST(n.consumer->get(from)->report.path == path::chunked);
        auto missing = from;
        ++missing.handle.slot;
        BOOST_TEST(!n.consumer->get(missing));
        BOOST_TEST(n.owner->release(from.handle).value() == 0u);
    }
    set_log_level(log_level::info);
    set_log_sink({});
    BOOST_TEST(lines.find("state=failed") != std::string::npos);  // there was something to say
    std::array<char, 9> hex{};
    std::snprintf(hex.data(), hex.size(), "%x", key);
    for (const std::string& never : {handle{{}, slot}.to_string().substr(16), std::to_string(slot),
                                     std::to_string(key), std::string(hex.data())})
        BOOST_TEST(lines.find(never) == std::string::npos, lines);
}

BOOST_AUTO_TEST_CASE(contract_5_2_device_that_cannot_take_a_window_away_gets_exact_keys) {
    sim::network net;
    net.run_in_background(true);
    auto plan = std::make_shared<fault::plan>();
    plan->fail(fault::call::post_invalidate, 1, {device_errc::post_failed, "planned"});
    auto nic = fault::make_fault_provider(
        net.attach(sim::roce_host("half", sim::ipv4_gid(10, 0, 0, 5))), plan);
    const auto owner = start_node_on(nic.get(), patient({})).value();
    BOOST_TEST((owner.rdma().lease_keys == lease_key_choice::exact));
    BOOST_TEST(owner.rdma().lease_keys_detail.find("window: planned") != std::string::npos,
               owner.rdma().lease_keys_detail);
}

BOOST_AUTO_TEST_CASE(contract_5_2_device_without_windows_gets_exact_keys) {
    auto host = sim::roce_host("plain", sim::ipv4_gid(10, 0, 0, 4));
    host.devices.front().facts.memory_windows_type2 = false;
    sim::network net;
    net.run_in_background(true);
    auto nic = net.attach(host);
    auto owner = start_node_on(nic.get(), patient({})).value();
    BOOST_TEST((owner.rdma().lease_keys == lease_key_choice::exact));
    BOOST_TEST(owner.rdma().lease_keys_detail.find("no type-2") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(contract_4_1_lease_of_a_slow_read_is_renewed) {
    sim_nodes n(short_lived(), short_lived());
    n.warm_up();
    const auto from = n.stage(medium);
    n.hold_dma();
    const auto begin = std::chrono::steady_clock::now();
    auto got = get_into(*n.consumer, from, {}, {.length = 0});  // nothing to wait for
    BOOST_TEST(!got.get().code);
    std::vector<std::byte> memory(medium);
    got = get_into(*n.consumer, from, memory);
    // Three lease times: without renewals the owner would have fenced it.
    while (std::chrono::steady_clock::now() - begin < 3 * short_lease)
        BOOST_REQUIRE(n.owner->statistics().leases_expired == 0);
    n.release_dma();
    const auto answer = got.get();
    BOOST_TEST(!answer.code);
    BOOST_TEST(answer.result.report.path == path::rdma);
    check_pattern(memory);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(scripted_consumer)

/// Speaks frames as a consumer would, over queue pairs that are not there.
struct frames_of_a_consumer {
    explicit frames_of_a_consumer(const node& owner) : link(connect_raw(*owner.address())) {
        link.write(wire::frame{0, wire::hello{.node = {0x1234}}});
        BOOST_REQUIRE(link.read_frame().has_value());
    }
    template <class Reply>
    Reply ask(wire::body request) {
        link.write(wire::frame{++last, std::move(request)});
        for (;;) {
            const auto got = link.read_frame();
            BOOST_REQUIRE(got.has_value());
            note(got->frame);
            if (got->frame.id == last) return std::get<Reply>(got->frame.body);
        }
    }
    void note(const wire::frame& f) {
        if (const auto* down = std::get_if<wire::lane_down>(&f.body)) lanes_down.push_back(*down);
    }
    void await_lane_down() {
        const auto before = lanes_down.size();
        while (lanes_down.size() == before) {
            const auto got = link.read_frame();
            BOOST_REQUIRE(got.has_value());
            note(got->frame);
        }
    }
    [[nodiscard]] static wire::lane_offer offer(std::uint32_t generation) {
        return {generation, 1,
                wire::queue_pair_facts{.number = 0x900 + generation,
                                       .gid = sim::ipv4_gid(10, 0, 0, 2).bytes,
                                       .path_mtu = 1024,
                                       .read_depth = 16}};
    }
    raw_socket link;
    std::uint64_t last = 0;
    std::vector<wire::lane_down> lanes_down;
};

BOOST_FIXTURE_TEST_CASE(contract_6_5_starting_psns_differ_from_queue_pair_to_queue_pair,
                        sim_nodes) {
    const auto slot = stage(medium).handle.slot;
    std::set<std::uint32_t> of_owner;
    for (int i = 0; i < 4; ++i) {
        frames_of_a_consumer c(*owner);
        const auto reply = c.ask<wire::acquire_reply>(
            wire::acquire{.slot = slot, .deadline_ms = 20'000, .offer = c.offer(1)});
        BOOST_REQUIRE(reply.lane_facts.has_value());
        of_owner.insert(reply.lane_facts->starting_psn);
        c.link.write(wire::frame{0, wire::detach{{reply.lease}}});
    }
    BOOST_TEST(of_owner.size() > 1u);
    std::set<std::uint32_t> of_consumer;
    for (int i = 0; i < 4; ++i) {
        const scripted_owner asked([&](const raw_socket& s) {
            const auto got = s.read_frame();
            if (got)
                if (const auto* a = std::get_if<wire::acquire>(&got->frame.body))
                    of_consumer.insert(a->offer.value().facts.value().starting_psn);
        });
        BOOST_TEST(!consumer->get(asked.target()));
    }
    BOOST_TEST(of_consumer.size() > 1u);
}

void new_key_for_a_lease(lease_key_choice keys) {
    auto o = short_lived();
    o.lease_keys = keys;
    sim_nodes n(o);
    const auto slot = n.stage(medium).handle.slot;
    frames_of_a_consumer a(*n.owner);
    frames_of_a_consumer b(*n.owner);
    const auto acquire = [&](std::optional<wire::lane_offer> offer) {
        return a.ask<wire::acquire_reply>(
            wire::acquire{.slot = slot, .deadline_ms = 20'000, .offer = std::move(offer)});
    };
    const auto leased = acquire(a.offer(1));
    const auto chunks = acquire({});
    BOOST_REQUIRE((leased.answer == wire::answer::rdma));
    const auto first = wire::decode_descriptor(*leased.descriptor).value();
    const auto renew = [](frames_of_a_consumer& c, std::uint64_t lease, std::uint32_t generation) {
        return c.ask<wire::renew_reply>(wire::renew{lease, c.offer(generation)});
    };
    BOOST_TEST(!renew(a, leased.lease, 1).granted);  // the lane that it has
    BOOST_TEST(!renew(b, leased.lease, 1).granted);  // another's
    BOOST_TEST(!renew(a, leased.lease + 9, 2).granted);
    BOOST_TEST(!renew(a, chunks.lease, 2).granted);  // has no key
    const auto again = renew(a, leased.lease, 2);
    BOOST_TEST_REQUIRE(again.granted);
    const auto second = wire::decode_descriptor(*again.descriptor).value();
    BOOST_TEST(second.generation == 2u);
    BOOST_TEST(second.address == first.address);
    BOOST_TEST(second.length == first.length);
    BOOST_TEST(second.lease == leased.lease);
    BOOST_TEST((*again.lane_generation == 2u && again.lane_facts->number != 0));
    const bool shared = keys == lease_key_choice::fence;
    BOOST_TEST((second.keys.front().remote_key == first.keys.front().remote_key) == shared);
    // The lane that it had is gone: what was granted on it reads nothing any more.
    BOOST_REQUIRE(a.lanes_down.size() == 1u);
    BOOST_TEST(a.lanes_down.front().generation == 1u);
    BOOST_TEST(!renew(a, leased.lease, 1).granted);
    BOOST_TEST(!renew(a, leased.lease, 2).granted);  // the one that it has by now
    // With a shared key it is the new lane that has to go when the lease is abandoned.
    if (shared) {
        a.await_lane_down();
        BOOST_TEST(a.lanes_down.back().generation == 2u);
        BOOST_TEST((a.lanes_down.back().why == reason::fenced));
    }
    const auto end = std::chrono::steady_clock::now() + patience;
    while (n.owner->statistics().leases_active != 0 && std::chrono::steady_clock::now() < end)
        std::this_thread::yield();
    BOOST_TEST(n.owner->statistics().leases_expired == 2u);
}

BOOST_AUTO_TEST_CASE(contract_4_4_window_is_bound_anew_for_the_lease_that_asks) {
    new_key_for_a_lease(lease_key_choice::window);
}
BOOST_AUTO_TEST_CASE(contract_4_4_exact_key_is_made_anew_for_the_lease_that_asks) {
    new_key_for_a_lease(lease_key_choice::exact);
}
BOOST_AUTO_TEST_CASE(contract_4_4_lease_with_a_shared_key_is_fenced_on_its_new_queue_pair) {
    new_key_for_a_lease(lease_key_choice::fence);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(endings)

void shut_down_under_load(bool owner_first) {
    sim_nodes n;
    const auto from = n.stage(large);
    constexpr std::size_t gets = 24;
    std::vector<std::byte> memory(8 * medium);
    auto registered = n.consumer->register_region(memory).value();
    answers done;
    std::atomic<int> wrong{0};
    std::atomic<int> parked{0};
    for (std::size_t i = 0; i < gets; ++i) {
        if (i % 3 == 0) {
            const auto d = std::span(memory).subspan(i / 3 * medium, medium);
            n.consumer->async_get_into(from, d, {.length = medium},
                                       [&, i, d](error_code ec, const get_into_result& r) {
                                           wrong += !ec && pattern_mismatch(d) != medium;
                                           if (!r.quiet.resolved()) ++parked;
                                           done.add(i, ec);
                                       });
        } else {
            n.consumer->async_get(from, {}, [&, i](error_code ec, const get_result& r) {
                wrong += !ec && pattern_mismatch(r.data.bytes()) != large;
                done.add(i, ec);
            });
        }
    }
    BOOST_REQUIRE(done.wait_for(3));
    BOOST_TEST((owner_first ? *n.owner : *n.consumer).shutdown(20s));
    BOOST_REQUIRE(done.wait_for(gets));
    BOOST_TEST(done.each_once());
    BOOST_TEST(wrong == 0);
    for (std::size_t i = 0; i < gets; ++i) {
        const auto ec = done.code(i);
        const bool expected = owner_first
                                  ? !ec || ec.category() == connection_category() ||
                                        ec == lease_errc::lost || ec == request_errc::refused
                                  : !ec || ec == node_errc::stopped;
        BOOST_TEST(expected, ec.message());
    }
    BOOST_TEST(registered.unregister().wait_for(patience));
}

BOOST_AUTO_TEST_CASE(contract_8_1_owner_shut_down_under_load_answers_every_get_once) {
    shut_down_under_load(true);
}

BOOST_AUTO_TEST_CASE(contract_8_1_consumer_shut_down_under_load_answers_every_get_once) {
    shut_down_under_load(false);
}

BOOST_AUTO_TEST_CASE(contract_8_1_consumer_whose_nic_cannot_be_proven_quiet_leaks_and_says_so) {
    std::vector<std::byte> memory(medium);  // outlives the network, as it must
    std::atomic<bool> said{false};
    set_log_sink([&](log_level level, std::string_view line) {
        if (level == log_level::error && line.find("shutdown=leak") != std::string_view::npos)
            said = true;
    });
    sim_nodes n(short_lived(), short_lived());
    n.warm_up();
    const auto from = n.stage(medium);
    auto registered = std::make_optional(n.consumer->register_region(memory).value());
    n.hold_dma();
    auto got = get_into(*n.consumer, from, memory);
    n.await_dma(memory);
    BOOST_TEST(!n.consumer->shutdown(100ms));
    set_log_sink({});
    BOOST_TEST(said);
    BOOST_TEST(!n.consumer->shutdown(100ms));
    const auto answer = got.get();
    BOOST_TEST(answer.code == make_error_code(node_errc::stopped));
    BOOST_TEST(!answer.result.quiet.resolved());
    const auto unregistered = registered->unregister();
    BOOST_TEST(!unregistered.resolved());
    registered.reset();
    n.consumer.reset();
    n.release_dma();  // late DMA arrives in memory that is still there
    BOOST_TEST(!answer.result.quiet.wait_for(1ms));  // nobody looks any more
}

BOOST_FIXTURE_TEST_CASE(killed_owner_ends_gets_with_an_error, sim_nodes) {
    warm_up();
    const auto from = stage(large);
    answers done;
    for (std::size_t i = 0; i < 4; ++i)
        consumer->async_get(from, {},
                            [&, i](error_code ec, const get_result&) { done.add(i, ec); });
    owner.reset();
    BOOST_REQUIRE(done.wait_for(4));
    BOOST_TEST(done.each_once());
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(bad_peers)

BOOST_FIXTURE_TEST_CASE(offer_of_an_impossible_queue_pair_is_no_lane, sim_nodes) {
    const auto from = stage(medium);
    const auto peer = connect_raw(*owner->address());
    peer.write(wire::frame{0, wire::hello{.node = raw_id}});
    BOOST_REQUIRE(peer.read_frame());
    std::uint32_t taken_down = 0;  // told, so that a consumer makes a new one
    for (std::uint32_t generation = 1; generation <= 8; ++generation) {
        wire::acquire a;
        a.slot = from.handle.slot;
        a.deadline_ms = 10'000;
        a.offer = wire::lane_offer{.generation = generation, .facts = wire::queue_pair_facts{}};
        a.offer->facts->path_mtu = 1024;
        a.offer->facts->number = 0xfffffe;
        peer.write(wire::frame{generation, a});
        auto reply = peer.read_frame();
        while (reply && std::holds_alternative<wire::lane_down>(reply->frame.body)) {
            const auto& down = std::get<wire::lane_down>(reply->frame.body);
            BOOST_TEST((down.why == reason::no_lane && down.generation < generation));
            ++taken_down;
            reply = peer.read_frame();
        }
        BOOST_REQUIRE(reply);
        const auto& r = std::get<wire::acquire_reply>(reply->frame.body);
        BOOST_TEST((r.answer == wire::answer::chunked || r.answer == wire::answer::rdma));
        peer.write(wire::frame{0, wire::detach{{r.lease}}});
    }
    BOOST_TEST(taken_down > 0u);
    BOOST_TEST(consumer->get(from)->report.path == path::rdma);
}

/// Answers offers with `descriptor`, everything else with chunks; counts acquires without an offer.
/// With `revoking` it takes each lane down again at once, as an owner does that revokes its lease.
scripted_owner::script answer_offers(std::optional<bytes> descriptor, std::uint32_t lane_offset,
                                     std::atomic<int>& fallbacks, bool revoking = false) {
    return [=, &fallbacks](const raw_socket& s) {
        while (const auto asked = s.read_frame()) {
            if (const auto* a = std::get_if<wire::acquire>(&asked->frame.body)) {
                wire::acquire_reply r;
                r.slot_bytes = r.range_bytes = medium;
                r.lease = 5;
                r.duration_ms = 30'000;
                if (a->offer) {
                    r.answer = wire::answer::rdma;
                    r.descriptor = descriptor;
                    r.lane_generation = a->offer->generation + lane_offset;
                    r.lane_facts = wire::queue_pair_facts{.number = 0xfffffe,
                                                          .starting_psn = 1,
                                                          .gid = sim::ipv4_gid(10, 0, 0, 1).bytes,
                                                          .path_mtu = 1024,
                                                          .read_depth = 16};
                } else {
                    ++fallbacks;
                    r.answer = wire::answer::chunked;
                    r.why = reason::no_offer;
                }
                s.write(wire::frame{asked->frame.id, r});
                if (a->offer && revoking)
                    s.write(wire::frame{0, wire::lane_down{a->offer->generation, reason::fenced}});
            } else if (const auto* p = std::get_if<wire::pull>(&asked->frame.body)) {
                s.write(wire::frame{asked->frame.id, wire::chunk{}},
                        payload(medium).subspan(p->offset, p->bytes));
            }
        }
    };
}

/// For the first lane of a consumer, and what answer_offers() says of it.
wire::descriptor good_descriptor() {
    wire::descriptor good;
    good.address = 0x1000;
    good.length = medium;
    good.lease = 5;
    good.duration_ms = 30'000;
    good.generation = 1;
    good.keys = {{0, 1}};
    return good;
}

BOOST_AUTO_TEST_CASE(contract_4_4_get_whose_lease_was_revoked_falls_back_once) {
    for (const auto policy : {path_policy::prefer, path_policy::require}) {
        sim_nodes n;
        std::atomic<int> fallbacks{0};
        const scripted_owner taking(
            answer_offers(wire::encode(good_descriptor()), 0, fallbacks, true));
        std::vector<std::byte> memory(medium);
        n.hold_dma();  // so that its READ does not fail by itself before
        auto got = get_into(*n.consumer, taking.target(), memory, {.policy = policy});
        const auto end = std::chrono::steady_clock::now() + patience;
        while (n.consumer->statistics().queue_pairs_failed == 0 &&
               std::chrono::steady_clock::now() < end)
            std::this_thread::yield();
        n.release_dma();
        const auto answer = got.get();
        BOOST_TEST(n.consumer->shutdown(20s));  // ends the script
        if (policy == path_policy::require) {
            BOOST_TEST(answer.code == make_error_code(lease_errc::lost));
            BOOST_TEST(fallbacks == 0);
        } else {
            BOOST_TEST(!answer.code);
            BOOST_TEST(answer.result.report.path == path::chunked);
            BOOST_TEST(answer.result.report.reason == reason::lease_lost);
            BOOST_TEST(fallbacks == 1);
            check_pattern(memory);
        }
    }
}

BOOST_AUTO_TEST_CASE(contract_3_4_descriptor_that_cannot_be_used_falls_back_once) {
    const auto good = good_descriptor();
    auto other_length = good;
    other_length.length = medium - 1;
    auto other_lease = good;
    other_lease.lease = 6;
    auto other_lane = good;
    other_lane.generation = 2;
    auto cut = wire::encode(good);
    cut.pop_back();
    struct variant {
        const char* name;
        std::optional<bytes> descriptor;
        std::uint32_t lane_offset;
        reason expected;
    };
    const variant variants[] = {
        {"none", std::nullopt, 0, reason::decode_error},
        {"cut", cut, 0, reason::decode_error},
        {"other length", wire::encode(other_length), 0, reason::decode_error},
        {"other lease", wire::encode(other_lease), 0, reason::decode_error},
        {"other lane", wire::encode(other_lane), 0, reason::decode_error},
        {"facts of another lane", wire::encode(good), 1, reason::decode_error},
        {"good, to a queue pair that is not there", wire::encode(good), 0, reason::get_failed},
    };
    for (const auto& v : variants) {
        BOOST_TEST_CONTEXT(v.name) {
            auto o = short_lived();
            sim_nodes n({}, o);
            std::atomic<int> fallbacks{0};
            const scripted_owner bad(answer_offers(v.descriptor, v.lane_offset, fallbacks));
            const auto got = n.consumer->get(bad.target());
            BOOST_TEST(n.consumer->shutdown(20s));  // ends the script
            BOOST_REQUIRE_MESSAGE(got, got.error().message());
            BOOST_TEST(got->report.path == path::chunked);
            BOOST_TEST(got->report.reason == v.expected);
            BOOST_TEST(fallbacks == 1);
            check_pattern(got->data.bytes());
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace rvget::test
