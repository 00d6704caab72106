// The reactor against scripted completion sources.

#include <cstdlib>
#include <functional>
#include <new>

#include <fcntl.h>
#include <sched.h>
#include <sys/eventfd.h>

#include <boost/test/unit_test.hpp>

#include "engine/runtime_fixture.hpp"

namespace {
thread_local std::size_t allocations = 0;
}

// The whole program counts, so that a turn of the reactor can be shown to allocate nothing. Not
// inlined: GCC 12 would see free() meet a `new` that it did not inline, and warn of a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) {
    ++allocations;
    if (void* p = std::malloc(size)) return p;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace rvget::test {
namespace {

/// A completion queue as verbs has it: arming asks for one event at the next completion, and what
/// is there already raises none.
struct scripted_source : engine::completion_source {
    explicit scripted_source(bool with_events = true)
        : event(with_events ? ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) : -1) {}

    std::size_t poll() override {
        ++polls;
        const std::size_t n = std::exchange(ready, 0);
        handled += n;
        expected -= std::min(n, expected);
        if (auto f = std::exchange(after_poll, nullptr)) f();
        return n;
    }
    void arm() override {
        ++arms;
        if (auto f = std::exchange(before_arm, nullptr)) f();
        armed = true;
        if (auto f = std::exchange(after_arm, nullptr)) f();
    }
    int event_descriptor() const override { return event.get(); }
    void consume_events() override {
        std::uint64_t count = 0;
        consumed += ::read(event.get(), &count, sizeof count) == sizeof count;
    }
    bool expects_completions() const override { return expected > 0; }

    void complete() {
        ++ready;
        if (std::exchange(armed, false)) {
            const std::uint64_t one = 1;
            if (::write(event.get(), &one, sizeof one) != sizeof one) std::abort();
        }
    }

    socket_owner event;
    std::size_t ready = 0;
    std::size_t expected = 0;
    std::size_t handled = 0;
    std::size_t polls = 0;
    std::size_t arms = 0;
    std::size_t consumed = 0;
    bool armed = false;
    std::function<void()> before_arm;
    std::function<void()> after_arm;
    std::function<void()> after_poll;
};

engine::runtime_options spinning(std::chrono::microseconds spin) {
    engine::runtime_options options;
    options.spin = spin;
    return options;
}

struct watching : embedded {
    explicit watching(std::chrono::microseconds spin = 0us, bool with_events = true)
        : embedded(spinning(spin)), source(std::make_shared<scripted_source>(with_events)) {
        on_strand([&] { rt.env().watch(source); });
    }
    /// One request is outstanding, and the source waits for its completion's event.
    void parked() {
        if (source->expected == 0) expect();
        BOOST_REQUIRE(until([&] { return source->armed; }));
        on_strand([] {});
    }
    void expect() {
        on_strand([&] {
            ++source->expected;
            rt.env().expect_completions();
        });
    }
    std::shared_ptr<scripted_source> source;
};

bool one_cpu() {
    cpu_set_t allowed;
    return ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) == 1;
}

BOOST_AUTO_TEST_CASE(source_idle_is_left_alone) {
    watching w(10s);
    w.on_strand([] {});
    BOOST_TEST(w.source->arms == 0u);
    BOOST_TEST(w.source->polls == 1u);
}

BOOST_AUTO_TEST_CASE(source_that_expects_is_armed_once_without_spinning) {
    watching w;
    w.on_strand([] {});
    const auto polls = w.source->polls;
    w.parked();
    w.expect();
    w.on_strand([] {});
    BOOST_TEST(w.source->arms == 1u);
    BOOST_TEST(w.source->polls == polls + 2);  // once before arming, once after
}

BOOST_AUTO_TEST_CASE(completion_by_the_end_of_the_turn_that_posted_needs_no_event) {
    watching w;
    w.on_strand([&] {
        ++w.source->expected;
        w.rt.env().expect_completions();
        w.source->complete();
    });
    BOOST_TEST(w.source->handled == 1u);
    BOOST_TEST(w.source->arms == 0u);
}

BOOST_AUTO_TEST_CASE(source_parked_is_polled_on_its_event) {
    watching w;
    w.parked();
    w.source->complete();
    BOOST_TEST(w.until([&] { return w.source->handled == 1; }));
    BOOST_TEST(w.source->consumed == 1u);
    w.parked();
    w.source->complete();
    BOOST_TEST(w.until([&] { return w.source->handled == 2; }));
}

BOOST_AUTO_TEST_CASE(completion_between_poll_and_arm_is_not_lost) {
    watching w;
    w.source->before_arm = [s = w.source.get()] { s->complete(); };
    w.expect();
    BOOST_TEST(w.until([&] { return w.source->handled == 1; }));
    BOOST_TEST(w.source->consumed == 0u);  // it raised no event
}

BOOST_AUTO_TEST_CASE(completion_between_arm_and_poll_is_not_lost_nor_its_event) {
    watching w;
    w.source->after_arm = [s = w.source.get()] { s->complete(); };
    w.expect();
    BOOST_TEST(w.until([&] { return w.source->handled == 1; }));
    BOOST_TEST(w.until([&] { return w.source->consumed == 1; }));
    w.parked();
    w.source->complete();
    BOOST_TEST(w.until([&] { return w.source->handled == 2; }));
}

BOOST_AUTO_TEST_CASE(completion_between_the_last_poll_and_the_wait_is_not_lost) {
    watching w;
    w.source->after_arm = [s = w.source.get()] {
        s->after_poll = [s] { s->complete(); };  // behind the poll that follows arming
    };
    w.expect();
    BOOST_TEST(w.until([&] { return w.source->handled == 1; }));
    BOOST_TEST(w.source->consumed == 1u);
}

