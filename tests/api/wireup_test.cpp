// When queue pairs are made: lazily, with the connection, by a call ahead of the first get, and
// ahead of any need.

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/use_future.hpp>
#include <boost/test/unit_test.hpp>

#include "api/nodes_on_sim.hpp"
#include "api/raw_peer.hpp"
#include "api/scripted_owner.hpp"

namespace rvget::test {
namespace {

using fault::call;

/// Without spares, so that each queue pair is made for somebody.
node_options plain(wireup_eagerness wireup = wireup_eagerness::lazy) {
    node_options o;
    o.eagerness = wireup;
    o.spare_queue_pairs = 0;
    return o;
}

node_options with_spares(std::uint32_t spares) {
    auto o = plain();
    o.spare_queue_pairs = spares;
    return o;
}

template <class Predicate>
bool eventually(Predicate holds) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!holds() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return holds();
}

bool has_spares(const node& n, std::uint64_t count) {
    return eventually([&] { return n.statistics().spare_queue_pairs == count; });
}

struct wireup_nodes : sim_nodes {
    explicit wireup_nodes(node_options owner_options = plain(),
                          node_options consumer_options = plain())
        : sim_nodes(std::move(owner_options), std::move(consumer_options)),
          made_at_start_{made()} {}

    struct counts {
        std::uint64_t owner = 0;
        std::uint64_t consumer = 0;
        friend bool operator==(const counts&, const counts&) = default;
    };
    /// Queue pairs since the nodes started; the proof of the lease keys makes some before.
    [[nodiscard]] counts made_since() const {
        const auto now = made();
        return {now.owner - made_at_start_.owner, now.consumer - made_at_start_.consumer};
    }
    [[nodiscard]] counts wired() const {
        return {owner_plan->count(call::to_ready_to_receive),
                plan->count(call::to_ready_to_receive)};
    }
    [[nodiscard]] node another_consumer() {
        return start_node_on(consumer_nic.get(), patient(plain())).value();
    }
    /// The `nth` call from now on.
    void fail_owner(call kind, std::uint64_t nth, failure with) const {
        owner_plan->fail(kind, owner_plan->count(kind) + nth, std::move(with));
    }

private:
    [[nodiscard]] counts made() const {
        return {owner_plan->count(call::create_queue_pair), plan->count(call::create_queue_pair)};
    }
    counts made_at_start_;
};

// ---- when

BOOST_AUTO_TEST_CASE(wireup_lazy_makes_no_queue_pair_before_the_first_get) {
    wireup_nodes n;
    const auto from = n.stage(medium);
    BOOST_TEST(n.consumer->metadata(from).has_value());
    BOOST_TEST((n.made_since() == wireup_nodes::counts{0, 0}));
    BOOST_TEST(n.consumer->get(from)->report.path == path::rdma);
    BOOST_TEST((n.made_since() == wireup_nodes::counts{1, 1}));
}

BOOST_AUTO_TEST_CASE(wireup_prepared_makes_the_consumers_end_with_the_connection) {
    wireup_nodes n(plain(), plain(wireup_eagerness::prepared));
    BOOST_TEST(n.consumer->connect(*n.owner->address()).has_value());
    BOOST_TEST(eventually([&] { return n.made_since().consumer == 1; }));
    BOOST_TEST(n.made_since().owner == 0u);
}

BOOST_AUTO_TEST_CASE(wireup_eager_brings_both_ends_up_with_the_connection) {
    wireup_nodes n(plain(), plain(wireup_eagerness::eager));
    const auto before = n.wired();
    BOOST_TEST(n.consumer->connect(*n.owner->address()).has_value());
    const wireup_nodes::counts both{before.owner + 1, before.consumer + 1};
    BOOST_TEST(eventually([&] { return n.wired() == both; }));
    BOOST_TEST(n.consumer->get(n.stage(medium))->report.path == path::rdma);
    BOOST_TEST((n.wired() == both));
}

// ---- warm

BOOST_AUTO_TEST_CASE(contract_7_1_warm_leaves_the_first_get_nothing_to_wire) {
    wireup_nodes n;
    const auto from = n.stage(medium);
    const auto r = n.consumer->warm(from).value();
    BOOST_TEST(r.reason == reason::ok);
    BOOST_TEST((r.owner == n.owner->id()));
    const auto wired = n.wired();
    BOOST_TEST(n.consumer->get(from)->report.path == path::rdma);
    BOOST_TEST((n.wired() == wired));
    BOOST_TEST((n.made_since() == wireup_nodes::counts{1, 1}));
    // There already: it asks for nothing.
    BOOST_TEST(n.consumer->warm(*n.owner->address())->reason == reason::ok);
    BOOST_TEST((n.made_since() == wireup_nodes::counts{1, 1}));
}

BOOST_AUTO_TEST_CASE(contract_7_5_warms_and_gets_at_once_share_one_wireup) {
    wireup_nodes n;
    const auto from = n.stage(medium);
    std::vector<std::future<warm_result>> warms;
    std::vector<std::future<get_result>> gets;
    for (int i = 0; i < 4; ++i) {
        warms.push_back(n.consumer->async_warm(from, {}, boost::asio::use_future));
        gets.push_back(n.consumer->async_get(from, {}, boost::asio::use_future));
    }
    for (auto& w : warms) BOOST_TEST(w.get().reason == reason::ok);
    for (auto& g : gets) {
        const auto got = g.get();
        BOOST_TEST(got.report.path == path::rdma);
        check_pattern(got.data.bytes());
    }
    BOOST_TEST((n.made_since() == wireup_nodes::counts{1, 1}));
}

BOOST_AUTO_TEST_CASE(warm_under_a_kill_switch_says_so_and_is_no_error) {
    auto off = plain();
    off.rdma_disabled = true;
    {
        wireup_nodes n(plain(), off);
        const auto r = n.consumer->warm(*n.owner->address()).value();
        BOOST_TEST(r.reason == reason::kill_switch);
        BOOST_TEST(!r.detail.empty());
        BOOST_TEST((r.owner == n.owner->id()));
    }
    wireup_nodes n(off, plain());
    BOOST_TEST(n.consumer->warm(*n.owner->address())->reason == reason::kill_switch);
}

BOOST_AUTO_TEST_CASE(warm_under_policy_never_makes_nothing) {
    auto never = plain(wireup_eagerness::eager);
    never.policy = path_policy::never;
    wireup_nodes n(plain(), never);
    BOOST_TEST(n.consumer->warm(*n.owner->address())->reason == reason::policy);
    BOOST_TEST((n.made_since() == wireup_nodes::counts{0, 0}));
}

BOOST_AUTO_TEST_CASE(warm_whose_owner_cannot_wire_says_why) {
    wireup_nodes n;
    n.fail_owner(call::to_ready_to_receive, 1, {device_errc::transition_failed, "injected"});
    const auto r = n.consumer->warm(*n.owner->address()).value();
    BOOST_TEST(r.reason == reason::no_lane);
    BOOST_TEST(r.detail.find("injected") != std::string::npos, r.detail);
}

BOOST_AUTO_TEST_CASE(warm_whose_own_end_cannot_be_made_says_why) {
    wireup_nodes n;
    n.plan->fail(call::create_queue_pair, n.plan->count(call::create_queue_pair) + 1,
                 {device_errc::resource, "injected"});
    const auto r = n.consumer->warm(*n.owner->address()).value();
    BOOST_TEST(r.reason == reason::no_route);
    BOOST_TEST(r.detail.find("injected") != std::string::npos, r.detail);
}

BOOST_AUTO_TEST_CASE(warm_of_an_owner_that_only_echoes_pings_says_version) {
    wireup_nodes n;
    scripted_owner echoes([](const raw_socket& s) {
        const auto ping = s.read_frame();
        if (ping) s.write(wire::frame{ping->frame.id, wire::pong{}});
        static_cast<void>(s.read_frame());  // until the consumer goes
    });
    BOOST_TEST(n.consumer->warm(echoes.target().address)->reason == reason::version);
    BOOST_TEST(n.consumer->shutdown(20s));
}

BOOST_AUTO_TEST_CASE(warm_of_a_dead_peer_fails_by_type) {
    wireup_nodes n;
    const auto from = n.stage(medium);
    raw_port mute;
    mute.listen();
    BOOST_TEST(n.consumer->warm(mute.address(), {.deadline = 50ms}).error().code ==
               make_error_code(request_errc::deadline_exceeded));
    BOOST_TEST(n.owner->shutdown(20s));
    BOOST_TEST(n.consumer->warm(from).error().code ==
               make_error_code(connection_errc::connect_failed));
    BOOST_TEST(n.consumer->shutdown(20s));
    BOOST_TEST(n.consumer->warm(from).error().code == make_error_code(node_errc::stopped));
}

BOOST_AUTO_TEST_CASE(warm_of_another_owner_than_the_urls_is_wrong_owner) {
    wireup_nodes n;
    auto from = n.stage(medium);
    from.handle.owner = node_id{from.handle.owner.value ^ 1U};
    BOOST_TEST(n.consumer->warm(from).error().code ==
               make_error_code(connection_errc::wrong_owner));
}

// ---- spares

BOOST_AUTO_TEST_CASE(spares_are_made_ahead_and_made_up_for_when_taken) {
    wireup_nodes n(with_spares(2), with_spares(1));
    BOOST_TEST(has_spares(*n.owner, 2));
    const auto made = n.made_since().owner;
    BOOST_TEST(n.consumer->warm(*n.owner->address())->reason == reason::ok);
    BOOST_TEST(n.owner->statistics().spare_queue_pairs_used == 1u);
    BOOST_TEST(has_spares(*n.owner, 2));
    BOOST_TEST(n.made_since().owner == made + 1);
    // It serves as well, so that it has one for each side once it has got.
    BOOST_TEST(has_spares(*n.consumer, 2));
    BOOST_TEST(n.consumer->get(n.stage(medium))->report.path == path::rdma);
}

BOOST_AUTO_TEST_CASE(spares_used_up_leave_further_consumers_to_make_their_own) {
    wireup_nodes n(with_spares(1));
    BOOST_TEST(has_spares(*n.owner, 1));
    const auto from = n.stage(medium);
    std::vector<node> more;
    for (int i = 0; i < 3; ++i) more.push_back(n.another_consumer());
    std::vector<std::future<get_result>> gets;
    for (auto& c : more) gets.push_back(c.async_get(from, {}, boost::asio::use_future));
    for (auto& g : gets) BOOST_TEST(g.get().report.path == path::rdma);
    BOOST_TEST(n.owner->statistics().spare_queue_pairs_used >= 1u);
    for (auto& c : more) BOOST_TEST(c.shutdown(20s));
    BOOST_TEST(has_spares(*n.owner, 1));
}

BOOST_AUTO_TEST_CASE(spare_that_cannot_be_made_is_tried_again_at_the_next_need) {
    wireup_nodes n(with_spares(1));
    BOOST_TEST(has_spares(*n.owner, 1));
    n.fail_owner(call::create_queue_pair, 1, {device_errc::resource, "injected"});
    const auto made = n.made_since().owner;
    BOOST_TEST(n.consumer->warm(*n.owner->address())->reason == reason::ok);
    BOOST_TEST(eventually([&] { return n.made_since().owner == made + 1; }));
    BOOST_TEST(has_spares(*n.owner, 0));
    auto another = n.another_consumer();
    BOOST_TEST(another.warm(*n.owner->address())->reason == reason::ok);
    BOOST_TEST(has_spares(*n.owner, 1));
    BOOST_TEST(n.made_since().owner == made + 3);
    BOOST_TEST(another.shutdown(20s));
}

BOOST_AUTO_TEST_CASE(spare_being_made_at_shutdown_is_waited_for_and_destroyed) {
    wireup_nodes n(with_spares(2));
    BOOST_TEST(has_spares(*n.owner, 2));
    std::promise<void> begun;
    std::promise<void> go_on;
    // The next one is that of the spare that replaces the one taken.
    n.owner_plan->before(call::to_init, n.owner_plan->count(call::to_init) + 1, [&] {
        begun.set_value();
        go_on.get_future().wait();
    });
    BOOST_TEST(n.consumer->warm(*n.owner->address())->reason == reason::ok);
    begun.get_future().wait();
    auto over = std::async(std::launch::async, [&] { return n.owner->shutdown(20s); });
    BOOST_TEST(n.consumer->shutdown(20s));
    go_on.set_value();
    BOOST_TEST(over.get());
    BOOST_TEST(n.owner_plan->count(call::destroy_queue_pair) ==
               n.owner_plan->count(call::create_queue_pair));
}

}  // namespace
}  // namespace rvget::test
