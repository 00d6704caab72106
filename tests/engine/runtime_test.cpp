// The strand: timers, posting, worker threads, stopping, and the two ways to run it.

#include <atomic>
#include <latch>
#include <mutex>
#include <set>
#include <thread>

#include <boost/test/unit_test.hpp>

#include "engine/runtime_fixture.hpp"

namespace rvget::test {
namespace {

using engine::environment;

BOOST_AUTO_TEST_CASE(timer_due_in_any_order_fires_by_time_then_by_call) {
    embedded e;
    std::vector<int> fired;
    e.on_strand([&] {
        auto& env = e.rt.env();
        const time_point now = env.now();
        env.at(now + 30ms, [&] { fired.push_back(4); });
        env.at(now + 10ms, [&] { fired.push_back(1); });
        env.at(now + 20ms, [&] { fired.push_back(2); });
        env.at(now + 20ms, [&] { fired.push_back(3); });
    });
    BOOST_REQUIRE(e.until([&] { return fired.size() == 4; }));
    BOOST_TEST(fired == (std::vector{1, 2, 3, 4}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(timer_at_its_time_is_never_early) {
    embedded e;
    time_point asked;
    time_point fired;
    e.on_strand([&] {
        asked = e.rt.env().now() + 5ms;
        e.rt.env().at(asked, [&] { fired = e.rt.env().now(); });
    });
    BOOST_REQUIRE(e.until([&] { return fired != time_point(); }));
    BOOST_TEST((fired >= asked));
}

BOOST_AUTO_TEST_CASE(timer_cancelled_never_fires_even_by_one_due_with_it) {
    embedded e;
    bool cancelled_fired = false;
    bool last_fired = false;
    e.on_strand([&] {
        auto& env = e.rt.env();
        const time_point due = env.now() + 2ms;
        const auto early = env.at(env.now() + 1ms, [&] { cancelled_fired = true; });
        auto second = std::make_shared<environment::timer_id>();
        env.at(due, [&env, second] { env.cancel(*second); });
        *second = env.at(due, [&] { cancelled_fired = true; });
        env.at(due + 1ms, [&] { last_fired = true; });
        env.cancel(early);
        env.cancel(early);
        env.cancel(0);
    });
    BOOST_REQUIRE(e.until([&] { return last_fired; }));
    BOOST_TEST(!cancelled_fired);
}

BOOST_AUTO_TEST_CASE(timer_always_asking_for_the_past_starves_nobody) {
    embedded e;
    bool greedy = true;
    std::function<void()> again = [&] {
        if (greedy) e.rt.env().at(time_point(), again);
    };
    bool other = false;
    e.on_strand([&] {
        again();
        e.rt.env().at(e.rt.env().now() + 1ms, [&] { other = true; });
    });
    BOOST_TEST(e.until([&] { return other; }));
    greedy = false;
}

BOOST_AUTO_TEST_CASE(post_from_many_threads_keeps_the_order_of_each) {
    engine::runtime rt;
    constexpr int per_thread = 2000;
    std::array<std::vector<int>, 3> seen;
    std::latch all(3 * per_thread);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < seen.size(); ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < per_thread; ++i) {
                rt.post([&, t, i] {
                    seen[t].push_back(i);
                    all.count_down();
                });
            }
        });
    }
    for (auto& t : threads) t.join();
    all.wait();
    rt.stop();
    for (const auto& one : seen) {
        BOOST_TEST(one.size() == std::size_t{per_thread});
        BOOST_TEST(std::ranges::is_sorted(one));
    }
}

BOOST_AUTO_TEST_CASE(offload_done_runs_on_the_strand_after_its_work) {
    embedded e;
    std::thread::id worked;
    std::thread::id done;
    e.on_strand([&] {
        e.rt.env().offload(
            engine::blocking_work::make, [&] { worked = std::this_thread::get_id(); },
            [&] { done = std::this_thread::get_id(); });
    });
    BOOST_REQUIRE(e.until([&] { return done != std::thread::id(); }));
    BOOST_TEST((done == std::this_thread::get_id()));
    BOOST_TEST((worked != std::thread::id()));
    BOOST_TEST((worked != std::this_thread::get_id()));
}

BOOST_AUTO_TEST_CASE(offload_beyond_the_limit_waits_for_a_thread) {
    engine::runtime_options options;
    options.worker_threads = 2;
    engine::runtime rt(options);
    std::mutex mutex;
    std::set<std::thread::id> threads;
    int running = 0;
    int most = 0;
    std::latch both(2);
    std::latch all(8);
    for (int i = 0; i < 8; ++i) {
        rt.env().offload(
            engine::blocking_work::make,
            [&, i] {
                {
                    const std::lock_guard lock(mutex);
                    threads.insert(std::this_thread::get_id());
                    most = std::max(most, ++running);
                }
                if (i < 2) both.arrive_and_wait();  // hangs unless two run at once
                const std::lock_guard lock(mutex);
                --running;
            },
            [&] { all.count_down(); });
    }
    all.wait();
    rt.stop();
    BOOST_TEST(most == 2);
    BOOST_TEST(threads.size() == 2u);
}

BOOST_AUTO_TEST_CASE(contract_1_1_random_value_differs_and_is_not_zero) {
    embedded e;
    const auto first = e.rt.env().random();
    BOOST_TEST(first != 0u);
    BOOST_TEST(first != e.rt.env().random());
}

/// Everything that can be pending, each with a callback that would tell on a stop that is none.
struct busy_runtime {
    explicit busy_runtime(engine::runtime& r) : rt(r) {}

