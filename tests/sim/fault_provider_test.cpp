// The fault decorator over the simulated NIC: counts, failures, hooks, spoiled READs.

#include "fabric/fault/fault_provider.hpp"

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "sim/fixture.hpp"

using namespace rvget;
using namespace rvget::fabric;
using namespace rvget::fabric::sim;
using fault::call;

namespace {

/// Host a is decorated, host b is not.
struct faulty {
    std::shared_ptr<fault::plan> plan = std::make_shared<fault::plan>();
    network net{{1024}};
    end a;
    end b;

    void open() {
        a.open(fault::make_fault_provider(net.attach(roce_host("a", ipv4_gid(10, 0, 0, 1))), plan),
               ipv4_gid(10, 0, 0, 1));
        b.open(net.attach(roce_host("b", ipv4_gid(10, 0, 0, 2))), ipv4_gid(10, 0, 0, 2));
        b.fill(0xbb);
    }
    void connect_ends() {
        a.qp = a.make();
        b.qp = b.make();
        connect(a, *a.qp, b, *b.qp);
    }
    [[nodiscard]] read_request read(std::uint64_t id, bool signalled = true) {
        return {id,
                a.memory.data(),
                a.region->local_key(),
                reinterpret_cast<std::uint64_t>(b.memory.data()),
                b.region->remote_key(),
                1024,
                signalled};
    }
    result<void> post(const read_request& r) { return a.qp->post_reads({&r, 1}); }
    void drain() {
        a.qp->to_error().value();
        net.run();
        while (a.poll()) {
        }
    }
};

const failure injected{device_errc::resource, "injected"};

/// A connection of a device to itself.
bool connects(device& d, const std::string& address, std::uint32_t queue_pair_number) {
    const auto listener = d.listen(address);
    if (!listener) return false;
    auto connecting = std::async(std::launch::async, [&] {
        const auto made = d.connect({address, address, (*listener)->port()},
                                    {.queue_pair_number = queue_pair_number, .private_data = {}},
                                    std::chrono::seconds(20));
        if (!made) (*listener)->stop();
        return made.has_value();
    });
    const auto request = (*listener)->next();
    const bool accepted =
        request && *request &&
        (*request)->establish({.queue_pair_number = queue_pair_number, .private_data = {}});
    return connecting.get() && accepted;
}

/// One get by hand, over every kind of call; false as soon as one fails.
bool whole_life(faulty& f) {
    auto nics =
        fault::make_fault_provider(f.net.attach(roce_host("x", ipv4_gid(9, 0, 0, 1))), f.plan);
    if (!nics->list()) return false;
    auto device = nics->open("sim0");
    if (!device || !(*device)->refresh()) return false;
    std::vector<std::byte> memory(4096);
    auto region = (*device)->register_memory(memory, access::local_write | access::window_bind);
    if (!region) return false;
    auto queue = (*device)->create_completion_queue(16);
    if (!queue) return false;
    auto qp = (*device)->create_queue_pair(*queue, 1, {});
    if (!qp) return false;
    auto window = (*device)->allocate_window();
    if (!window || !(*qp)->to_init(access::remote_read)) return false;
    if (!connects(**device, "9.0.0.1", (*qp)->number())) return false;
    auto self = towards(**qp, ipv4_gid(9, 0, 0, 1));  // connected to itself
    const auto psn = (*qp)->number();
    if (!(*qp)->to_ready_to_receive(self) || !(*qp)->to_ready_to_send({psn, 16, {}})) return false;
    const auto posted = [&] {
        const std::span bytes(memory);
        if (!(*qp)->post_receive({1, bytes.first(64), (*region)->local_key()})) return false;
        if (!(*qp)->post_send({2, bytes.last(64), (*region)->local_key(), false, true}))
            return false;
        if (!(*qp)->post_bind(3, **window, **region, bytes, access::remote_read, true))
            return false;
        const read_request r{4,
                             memory.data(),
                             (*region)->local_key(),
                             reinterpret_cast<std::uint64_t>(memory.data() + 2048),
                             (*window)->remote_key(),
                             2048,
                             true};
        if (!(*qp)->post_reads({&r, 1})) return false;
        if (!(*qp)->post_invalidate(5, **window, true) || !(*queue)->arm()) return false;
        return (*qp)->state().has_value() && (*qp)->post_marker(6).has_value();
    };
    const bool good = posted();
    f.net.run();
    std::vector<completion> out(16);
    const auto polled = (*queue)->poll(out);
    const bool stopped = (*qp)->to_error().has_value();
    return good && polled && *polled == 6 && stopped;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(fault_provider, faulty)

BOOST_AUTO_TEST_CASE(every_call_is_counted_by_kind) {
    BOOST_TEST(whole_life(*this));
    const auto counts = plan->counts();
    std::uint64_t total = 0;
    for (std::size_t kind = 0; kind < counts.size(); ++kind) {
        BOOST_TEST(counts[kind] == 1u, fault::to_string(static_cast<call>(kind)));
        total += counts[kind];
    }
    BOOST_TEST(plan->count(call::any) == total);
    BOOST_TEST(plan->reads() == 1u);
    BOOST_TEST(net.violations().empty());
}

BOOST_AUTO_TEST_CASE(walking_the_nth_call_overall_fails_each_once) {
    BOOST_REQUIRE(whole_life(*this));
    const auto calls = plan->count(call::any);
    for (std::uint64_t nth = 1; nth < calls; ++nth) {  // the last is the destruction
        faulty f;
        f.plan->fail(call::any, nth, injected);
        BOOST_TEST(!whole_life(f), "call " << nth << " of " << calls);
    }
}

BOOST_AUTO_TEST_CASE(walking_each_kind_fails_each_once) {
    for (std::size_t kind = 0; kind < fault::call_kinds; ++kind) {
        if (static_cast<call>(kind) == call::destroy_queue_pair) continue;
        faulty f;
        f.plan->fail(static_cast<call>(kind), 1, injected);
        BOOST_TEST(!whole_life(f), fault::to_string(static_cast<call>(kind)));
    }
}

BOOST_AUTO_TEST_CASE(failed_call_returns_the_failure_and_does_not_reach_the_device) {
    open();
    connect_ends();
    plan->fail(call::post_reads, 2, {device_errc::post_failed, "second"});
    BOOST_TEST(post(read(1)).has_value());
    const auto second = post(read(2));
    BOOST_REQUIRE(!second.has_value());
    BOOST_CHECK(second.error().code == device_errc::post_failed);
    BOOST_TEST(second.error().detail == "second");
    BOOST_TEST(post(read(3)).has_value());
    net.run();
    BOOST_TEST(a.poll().value().id == 1u);
    BOOST_TEST(a.poll().value().id == 3u);
    BOOST_TEST(!a.poll().has_value());
}

BOOST_AUTO_TEST_CASE(completion_queue_whose_poll_failed_stays_lost) {
    open();
    plan->fail(call::poll, 2, injected);
    completion c;
    BOOST_TEST(a.completions->poll({&c, 1}).has_value());
    BOOST_TEST(!a.completions->poll({&c, 1}).has_value());
    BOOST_TEST(!a.completions->poll({&c, 1}).has_value());
}

BOOST_AUTO_TEST_CASE(hooks_run_before_and_after_their_call) {
    open();
    connect_ends();
    std::string order;
    plan->before(call::post_marker, 2, [&] {
        order += "before" + std::to_string(net.runnable());
        BOOST_TEST(plan->count(call::post_marker) == 2u);  // no lock is held
    });
    plan->after(call::post_marker, 2, [&] { order += " after" + std::to_string(net.runnable()); });
    a.qp->post_marker(1).value();
    net.run();
    BOOST_TEST(order.empty());
    a.qp->post_marker(2).value();
    BOOST_TEST(order == "before0 after1");
    drain();
    bool destroyed = false;
    plan->after(call::destroy_queue_pair, 1, [&] { destroyed = true; });
    a.qp.reset();
    BOOST_TEST(destroyed);
}

BOOST_AUTO_TEST_CASE(nth_read_fails_and_what_follows_it_is_flushed) {
    open();
    connect_ends();
    plan->fail_read(2, completion_status::remote_access);
    const std::vector<read_request> reads{read(1, false), read(2, false), read(3, false)};
    a.qp->post_reads(reads).value();
    BOOST_TEST(post(read(4, false)).has_value());
    net.run();
    const auto second = a.poll();
    BOOST_REQUIRE(second);
    BOOST_TEST(second->id == 2u);
    BOOST_TEST(second->status == completion_status::remote_access);
    BOOST_TEST(a.qp->state().value() == queue_pair_state::error);
    a.qp->post_marker(5).value();
    net.run();
    for (const std::uint64_t id : {3u, 4u, 5u}) {
        const auto c = a.poll();
        BOOST_REQUIRE(c);
        BOOST_TEST(c->id == id);
        BOOST_TEST(c->status == completion_status::flushed);
    }
    BOOST_TEST(!a.poll().has_value());
}

BOOST_AUTO_TEST_CASE(queue_pair_that_breaks_before_a_call_is_in_error_and_the_call_reaches_it) {
    open();
    connect_ends();
    plan->break_queue_pair(call::post_reads, 2);
    BOOST_TEST(post(read(1)).has_value());
    net.run();
    BOOST_TEST(a.poll().value().status == completion_status::success);
    BOOST_TEST(post(read(2)).has_value());
    BOOST_TEST(a.qp->state().value() == queue_pair_state::error);
    net.run();
    BOOST_TEST(a.poll().value().status == completion_status::flushed);
    BOOST_TEST(plan->count(call::to_error) == 0u);  // nobody asked for it
}

BOOST_AUTO_TEST_CASE(failed_read_spoils_its_own_queue_pair_only) {
    open();
    connect_ends();
    auto qa = a.make();
    auto qb = b.make();
    connect(a, *qa, b, *qb);
    plan->fail_read(1, completion_status::retry_exceeded);
    BOOST_TEST(post(read(1)).has_value());
    net.run();
    const auto other = read(1);
    qa->post_reads({&other, 1}).value();
    net.run();
    BOOST_TEST(a.poll().value().status == completion_status::retry_exceeded);
    BOOST_TEST(a.poll().value().status == completion_status::success);
    BOOST_TEST(qa->state().value() == queue_pair_state::ready_to_send);
    a.qp.reset();  // its script goes with it
    BOOST_TEST(net.violations().empty());
}

BOOST_AUTO_TEST_CASE(nth_read_is_refused_by_the_peers_nic_itself) {
    open();
    connect_ends();
    plan->refuse_read(2);
    const std::vector<read_request> reads{read(1), read(2), read(3)};
    a.qp->post_reads(reads).value();
    net.run();
    BOOST_TEST(a.poll().value().status == completion_status::success);
    const auto second = a.poll().value();
    BOOST_TEST(second.id == 2u);
    BOOST_TEST(second.status == completion_status::remote_access);
    BOOST_TEST(b.qp->state().value() == queue_pair_state::error);
}

BOOST_AUTO_TEST_CASE(completion_queue_of_another_provider_is_refused) {
    open();
    const auto refused = a.device->create_queue_pair(b.completions, 1, {});
    BOOST_REQUIRE(!refused.has_value());
    BOOST_CHECK(refused.error().code == device_errc::resource);
}

BOOST_AUTO_TEST_CASE(decorated_children_keep_their_parents_alive) {
    open();
    connect_ends();
    a.nics.reset();
    a.device.reset();
    plan.reset();
    BOOST_TEST(post(read(1)).has_value());
    net.run();
    BOOST_TEST(a.poll().value().status == completion_status::success);
}

BOOST_AUTO_TEST_CASE(calls_from_several_threads_are_all_counted) {
    open();
    constexpr int threads = 4;
    constexpr int rounds = 200;
    std::vector<std::thread> running;
    for (int t = 0; t < threads; ++t) {
        running.emplace_back([&] {
            for (int i = 0; i < rounds; ++i) a.make()->to_error().value();
        });
    }
    for (auto& t : running) t.join();
    BOOST_TEST(plan->count(call::create_queue_pair) == std::uint64_t{threads * rounds});
    BOOST_TEST(plan->count(call::to_init) == std::uint64_t{threads * rounds});
    BOOST_TEST(plan->count(call::destroy_queue_pair) == std::uint64_t{threads * rounds});
}

BOOST_AUTO_TEST_SUITE_END()
