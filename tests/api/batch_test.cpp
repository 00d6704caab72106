// Many gets in one call, references of a consumer's own, and deadlines of single calls.

#include <algorithm>
#include <future>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "api/nodes_on_sim.hpp"
#include "api/raw_peer.hpp"
#include "api/scripted_owner.hpp"
#include "engine/get_batch.hpp"

namespace rvget::test {
namespace {

/// More than run at once.
constexpr std::size_t many = 3 * engine::get_batch::most_at_once + 7;

template <class R>
void check_code(const batch_element<R>& e, const error_code& expected) {
    BOOST_TEST(e.error.code == expected, e.error.message());
    BOOST_TEST(!e.error.detail.empty());
    BOOST_TEST(e.value.report.detail == e.error.detail);
}

BOOST_FIXTURE_TEST_SUITE(batches, sim_nodes)

BOOST_AUTO_TEST_CASE(contract_2_1_batch_of_many_handles_answers_each_with_its_own_result) {
    const std::size_t sizes[] = {65536, 100, 300'000, 5000};
    std::vector<get_item> items;
    for (std::size_t i = 0; i < many; ++i) items.push_back({stage(sizes[i % 4])});
    items[5].from.handle.slot ^= 1;
    items[6].range.offset = 1 << 30;
    const auto all = consumer->get_batch(items);
    BOOST_REQUIRE(all.size() == many);
    for (std::size_t i = 0; i < many; ++i) {
        if (i == 5) {
            check_code(all[i], make_error_code(request_errc::not_found));
        } else if (i == 6) {
            check_code(all[i], make_error_code(request_errc::out_of_range));
        } else {
            BOOST_REQUIRE_MESSAGE(!all[i].error.code, all[i].error.message());
            BOOST_TEST(all[i].value.data.size() == sizes[i % 4]);
            check_pattern(all[i].value.data.bytes());
        }
    }
    const auto s = consumer->statistics();
    BOOST_TEST(s.gets_answered == many);
    BOOST_TEST(s.gets_failed == 2u);
}

BOOST_AUTO_TEST_CASE(contract_2_1_batch_of_ranges_of_one_handle_in_each_kind) {
    const auto from = stage(medium);
    const byte_range ranges[] = {{0, 100'000}, {4097, 70'000}, {medium - 1, 10}, {0, 0}, {}};
    const std::size_t sizes[] = {100'000, 70'000, 1, 0, medium};
    const auto items = items_of(from, ranges);
    const auto owned = consumer->get_batch(items);
    const auto pinned = consumer->get_pinned_batch(items);
    std::vector<std::byte> memory(3 * medium);
    auto registered = consumer->register_region(memory).value();
    std::vector<get_into_item> into;
    std::size_t at = 0;
    for (std::size_t i = 0; i < items.size(); at += sizes[i++])
        into.push_back({from, std::span(memory).subspan(at, sizes[i]), ranges[i]});
    const auto filled = consumer->get_into_batch(into);
    BOOST_REQUIRE((owned.size() == items.size() && pinned.size() == owned.size() &&
                   filled.size() == owned.size()));
    for (std::size_t i = 0; i < items.size(); ++i) {
        BOOST_TEST_CONTEXT("range " << i) {
            BOOST_TEST((!owned[i].error.code && !pinned[i].error.code && !filled[i].error.code));
            BOOST_TEST(owned[i].value.data.size() == sizes[i]);
            BOOST_TEST(pinned[i].value.data.size() == sizes[i]);
            BOOST_TEST(filled[i].value.bytes == sizes[i]);
            check_pattern(owned[i].value.data.bytes(), ranges[i].offset);
            check_pattern(pinned[i].value.data.bytes(), ranges[i].offset);
            check_pattern(into[i].destination, ranges[i].offset);
            if (sizes[i] < 65536) continue;
            BOOST_TEST(filled[i].value.report.path == path::rdma);
            BOOST_TEST(filled[i].value.report.copied_bytes == 0u);
        }
    }
    BOOST_TEST(registered.unregister().wait_for(patience));
}

BOOST_AUTO_TEST_CASE(contract_2_1_batch_into_one_destination_twice_is_buffer_busy_once) {
    warm_up();
    const auto from = stage(medium);
    std::vector<std::byte> memory(medium);
    const auto all = consumer->get_into_batch({{from, memory}, {from, memory}});
    BOOST_REQUIRE(all.size() == 2u);
    BOOST_TEST(!all[0].error.code);
    check_code(all[1], make_error_code(request_errc::buffer_busy));
    check_pattern(memory);
}

BOOST_AUTO_TEST_CASE(contract_2_4_batch_has_a_policy_of_its_own) {
    const auto from = stage(medium);
    for (const auto& e : consumer->get_batch({{from}, {from}}, {.policy = path_policy::never}))
        BOOST_TEST(e.value.report.reason == reason::policy);
    const auto plain = owner->url_of(owner->stage(payload(medium)).value());
    const auto all = consumer->get_batch({{from}, {plain}}, {.policy = path_policy::require});
    BOOST_TEST(all[0].value.report.path == path::rdma);
    check_code(all[1], make_error_code(request_errc::not_pinned));
}

BOOST_AUTO_TEST_CASE(contract_2_2_batch_parks_each_destination_that_a_nic_may_still_write) {
    sim_nodes n(with_keys(lease_key_choice::fence));  // nothing to bind while DMA is held
    n.warm_up();
    const auto from = n.stage(medium);
    std::vector<std::byte> memory(2 * medium);
    auto registered = n.consumer->register_region(memory).value();
    n.hold_dma();
    const auto all = n.consumer->get_into_batch(
        {{from, std::span(memory).first(medium)}, {from, std::span(memory).last(medium)}},
        {.deadline = 1s});
    for (const auto& e : all) {
        check_code(e, make_error_code(request_errc::deadline_exceeded));
        BOOST_TEST(!e.value.quiet.resolved());
    }
    n.release_dma();
    for (const auto& e : all) BOOST_TEST(e.value.quiet.wait_for(patience));
    BOOST_TEST(registered.unregister().wait_for(patience));
}

BOOST_AUTO_TEST_CASE(batch_of_nothing_is_answered) {
    BOOST_TEST(consumer->get_batch({}).empty());
    BOOST_TEST(consumer->get_into_batch({}).empty());
}

BOOST_AUTO_TEST_CASE(batch_on_a_stopped_node_answers_every_element_stopped) {
    const auto from = stage(medium);
    BOOST_TEST(consumer->shutdown(20s));
    const auto all = consumer->get_batch({{from}, {from}, {from}});
    BOOST_REQUIRE(all.size() == 3u);
    for (const auto& e : all) BOOST_TEST(e.error.code == make_error_code(node_errc::stopped));
}

BOOST_AUTO_TEST_CASE(batch_under_which_the_node_is_shut_down_answers_every_element_once) {
    const auto from = stage(medium);
    std::promise<std::vector<batch_element<get_result>>> told;
    error_code code = node_errc::internal;
    consumer->async_get_batch(std::vector<get_item>(many, get_item{from}), {},
                              [&](error_code ec, std::vector<batch_element<get_result>> all) {
                                  code = ec;
                                  told.set_value(std::move(all));
                              });
    BOOST_TEST(consumer->shutdown(20s));
    const auto all = told.get_future().get();
    BOOST_TEST(!code);
    BOOST_TEST(all.size() == many);
    for (const auto& e : all)
        BOOST_TEST((!e.error.code || e.error.code == make_error_code(node_errc::stopped)));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(scripted)

/// Reads `count` acquires before it answers any, then answers them last first; then goes on as they
/// come.
BOOST_AUTO_TEST_CASE(contract_2_1_batch_acquires_follow_each_other_without_waiting_for_replies) {
    constexpr std::size_t count = engine::get_batch::most_at_once;
    const scripted_owner slow([](const raw_socket& s) {
        const auto answer = [&](const raw_socket::received& asked) {
            const auto& a = std::get<wire::acquire>(asked.frame.body);
            wire::acquire_reply r;
            r.answer = wire::answer::inline_answer;
            r.why = reason::no_offer;
            r.slot_bytes = 4096;
            r.range_bytes = a.length;
            s.write(wire::frame{asked.frame.id, r}, payload(4096).subspan(a.offset, a.length));
        };
        std::vector<raw_socket::received> together;
        while (together.size() < count) {
            auto asked = s.read_frame();
            if (!asked) return;
            if (std::holds_alternative<wire::acquire>(asked->frame.body))
                together.push_back(std::move(*asked));
        }
        std::for_each(together.rbegin(), together.rend(), answer);
        while (const auto asked = s.read_frame())
            if (std::holds_alternative<wire::acquire>(asked->frame.body)) answer(*asked);
    });
    auto consumer = start_tcp_node();
    std::vector<byte_range> ranges;
    for (std::size_t i = 0; i < many; ++i) ranges.push_back({i, 1 + i % 5});
    const auto all = consumer.get_batch(items_of(slow.target(), ranges), {.deadline = patience});
    BOOST_REQUIRE(all.size() == many);
    for (std::size_t i = 0; i < many; ++i) {
        BOOST_REQUIRE_MESSAGE(!all[i].error.code, all[i].error.message());
        BOOST_TEST(all[i].value.data.size() == 1 + i % 5);
        check_pattern(all[i].value.data.bytes(), i);
    }
    BOOST_TEST(consumer.shutdown(20s));
}

void read_all(const raw_socket& s) {
    while (s.read_frame()) {
    }
}

BOOST_AUTO_TEST_CASE(contract_2_2_batch_has_one_deadline_over_all) {
    const scripted_owner silent(read_all);
    auto consumer = start_tcp_node();
    const auto all = consumer.get_batch(std::vector<get_item>(many, get_item{silent.target()}),
                                        {.deadline = 200ms});
    BOOST_TEST(all.size() == many);
    for (const auto& e : all) check_code(e, make_error_code(request_errc::deadline_exceeded));
    BOOST_TEST(consumer.shutdown(20s));
}

BOOST_AUTO_TEST_CASE(contract_2_2_batch_is_cancelled_as_one) {
    std::promise<void> first;
    const scripted_owner silent([&](const raw_socket& s) {
        if (s.read_frame()) first.set_value();
        read_all(s);
    });
    auto consumer = start_tcp_node();
    boost::asio::io_context context;
    boost::asio::cancellation_signal signal;
    std::vector<batch_element<get_result>> answer;
    consumer.async_get_batch(
        std::vector<get_item>(many, get_item{silent.target()}), {},
        boost::asio::bind_executor(
            context,
            boost::asio::bind_cancellation_slot(
                signal.slot(), [&](error_code, std::vector<batch_element<get_result>> all) {
                    answer = std::move(all);
                })));
    first.get_future().get();
    signal.emit(boost::asio::cancellation_type::terminal);
    context.run();
    BOOST_TEST(answer.size() == many);
    for (const auto& e : answer) check_code(e, make_error_code(request_errc::cancelled));
    BOOST_TEST(consumer.shutdown(20s));
}

/// Whatever the node's own default, which is long here.
BOOST_AUTO_TEST_CASE(contract_2_2_every_call_takes_a_deadline_of_its_own) {
    const scripted_owner silent(read_all);
    node_options o;
    o.default_deadline = o.handshake_timeout = patience;
    auto consumer = start_tcp_node(o);
    const auto late = make_error_code(request_errc::deadline_exceeded);
    const call_options soon{.deadline = 50ms};
    const auto target = silent.target();
    BOOST_TEST(consumer.metadata(target, soon).error().code == late);
    BOOST_TEST(consumer.add_reference(target, soon).error().code == late);
    BOOST_TEST(consumer.release(target, soon).error().code == late);
    BOOST_TEST(consumer.get(target, {.deadline = 50ms}).error().code == late);
    BOOST_TEST(consumer.get_pinned(target, {.deadline = 50ms}).error().code == late);
    std::vector<std::byte> memory(10);
    BOOST_TEST(consumer.get_into(target, memory, {.deadline = 50ms}).error().code == late);
    raw_port mute;  // takes connections into its backlog and never greets
    mute.listen();
    BOOST_TEST(consumer.connect(mute.address(), soon).error().code == late);
    BOOST_TEST(consumer.shutdown(20s));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(references)

BOOST_AUTO_TEST_CASE(contract_1_4_consumer_that_added_a_reference_keeps_the_slot) {
    tcp_nodes n;
    const auto from = n.stage(5000);
    BOOST_TEST(n.consumer.add_reference(from).value() == 2u);
    BOOST_TEST(n.owner.release(from.handle).value() == 1u);
    check_pattern(n.consumer.get(from)->data.bytes());
    BOOST_TEST(n.consumer.release(from).value() == 0u);
    const auto gone = n.consumer.get(from);
    BOOST_REQUIRE(!gone);
    BOOST_TEST(gone.error().code == make_error_code(request_errc::not_found));
}

BOOST_AUTO_TEST_CASE(contract_1_4_consumer_cannot_release_what_it_was_given_no_reference_to) {
    tcp_nodes n;
    const auto from = n.stage(5000);
    const auto refused = n.consumer.release(from);
    BOOST_REQUIRE(!refused);
    BOOST_TEST(refused.error().code == make_error_code(request_errc::not_found));
    BOOST_TEST(n.owner.metadata(from.handle)->references == 1u);
    check_pattern(n.consumer.get(from)->data.bytes());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace rvget::test
