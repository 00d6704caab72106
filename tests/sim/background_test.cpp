// The network driven by its own thread, as whole nodes in one process use it.

#include <poll.h>

#include <boost/test/unit_test.hpp>
#include <thread>

#include "sim/fixture.hpp"

using namespace rvget::fabric;
using namespace rvget::fabric::sim;

namespace {

struct background : two_hosts {
    background() { net.run_in_background(true, 7); }
    ~background() { net.run_in_background(false); }
};

bool readable(int descriptor, int milliseconds) {
    pollfd p{descriptor, POLLIN, 0};
    return ::poll(&p, 1, milliseconds) == 1;
}

/// Waits as a reactor does: poll, arm, poll once more, sleep on the descriptor. Any thread (the
/// test macros are for the main thread only); gives up with `other` after 20 s.
completion wait(const end& e) {
    for (;;) {
        if (const auto c = e.poll()) return *c;
        e.completions->arm().value();
        if (const auto c = e.poll()) return *c;
        if (!readable(e.completions->event_descriptor(), 20000)) {
            return {0, completion_status::other, 0, operation::other, 0, 0};
        }
        e.completions->consume_events();
    }
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(in_background, background)

BOOST_AUTO_TEST_CASE(armed_queue_becomes_readable_at_the_next_completion_once) {
    connect_ends();
    const int descriptor = a.completions->event_descriptor();
    BOOST_REQUIRE(descriptor >= 0);
    a.completions->arm().value();
    BOOST_TEST(!readable(descriptor, 0));
    post(read(1, 0, 4096));
    BOOST_TEST(readable(descriptor, 20000));
    a.completions->consume_events();
    BOOST_TEST(!readable(descriptor, 0));
    BOOST_TEST(wait(a).id == 1u);
    post(read(2, 0, 4096));  // a new completion raises no event without a new arm
    BOOST_TEST(wait(a).id == 2u);
}

BOOST_AUTO_TEST_CASE(descriptor_made_after_an_event_is_readable) {
    connect_ends();
    net.run_in_background(false);
    a.completions->arm().value();
    post(read(1, 0, 16));
    net.run();
    BOOST_TEST(readable(a.completions->event_descriptor(), 0));
    BOOST_TEST(a.poll().has_value());
}

BOOST_AUTO_TEST_CASE(completion_that_came_before_the_arm_raises_no_event) {
    connect_ends();
    net.run_in_background(false);
    post(read(1, 0, 16));
    net.run();
    a.completions->arm().value();
    BOOST_TEST(!readable(a.completions->event_descriptor(), 0));
    BOOST_TEST(a.poll().has_value());
}

BOOST_AUTO_TEST_CASE(peer_gone_times_out_after_the_retry_window) {
    connect_ends({.retry = {12, 1, 1, 12}});  // 4.096 us x 4096 x 2 = 34 ms
    net.drop_between("a", "b");
    const auto begin = std::chrono::steady_clock::now();
    post(read(1, 0, 4096));
    BOOST_TEST(wait(a).status == completion_status::retry_exceeded);
    BOOST_TEST((std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(33)));
}

BOOST_AUTO_TEST_CASE(peer_that_comes_back_within_the_retry_window_answers) {
    connect_ends({.retry = {20, 6, 6, 12}});  // half a minute
    net.drop_between("a", "b");
    post(read(1, 0, 4096));
    while (net.at(0).kind != step_kind::retry_timeout) std::this_thread::yield();
    net.drop_between("a", "b", false);
    BOOST_TEST(wait(a).status == completion_status::success);
}

BOOST_AUTO_TEST_CASE(device_events_are_readable) {
    const int descriptor = b.device->event_descriptor();
    BOOST_REQUIRE(descriptor >= 0);
    BOOST_TEST(!readable(descriptor, 0));
    net.set_link("b", "sim0", 1, false);
    BOOST_TEST(readable(descriptor, 0));
    BOOST_TEST(b.device->next_event().has_value());
    BOOST_TEST(!b.device->next_event().has_value());
    BOOST_TEST(!readable(descriptor, 0));
}

BOOST_AUTO_TEST_CASE(threads_on_both_hosts_get_their_own_bytes) {
    constexpr int threads = 4;
    constexpr int rounds = 50;
    struct worker {
        end a;
        end b;
    };
    std::vector<worker> workers(threads);
    for (int t = 0; t < threads; ++t) {
        auto& w = workers[t];
        const auto ga = ipv4_gid(10, 0, 1, static_cast<std::uint8_t>(2 * t));
        const auto gb = ipv4_gid(10, 0, 1, static_cast<std::uint8_t>(2 * t + 1));
        w.a.open(net.attach(roce_host("a" + std::to_string(t), ga)), ga);
        w.b.open(net.attach(roce_host("b" + std::to_string(t), gb)), gb);
        w.b.fill(static_cast<unsigned char>(t + 1));
    }
    std::vector<int> good(threads, 0);
    std::vector<std::thread> running;
    for (int t = 0; t < threads; ++t) {
        running.emplace_back([&w = workers[t], &good = good[t], t] {
            for (int round = 0; round < rounds; ++round) {
                auto qa = w.a.make();
                auto qb = w.b.make();
                connect(w.a, *qa, w.b, *qb);
                std::fill(w.a.memory.begin(), w.a.memory.end(), std::byte{0});
                const read_request r{1,
                                     w.a.memory.data(),
                                     w.a.region->local_key(),
                                     reinterpret_cast<std::uint64_t>(w.b.memory.data()),
                                     w.b.region->remote_key(),
                                     16384,
                                     true};
                qa->post_reads({&r, 1}).value();
                const auto c = wait(w.a);
                qa->to_error().value();
                qa->post_marker(2).value();
                const auto marker = wait(w.a);
                good += c.status == completion_status::success && c.id == 1 &&
                        w.a.memory[16383] == std::byte(t + 1) &&
                        marker.status == completion_status::flushed && marker.id == 2;
            }
        });
    }
    for (auto& t : running) t.join();
    for (const int n : good) BOOST_TEST(n == rounds);
    BOOST_TEST(net.violations().empty());
}

BOOST_AUTO_TEST_SUITE_END()