    void begin(std::uint16_t dead_port) {
        auto& env = rt.env();
        tick();
        env.at(env.now() + 24h, [this] { called(); });
        env.offload(
            engine::blocking_work::make, [] {}, [this] { called(); });
        rt.network().listen({"127.0.0.1", 0}, [this](auto) { called(); }).value();
        rt.network().connect({"127.0.0.1", dead_port}, env.now() + 24h, [this](auto link) {
            called();
            connect_answered = true;
            connect_code = link ? error_code() : link.error().code;
        });
    }
    void tick() {
        called();
        rt.env().at(rt.env().now(), [this] { tick(); });
        rt.post([this] { called(); });
    }
    void called() {
        if (stopped) after_stop = true;
    }

    engine::runtime& rt;
    std::atomic<bool> stopped = false;
    std::atomic<bool> after_stop = false;
    bool connect_answered = false;
    error_code connect_code;
};

/// A listener that answers no SYN any more, as its backlog is full.
struct deaf_listener {
    deaf_listener() {
        std::tie(socket, port) = bound_socket();
        ::listen(socket.get(), 0);
        filler = connect_raw(port);
    }
    socket_owner socket;
    std::uint16_t port = 0;
    socket_owner filler;
};

BOOST_AUTO_TEST_CASE(stop_with_everything_pending_lets_no_callback_follow) {
    deaf_listener deaf;
    auto rt = std::make_unique<engine::runtime>();
    busy_runtime busy(*rt);
    std::promise<void> begun;
    rt->post([&] {
        busy.begin(deaf.port);
        begun.set_value();
    });
    begun.get_future().wait();
    rt->stop();
    busy.stopped = true;
    BOOST_TEST(busy.connect_answered);
    BOOST_TEST(busy.connect_code == make_error_code(node_errc::stopped));
    rt->post([&] { busy.called(); });
    BOOST_TEST(rt->env().at(rt->env().now(), [&] { busy.called(); }) == 0u);
    rt->stop();
    rt.reset();
    BOOST_TEST(!busy.after_stop.load());
}

BOOST_AUTO_TEST_CASE(stop_embedded_needs_nobody_to_run_the_context) {
    deaf_listener deaf;
    embedded e;
    busy_runtime busy(e.rt);
    e.on_strand([&] { busy.begin(deaf.port); });
    e.rt.stop();  // on a thread that runs nothing
    busy.stopped = true;
    BOOST_TEST(busy.connect_answered);
    e.context.restart();
    e.context.run_for(10s);
    BOOST_TEST(e.context.stopped());  // out of work: nothing was left behind
    BOOST_TEST(!busy.after_stop.load());
}

BOOST_AUTO_TEST_CASE(stop_waits_for_offloaded_work_and_drops_its_done) {
    engine::runtime rt;
    std::latch begun(1);
    bool worked = false;
    std::atomic<bool> done = false;
    std::promise<void> stopping;
    rt.post([&] {
        auto& env = rt.env();
        // Destroyed in stop(), before it waits for the work.
        env.at(env.now() + 24h,
               [held = std::shared_ptr<int>(nullptr, [&](int*) { stopping.set_value(); })] {});
        env.offload(
            engine::blocking_work::make,
            [&] {
                begun.count_down();
                stopping.get_future().wait();
                worked = true;
            },
            [&] { done = true; });
    });
    begun.wait();
    rt.stop();
    BOOST_TEST(worked);
    BOOST_TEST(!done.load());
}

BOOST_AUTO_TEST_CASE(stop_from_a_callback_ends_the_rest_of_its_turn) {
    engine::runtime rt;
    std::promise<void> stopped;
    std::atomic<bool> later = false;
    rt.post([&] {
        rt.post([&] { later = true; });
        rt.env().at(rt.env().now(), [&] { later = true; });
        rt.stop();
        stopped.set_value();
    });
    stopped.get_future().wait();
    rt.stop();
    BOOST_TEST(!later.load());
}

BOOST_AUTO_TEST_CASE(task_destroyed_at_stop_may_call_the_environment) {
    engine::runtime rt;
    auto& env = rt.env();
    bool called = false;
    const auto meddler = [&](int*) {
        env.cancel(1);
        env.at(env.now(), [] {});
        env.post([] {});
        called = true;
    };
    std::promise<void> begun;
    rt.post([&] {
        env.at(env.now() + 24h, [held = std::shared_ptr<int>(nullptr, meddler)] {});
        begun.set_value();
    });
    begun.get_future().wait();
    rt.stop();
    BOOST_TEST(called);
}

BOOST_AUTO_TEST_CASE(embedded_context_with_two_threads_never_runs_two_callbacks_at_once) {
    boost::asio::io_context context;
    engine::runtime rt(context);
    std::atomic<int> inside = 0;
    std::atomic<bool> overlapped = false;
    std::set<std::thread::id> threads;
    int plain = 0;  // unprotected: the thread sanitizer watches it
    constexpr int rounds = 3000;
    std::latch all(4 * rounds);
    const auto enter = [&] {
        overlapped = overlapped || inside.fetch_add(1) != 0;
        ++plain;
        threads.insert(std::this_thread::get_id());
        inside.fetch_sub(1);
        all.count_down();
    };
    auto guard = boost::asio::make_work_guard(context);
    std::thread one([&] { context.run(); });
    std::thread two([&] { context.run(); });
    for (int i = 0; i < rounds; ++i) {
        rt.post([&] {
            enter();
            rt.env().at(rt.env().now(), enter);
            rt.env().offload(
                engine::blocking_work::make, [] {}, enter);
        });
        rt.post(enter);
    }
    all.wait();
    rt.stop();
    guard.reset();
    one.join();
    two.join();
    BOOST_TEST(!overlapped.load());
    BOOST_TEST(plain == 4 * rounds);
}

}  // namespace
}  // namespace rvget::test
