// What goes wrong on the wire and at the responder, and what a queue pair in error still does.

#include <boost/test/unit_test.hpp>
#include <cerrno>
#include <cstring>

#include "sim/fixture.hpp"

using namespace rvget;
using namespace rvget::fabric;
using namespace rvget::fabric::sim;

namespace {

/// Everything posted completes: the first with `status`, the rest flushed; returns how many.
std::size_t expect_failure(two_hosts& w, completion_status status) {
    w.net.run();
    std::size_t n = 0;
    while (const auto c = w.a.poll()) {
        BOOST_TEST(c->id == ++n);
        BOOST_TEST(c->status == (n == 1 ? status : completion_status::flushed));
    }
    BOOST_TEST(w.a.qp->state().value() == queue_pair_state::error);
    return n;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(refused, two_hosts)

BOOST_AUTO_TEST_CASE(read_refused_takes_both_ends_to_error_and_flushes_in_order) {
    connect_ends();
    auto r = read(1, 0, 1024);
    r.remote_key += 1;
    post(r);
    post(read(2, 0, 1024, false));
    post(read(3, 0, 1024));
    a.qp->post_marker(4).value();
    BOOST_TEST(expect_failure(*this, completion_status::remote_access) == 4u);
    BOOST_TEST(b.qp->state().value() == queue_pair_state::error);
    BOOST_TEST(arrived(0, 1024) == 0u);
    const auto event = b.device->next_event();
    BOOST_REQUIRE(event);
    BOOST_CHECK(event->kind == async_event_kind::queue_pair_fatal);
    BOOST_TEST(event->queue_pair_number == b.qp->number());
}

BOOST_AUTO_TEST_CASE(read_out_of_range_is_refused) {
    connect_ends();
    auto r = read(1, 0, 1024);
    r.remote_address += b.memory.size() - 1023;
    post(r);
    BOOST_TEST(expect_failure(*this, completion_status::remote_access) == 1u);
}

BOOST_AUTO_TEST_CASE(read_of_a_region_without_the_right_is_refused) {
    connect_ends();
    b.region = b.device->register_memory(b.memory, access::local_write).value();
    post(read(1, 0, 1024));
    BOOST_TEST(expect_failure(*this, completion_status::remote_access) == 1u);
}

BOOST_AUTO_TEST_CASE(read_by_the_local_key_of_the_owner_is_refused) {
    connect_ends();
    auto r = read(1, 0, 1024);
    r.remote_key = b.region->local_key();
    post(r);
    BOOST_TEST(expect_failure(*this, completion_status::remote_access) == 1u);
}

BOOST_AUTO_TEST_CASE(read_of_another_protection_domain_is_refused) {
    connect_ends();
    const auto other = b.nics->open("sim0").value();
    b.region = other->register_memory(b.memory, access::local_write | access::remote_read).value();
    post(read(1, 0, 1024));
    BOOST_TEST(expect_failure(*this, completion_status::remote_access) == 1u);
}

BOOST_AUTO_TEST_CASE(read_toward_a_queue_pair_without_the_right_is_an_invalid_request) {
    a.qp = a.make();
    b.qp = b.device->create_queue_pair(b.completions, 1, {}).value();
    b.qp->to_init(access::none).value();
    connect(a, *a.qp, b, *b.qp);
    post(read(1, 0, 1024));
    BOOST_TEST(expect_failure(*this, completion_status::remote_invalid_request) == 1u);
}

BOOST_AUTO_TEST_CASE(key_dies_with_its_region_in_the_middle_of_a_read) {
    connect_ends();
    post(read(1, 0, 2048));
    net.step(0);
    b.region.reset();
    BOOST_TEST(!net.dma_pending_from(b.part(0, 2048)));
    BOOST_TEST(expect_failure(*this, completion_status::remote_access) == 1u);
    BOOST_TEST(arrived(0, 2048) == 1024u);
}

BOOST_AUTO_TEST_CASE(key_of_a_region_registered_anew_differs) {
    connect_ends();
    const auto r = read(1, 0, 1024);
    b.region.reset();
    b.region = b.device->register_memory(b.memory, access::remote_read).value();
    BOOST_TEST(b.region->remote_key() != r.remote_key);
    post(r);
    BOOST_TEST(expect_failure(*this, completion_status::remote_access) == 1u);
}

BOOST_AUTO_TEST_CASE(read_with_a_wrong_local_key_is_a_local_protection_error) {
    connect_ends();
    auto r = read(1, 0, 1024);
    r.local_key = b.region->local_key();
    post(r);
    BOOST_TEST(expect_failure(*this, completion_status::local_protection) == 1u);
    BOOST_TEST(b.qp->state().value() == queue_pair_state::ready_to_send);
}

BOOST_AUTO_TEST_CASE(send_too_long_for_the_receive_fails_both_ends) {
    connect_ends();
    b.qp->post_receive({7, b.part(0, 16), b.region->local_key()}).value();
    a.qp->post_send({1, a.part(0, 17), a.region->local_key(), false, true}).value();
    BOOST_TEST(expect_failure(*this, completion_status::remote_invalid_request) == 1u);
    BOOST_TEST(b.poll().value().status == completion_status::local_length);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_FIXTURE_TEST_SUITE(unanswered, two_hosts)

BOOST_AUTO_TEST_CASE(peer_in_error_times_out_in_a_step_of_its_own) {
    connect_ends();
    b.qp->to_error().value();
    post(read(1, 0, 1024));
    BOOST_TEST(net.at(0).kind == step_kind::request_lost);
    net.step(0);
    BOOST_TEST(a.qp->state().value() == queue_pair_state::ready_to_send);
    BOOST_TEST(net.at(0).kind == step_kind::retry_timeout);
    BOOST_TEST(expect_failure(*this, completion_status::retry_exceeded) == 1u);
}

BOOST_AUTO_TEST_CASE(peer_destroyed_times_out) {
    connect_ends();
    b.qp->to_error().value();
    b.qp.reset();
    post(read(1, 0, 1024));
    post(read(2, 0, 1024));
    BOOST_TEST(expect_failure(*this, completion_status::retry_exceeded) == 2u);
    BOOST_TEST(net.violations().empty());
}

BOOST_AUTO_TEST_CASE(peer_that_never_existed_times_out) {
    a.qp = a.make();
    auto p = towards(*a.qp, b.gid);
    p.peer.number = 0x7fff;
    a.qp->to_ready_to_receive(p).value();
    a.qp->to_ready_to_send({1, 16, {}}).value();
    post(read(1, 0, 1024));
    BOOST_TEST(expect_failure(*this, completion_status::retry_exceeded) == 1u);
}

BOOST_AUTO_TEST_CASE(peer_that_expects_another_psn_times_out) {
    a.qp = a.make();
    b.qp = b.make();
    a.qp->to_ready_to_receive(towards(*b.qp, b.gid)).value();
    auto p = towards(*a.qp, a.gid);
    p.peer.starting_psn += 1;
    b.qp->to_ready_to_receive(p).value();
    a.qp->to_ready_to_send({a.qp->number(), 16, {}}).value();
    post(read(1, 0, 1024));
    BOOST_TEST(expect_failure(*this, completion_status::retry_exceeded) == 1u);
}

BOOST_AUTO_TEST_CASE(peer_that_becomes_ready_within_the_retries_answers) {
    a.qp = a.make();
    b.qp = b.make();
    a.qp->to_ready_to_receive(towards(*b.qp, b.gid)).value();
    a.qp->to_ready_to_send({a.qp->number(), 16, {}}).value();
    post(read(1, 0, 1024));
    net.step(0);
    BOOST_TEST(net.at(0).kind == step_kind::retry_timeout);
    b.qp->to_ready_to_receive(towards(*a.qp, a.gid)).value();
    BOOST_TEST(net.at(0).kind == step_kind::read_piece);
    net.run();
    BOOST_TEST(a.poll().value().status == completion_status::success);
}

BOOST_AUTO_TEST_CASE(dropped_wire_ends_in_a_timeout_and_a_healed_one_does_not) {
    connect_ends();
    net.drop_between("a", "b");
    post(read(1, 0, 2048));
    net.step(0);
    net.drop_between("b", "a", false);
    net.run();
    BOOST_TEST(a.poll().value().status == completion_status::success);
    net.drop_between("a", "b");
    post(read(1, 0, 2048));
    BOOST_TEST(expect_failure(*this, completion_status::retry_exceeded) == 1u);
}

BOOST_AUTO_TEST_CASE(read_in_progress_over_a_dropped_wire_times_out_after_its_first_piece) {
    connect_ends();
    post(read(1, 0, 2048));
    net.step(0);
    net.drop_between("a", "b");
    BOOST_TEST(expect_failure(*this, completion_status::retry_exceeded) == 1u);
    BOOST_TEST(arrived(0, 2048) == 1024u);
}

BOOST_AUTO_TEST_CASE(host_killed_answers_nothing_and_violates_nothing) {
    connect_ends();
    post(read(1, 0, 1024));
    b.qp->post_marker(5).value();
    b.qp->post_receive({6, b.part(0, 10), b.region->local_key()}).value();
    net.kill_host("b");
    b.qp.reset();
    b.region.reset();
    std::vector<std::byte>().swap(b.memory);  // the address sanitizer watches
    BOOST_TEST(expect_failure(*this, completion_status::retry_exceeded) == 1u);
    BOOST_TEST(net.violations().empty());
}

BOOST_AUTO_TEST_CASE(link_down_at_the_peer_times_out_and_raises_events) {
    connect_ends();
    net.set_link("b", "sim0", 1, false);
    post(read(1, 0, 1024));
    BOOST_TEST(expect_failure(*this, completion_status::retry_exceeded) == 1u);
    BOOST_CHECK(b.device->next_event().value().kind == async_event_kind::port_error);
    BOOST_CHECK(b.device->facts().ports[0].state == route::port_state::active);
    b.device->refresh().value();
    BOOST_CHECK(b.device->facts().ports[0].state == route::port_state::down);
    net.set_link("b", "sim0", 1, true);
    BOOST_CHECK(b.device->next_event().value().kind == async_event_kind::port_active);
    BOOST_TEST(!b.device->next_event().has_value());
    BOOST_TEST(a.qp->state().value() == queue_pair_state::error);  // it stays dead
}

BOOST_AUTO_TEST_CASE(link_down_at_home_fails_at_once) {
    connect_ends();
    net.set_link("a", "sim0", 1, false);
    post(read(1, 0, 1024));
    BOOST_TEST(net.at(0).kind == step_kind::local_failure);
    BOOST_TEST(expect_failure(*this, completion_status::local_queue_pair_operation) == 1u);
}

BOOST_AUTO_TEST_CASE(gid_that_moves_to_another_index_kills_the_live_queue_pair) {
    connect_ends();
    net.set_gids("a", "sim0", 1, {{2, a.gid, route::gid_type::roce_v2, "eth0"}});
    BOOST_CHECK(a.device->next_event().value().kind == async_event_kind::gid_change);
    a.device->refresh().value();
    BOOST_TEST(a.device->facts().ports[0].gids.at(0).index == 2u);
    post(read(1, 0, 1024));
    BOOST_TEST(expect_failure(*this, completion_status::local_queue_pair_operation) == 1u);
}

BOOST_AUTO_TEST_CASE(path_mtu_above_the_responders_loses_large_reads_only) {
    connect_ends({.mtu_a = 1024, .mtu_b = 512});
    post(read(1, 0, 100));
    net.run();
    BOOST_TEST(a.poll().value().status == completion_status::success);
    post(read(1, 0, 1024));
    BOOST_TEST(expect_failure(*this, completion_status::retry_exceeded) == 1u);
}

BOOST_AUTO_TEST_CASE(path_mtu_above_the_ports_loses_large_reads) {
    connect_ends();
    net.set_active_mtu("b", "sim0", 1, 512);
    post(read(1, 0, 1024));
    BOOST_TEST(expect_failure(*this, completion_status::retry_exceeded) == 1u);
}

BOOST_AUTO_TEST_CASE(send_without_a_receive_ends_in_rnr_unless_one_is_posted_in_time) {
    connect_ends();
    a.qp->post_send({1, a.part(0, 16), a.region->local_key(), false, true}).value();
    net.step(0);
    b.qp->post_receive({7, b.part(0, 16), b.region->local_key()}).value();
    net.run();
    BOOST_TEST(a.poll().value().status == completion_status::success);
    a.qp->post_send({1, a.part(0, 16), a.region->local_key(), false, true}).value();
    BOOST_TEST(expect_failure(*this, completion_status::rnr_retry_exceeded) == 1u);
    BOOST_TEST(b.qp->state().value() == queue_pair_state::ready_to_send);
}

BOOST_AUTO_TEST_CASE(rnr_retry_of_seven_waits_for_ever) {
    connect_ends({.retry = {14, 6, 7, 12}});
    a.qp->post_send({1, a.part(0, 16), a.region->local_key(), false, true}).value();
    net.run();
    BOOST_TEST(net.runnable() == 0u);
    BOOST_TEST(!a.poll().has_value());
    b.qp->post_receive({7, b.part(0, 16), b.region->local_key()}).value();
    net.run();
    BOOST_TEST(a.poll().value().status == completion_status::success);
}

BOOST_AUTO_TEST_CASE(refused_read_moves_nothing_and_takes_both_queue_pairs_to_error) {
    connect_ends();
    net.refuse_reads("a");
    post(read(1, 0, 1024));
    BOOST_TEST(expect_failure(*this, completion_status::remote_access) == 1u);
    BOOST_TEST(arrived(0, 1024) == 0u);
}

BOOST_AUTO_TEST_CASE(false_success_moves_nothing_and_leaves_the_queue_pair_in_error) {
    connect_ends();
    net.false_success("a");
    post(read(1, 0, 1024));
    BOOST_TEST(expect_failure(*this, completion_status::success) == 1u);
    BOOST_TEST(arrived(0, 1024) == 0u);
}

BOOST_AUTO_TEST_CASE(false_success_is_told_on_a_device_with_the_quirk) {
    auto quirky = roce_device("sim0", {ipv4_gid(10, 0, 0, 3)});
    quirky.quirks.success_needs_state_query = true;
    end c;
    c.open(net.attach({"c", {quirky}}), ipv4_gid(10, 0, 0, 3));
    auto qc = c.make();
    auto qb = b.make();
    connect(c, *qc, b, *qb);
    net.false_success("c");
    auto r = read(1, 0, 1024);
    r.local = c.memory.data();
    r.local_key = c.region->local_key();
    qc->post_reads({&r, 1}).value();
    net.run();
    BOOST_TEST(c.poll().value().status == completion_status::false_success);
}

BOOST_AUTO_TEST_CASE(retry_count_of_seven_waits_for_ever_on_a_device_with_the_quirk) {
    auto quirky = roce_device("sim0", {ipv4_gid(10, 0, 0, 3)});
    quirky.quirks.retry_seven_is_for_ever = true;
    end c;
    c.open(net.attach({"c", {quirky}}), ipv4_gid(10, 0, 0, 3));
    auto qc = c.make();
    auto qb = b.make();
    connect(c, *qc, b, *qb, {.retry = {14, 7, 6, 12}});
    net.drop_between("b", "c");
    auto r = read(1, 0, 1024);
    r.local = c.memory.data();
    r.local_key = c.region->local_key();
    qc->post_reads({&r, 1}).value();
    net.run();
    BOOST_TEST(!c.poll().has_value());
    net.drop_between("b", "c", false);
    net.run();
    BOOST_TEST(c.poll().value().status == completion_status::success);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_FIXTURE_TEST_SUITE(in_error, two_hosts)

BOOST_AUTO_TEST_CASE(requester_in_error_may_still_write_until_the_read_is_flushed) {
    connect_ends();
    post(read(1, 0, 4096));
    net.step(0);
    a.qp->to_error().value();
    a.qp->post_marker(2).value();
    BOOST_TEST(net.dma_pending_into(a.part(0, 4096)));
    BOOST_TEST(net.dma_pending_from(b.part(1024, 3072)));
    BOOST_TEST(step(step_kind::late_piece));
    BOOST_TEST(arrived(0, 4096) == 2048u);
    BOOST_TEST(step(step_kind::flush));
    BOOST_TEST(!step(step_kind::late_piece));
    BOOST_TEST(!net.dma_pending_from(b.part(0, 4096)));
    net.run();
    BOOST_TEST(arrived(0, 4096) == 2048u);
    BOOST_TEST(a.poll().value().status == completion_status::flushed);
    const auto marker = a.poll();
    BOOST_REQUIRE(marker);
    BOOST_TEST(marker->id == 2u);
    BOOST_TEST(marker->status == completion_status::flushed);
    BOOST_TEST(!net.dma_pending_into(a.part(0, 4096)));
    a.qp.reset();
    BOOST_TEST(net.violations().empty());
}

BOOST_AUTO_TEST_CASE(read_posted_in_error_is_only_flushed) {
    connect_ends();
    a.qp->to_error().value();
    post(read(1, 0, 1024));
    BOOST_TEST(!step(step_kind::late_piece));
    BOOST_TEST(!net.dma_pending_from(b.part(0, 1024)));
    BOOST_TEST(net.dma_pending_into(a.part(0, 1024)));
    BOOST_TEST(expect_failure(*this, completion_status::flushed) == 1u);
    BOOST_TEST(arrived(0, 1024) == 0u);
}

BOOST_AUTO_TEST_CASE(responder_in_error_may_still_be_read_until_it_is_destroyed) {
    connect_ends();
    post(read(1, 0, 2048));
    b.qp->to_error().value();
    b.qp->post_marker(9).value();
    BOOST_TEST(step(step_kind::flush));
    BOOST_TEST(step(step_kind::completion));
    BOOST_TEST(b.poll().value().id == 9u);  // a drained send side proves nothing here
    BOOST_TEST(net.dma_pending_from(b.part(0, 2048)));
    BOOST_TEST(step(step_kind::late_piece));
    BOOST_TEST(arrived(0, 2048) == 1024u);
    b.qp.reset();
    BOOST_TEST(!net.dma_pending_from(b.part(0, 2048)));
    BOOST_TEST(!step(step_kind::late_piece));
    BOOST_TEST(expect_failure(*this, completion_status::retry_exceeded) == 1u);
    BOOST_TEST(net.violations().empty());
}

BOOST_AUTO_TEST_CASE(read_answered_late_by_a_responder_in_error_succeeds) {
    connect_ends();
    post(read(1, 0, 2048));
    b.qp->to_error().value();
    BOOST_TEST(step(step_kind::late_piece));
    BOOST_TEST(step(step_kind::late_piece));
    BOOST_TEST(step(step_kind::completion));
    BOOST_TEST(a.poll().value().status == completion_status::success);
}

BOOST_AUTO_TEST_CASE(late_piece_of_a_revoked_key_moves_nothing) {
    connect_ends();
    post(read(1, 0, 2048));
    b.qp->to_error().value();
    b.region.reset();
    BOOST_TEST(step(step_kind::late_piece));
    BOOST_TEST(arrived(0, 2048) == 0u);
    BOOST_TEST(!step(step_kind::late_piece));
    BOOST_TEST(expect_failure(*this, completion_status::retry_exceeded) == 1u);
}

BOOST_AUTO_TEST_CASE(late_reads_do_not_go_beyond_those_in_flight) {
    connect_ends({.initiator_depth = 1});
    post(read(1, 0, 1024));
    post(read(2, 1024, 1024));
    a.qp->to_error().value();
    BOOST_TEST(step(step_kind::late_piece));
    BOOST_TEST(step(step_kind::flush));
    BOOST_TEST(!step(step_kind::late_piece));
    BOOST_TEST(expect_failure(*this, completion_status::flushed) == 2u);
    BOOST_TEST(arrived(1024, 1024) == 0u);
}

BOOST_AUTO_TEST_CASE(receives_posted_are_flushed_in_error) {
    connect_ends({}, {16, 4, 0});
    b.qp->post_receive({7, b.part(0, 16), b.region->local_key()}).value();
    b.qp->post_receive({8, b.part(16, 16), b.region->local_key()}).value();
    b.qp->to_error().value();
    net.run();
    for (const std::uint64_t id : {7u, 8u}) {
        const auto c = b.poll();
        BOOST_REQUIRE(c);
        BOOST_TEST(c->id == id);
        BOOST_TEST(c->status == completion_status::flushed);
    }
}

BOOST_AUTO_TEST_SUITE_END()