BOOST_AUTO_TEST_CASE(completions_that_never_end_leave_others_their_turns) {
    watching w;
    // Each completion posts the next request, which has completed when it is looked for.
    std::function<void()> again = [&] {
        w.source->expected = w.source->ready = 1;
        w.source->after_poll = again;
        w.rt.env().expect_completions();
    };
    w.on_strand([&] { again(); });
    bool fired = false;
    w.on_strand([&] { w.rt.env().at(w.rt.env().now(), [&] { fired = true; }); });
    BOOST_TEST(w.until([&] { return fired; }));
    BOOST_TEST(w.source->handled > 1u);
    w.source->after_poll = nullptr;
}

BOOST_AUTO_TEST_CASE(completion_while_spinning_is_found_without_an_event) {
    if (one_cpu()) {
        BOOST_TEST_MESSAGE("skipped: one CPU, where the reactor does not spin");
        BOOST_TEST(one_cpu());
        return;
    }
    watching w(10s);
    w.on_strand([] {});
    const auto arms = w.source->arms;
    w.expect();
    const auto polls = w.source->polls;
    BOOST_REQUIRE(w.until([&] { return w.source->polls > polls + 100; }));
    BOOST_TEST(w.source->arms == arms);
    w.source->complete();
    BOOST_TEST(w.until([&] { return w.source->handled == 1; }));
}

BOOST_AUTO_TEST_CASE(source_without_completions_parks_when_the_spin_is_over) {
    watching w(200us);
    w.expect();
    // Whatever it does, it ends up parked on its event, from which it is found.
    const auto quiet = [&] {
        const auto before = w.source->polls;
        w.context.restart();
        w.context.run_one_for(20ms);
        return w.source->polls == before;
    };
    int turns = 0;
    while (!quiet() && turns < 100'000) ++turns;
    BOOST_TEST(turns < 100'000);
    BOOST_TEST(w.source->armed);
    w.source->complete();
    BOOST_TEST(w.until([&] { return w.source->handled == 1; }));
}

BOOST_AUTO_TEST_CASE(turn_of_spinning_allocates_nothing) {
    if (one_cpu()) {
        BOOST_TEST_MESSAGE("skipped: one CPU, where the reactor does not spin");
        BOOST_TEST(one_cpu());
        return;
    }
    watching w(10s);
    w.expect();
    const auto turns = [&](std::size_t polls) {
        const auto end = w.source->polls + polls;
        std::size_t handlers = 0;
        while (w.source->polls < end) handlers += w.context.run_one();
        return handlers;
    };
    w.context.restart();
    turns(1000);
    const std::size_t before = allocations;
    const std::size_t handlers = turns(10'000);
    const std::size_t after = allocations;
    BOOST_TEST(handlers > 100u);
    BOOST_TEST(after - before == 0u);
}

BOOST_AUTO_TEST_CASE(source_without_descriptor_is_polled_by_timer_while_it_expects) {
    watching w(0us, false);
    w.expect();
    BOOST_REQUIRE(w.until([&] { return w.source->polls > 5; }));
    w.source->complete();
    BOOST_REQUIRE(w.until([&] { return w.source->handled == 1; }));
    w.on_strand([] {});
    const auto polls = w.source->polls;
    w.context.restart();
    w.context.run_for(10ms);
    BOOST_TEST(w.source->polls <= polls + 1);  // expects nothing: left alone
    w.expect();
    BOOST_TEST(w.until([&] { return w.source->polls > polls + 3; }));
}

BOOST_AUTO_TEST_CASE(source_unwatched_is_released_and_its_descriptor_left_open) {
    watching w;
    w.parked();
    w.on_strand([&] { w.rt.env().unwatch(*w.source); });
    const auto polls = w.source->polls;
    w.source->complete();
    w.context.restart();
    w.context.poll();
    BOOST_TEST(w.source->polls == polls);
    BOOST_TEST(::fcntl(w.source->event.get(), F_GETFD) >= 0);
    BOOST_TEST(w.source.use_count() == 1);
}

BOOST_AUTO_TEST_CASE(source_unwatching_itself_in_a_poll_is_not_touched_again) {
    watching w;
    w.parked();
    w.source->after_poll = [&] { w.rt.env().unwatch(*w.source); };
    const auto polls = w.source->polls;
    w.source->complete();
    BOOST_TEST(w.until([&] { return w.source->polls == polls + 1; }));
    w.context.restart();
    w.context.poll();
    BOOST_TEST(w.source->polls == polls + 1);
    BOOST_TEST(w.source.use_count() == 1);
}

BOOST_AUTO_TEST_CASE(sources_watched_together_are_served_each) {
    watching w;
    auto other = std::make_shared<scripted_source>();
    w.on_strand([&] {
        w.rt.env().watch(other);
        ++other->expected;
    });
    w.parked();
    BOOST_REQUIRE(w.until([&] { return other->armed; }));
    other->complete();
    BOOST_TEST(w.until([&] { return other->handled == 1; }));
    w.source->complete();
    BOOST_TEST(w.until([&] { return w.source->handled == 1; }));
}

BOOST_AUTO_TEST_CASE(stop_with_a_source_watched_releases_it) {
    watching w;
    w.parked();
    w.rt.stop();
    w.context.restart();
    w.context.run();
    BOOST_TEST(w.source.use_count() == 1);
}

}  // namespace
}  // namespace rvget::test
