// Type-2 memory windows: one queue pair, one key per bind, dead after invalidate.

#include <boost/test/unit_test.hpp>

#include "sim/fixture.hpp"

using namespace rvget::fabric;
using namespace rvget::fabric::sim;

namespace {

/// b's region has no remote right of its own, as in window mode.
struct window_hosts : two_hosts {
    std::unique_ptr<memory_window> window;

    window_hosts() {
        b.region =
            b.device->register_memory(b.memory, access::local_write | access::window_bind).value();
        connect_ends();
        window = b.device->allocate_window().value();
    }
    void bind(std::size_t offset, std::size_t bytes) {
        b.qp->post_bind(100, *window, *b.region, b.part(offset, bytes), access::remote_read, true)
            .value();
    }
    void invalidate() { b.qp->post_invalidate(101, *window, true).value(); }
    [[nodiscard]] completion_status status_at_owner() {
        net.run();
        return b.poll().value().status;
    }
    [[nodiscard]] read_request windowed(std::uint64_t id, std::size_t offset, std::uint32_t bytes) {
        auto r = read(id, offset, bytes);
        r.remote_key = window->remote_key();
        return r;
    }
    completion_status read_through(std::size_t offset, std::uint32_t bytes) {
        post(windowed(1, offset, bytes));
        net.run();
        return a.poll().value().status;
    }
    /// Unbinds before the members go, as the seam demands.
    ~window_hosts() {
        window.reset();
        drain();
    }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(windows, window_hosts)

BOOST_AUTO_TEST_CASE(window_bound_is_read_by_its_key_and_not_by_the_regions) {
    bind(0, 4096);
    BOOST_TEST(status_at_owner() == completion_status::success);
    BOOST_TEST(read_through(1024, 3072) == completion_status::success);
    BOOST_TEST(arrived(1024, 3072) == 3072u);
    post(read(2, 0, 16));
    net.run();
    BOOST_TEST(a.poll().value().status == completion_status::remote_access);
}

BOOST_AUTO_TEST_CASE(window_posted_but_not_yet_bound_refuses) {
    bind(0, 4096);
    post(windowed(1, 0, 16));
    for (std::size_t i = 0; i < net.runnable(); ++i) {
        if (net.at(i).kind == step_kind::read_piece) {
            net.step(i);
            break;
        }
    }
    net.run();
    BOOST_TEST(a.poll().value().status == completion_status::remote_access);
    BOOST_TEST(status_at_owner() == completion_status::flushed);
}

BOOST_AUTO_TEST_CASE(read_beyond_the_window_is_refused) {
    bind(0, 4096);
    net.run();
    BOOST_TEST(read_through(1, 4096) == completion_status::remote_access);
}

BOOST_AUTO_TEST_CASE(invalidate_revokes_a_read_that_was_posted_before) {
    bind(0, 4096);
    net.run();
    post(windowed(1, 0, 2048));
    net.step(0);
    BOOST_TEST(net.dma_pending_from(b.part(1024, 1024)));
    invalidate();
    BOOST_TEST(net.dma_pending_from(b.part(1024, 1024)));  // posted is not yet done
    BOOST_TEST(step(step_kind::invalidate));
    BOOST_TEST(!net.dma_pending_from(b.part(0, 4096)));
    net.run();
    BOOST_TEST(a.poll().value().status == completion_status::remote_access);
    BOOST_TEST(arrived(0, 2048) == 1024u);
}

BOOST_AUTO_TEST_CASE(window_bound_anew_has_a_new_key_and_the_old_one_is_dead) {
    bind(0, 4096);
    net.run();
    const auto old = windowed(1, 0, 16);
    invalidate();
    bind(0, 4096);
    net.run();
    BOOST_TEST(window->remote_key() != old.remote_key);
    BOOST_TEST(read_through(0, 16) == completion_status::success);
    post(old);
    net.run();
    BOOST_TEST(a.poll().value().status == completion_status::remote_access);
}

BOOST_AUTO_TEST_CASE(window_bound_twice_without_invalidate_is_a_bind_error) {
    bind(0, 4096);
    BOOST_TEST(status_at_owner() == completion_status::success);
    bind(0, 4096);
    BOOST_TEST(status_at_owner() == completion_status::memory_window_bind);
    BOOST_TEST(b.qp->state().value() == queue_pair_state::error);
}

BOOST_AUTO_TEST_CASE(bind_over_a_region_without_the_right_is_a_bind_error) {
    b.region = b.device->register_memory(b.memory, access::remote_read).value();
    bind(0, 4096);
    BOOST_TEST(status_at_owner() == completion_status::memory_window_bind);
}

BOOST_AUTO_TEST_CASE(invalidate_of_a_window_that_is_not_bound_is_a_queue_pair_error) {
    invalidate();
    BOOST_TEST(status_at_owner() == completion_status::local_queue_pair_operation);
}

BOOST_AUTO_TEST_CASE(window_key_works_on_its_own_queue_pair_only) {
    bind(0, 4096);
    net.run();
    auto qa = a.make();
    auto qb = b.make();
    connect(a, *qa, b, *qb);
    const auto r = windowed(1, 0, 16);
    qa->post_reads({&r, 1}).value();
    net.run();
    BOOST_TEST(a.poll().value().status == completion_status::remote_access);
    BOOST_TEST(a.qp->state().value() == queue_pair_state::ready_to_send);
}

BOOST_AUTO_TEST_CASE(refused_read_kills_the_other_windows_of_the_queue_pair) {
    bind(0, 4096);
    net.run();
    post(read(1, 0, 16));  // the region's own key: refused
    net.run();
    BOOST_TEST(a.poll().value().status == completion_status::remote_access);
    BOOST_TEST(b.poll().value().status == completion_status::success);  // the bind
    invalidate();
    BOOST_TEST(status_at_owner() == completion_status::flushed);
    auto qa = a.make();
    auto qb = b.make();
    connect(a, *qa, b, *qb);
    qb->post_bind(7, *window, *b.region, b.part(0, 16), access::remote_read, true).value();
    BOOST_TEST(status_at_owner() == completion_status::memory_window_bind);
    window.reset();  // only this frees it
    BOOST_TEST(net.violations().empty());
}

BOOST_AUTO_TEST_CASE(window_destroyed_while_bound_refuses_at_once) {
    bind(0, 4096);
    net.run();
    const auto r = windowed(1, 0, 16);
    window.reset();
    post(r);
    net.run();
    BOOST_TEST(a.poll().value().status == completion_status::remote_access);
    BOOST_TEST(net.violations().empty());
}

BOOST_AUTO_TEST_CASE(queue_pair_destroyed_with_a_window_bound_is_a_violation) {
    bind(0, 4096);
    net.run();
    BOOST_TEST(b.poll().has_value());
    b.qp->to_error().value();
    b.qp.reset();
    const auto found = net.violations();
    BOOST_REQUIRE(found.size() == 1u);
    BOOST_TEST(found[0].find("window 0 bound") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(window_destroyed_under_a_posted_bind_is_a_violation) {
    bind(0, 4096);
    window.reset();
    BOOST_TEST(net.violations().size() == 1u);
    BOOST_TEST(status_at_owner() == completion_status::memory_window_bind);
}

BOOST_AUTO_TEST_CASE(region_deregistered_under_a_bound_window_is_a_violation) {
    bind(0, 4096);
    net.run();
    const auto r = windowed(1, 0, 16);
    b.region.reset();
    BOOST_TEST(net.violations().size() == 1u);
    post(r);
    net.run();
    BOOST_TEST(a.poll().value().status == completion_status::remote_access);
}

BOOST_AUTO_TEST_CASE(device_without_windows_refuses_them_by_name) {
    auto plain = roce_device("sim0", {ipv4_gid(10, 0, 0, 3)});
    plain.facts.memory_windows_type2 = false;
    end c;
    c.open(net.attach({"c", {plain}}), ipv4_gid(10, 0, 0, 3));
    const auto refused = c.device->allocate_window();
    BOOST_REQUIRE(!refused.has_value());
    BOOST_TEST(refused.error().detail.find("sim c/sim0") != std::string::npos);
    BOOST_TEST(!c.device->register_memory(c.memory, access::window_bind).has_value());
}

BOOST_AUTO_TEST_SUITE_END()
