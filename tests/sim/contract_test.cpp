// Registration, states, completion queues, and what counts as a violation of the seam.

#include <boost/test/unit_test.hpp>
#include <cerrno>
#include <cstring>

#include "sim/fixture.hpp"

using namespace rvget;
using namespace rvget::fabric;
using namespace rvget::fabric::sim;

namespace {

/// Whether the failure names errno `number`, as those of the kernel do.
template <class T>
bool failed_with(const result<T>& r, int number) {
    return !r &&
           r.error().detail.find("(errno " + std::to_string(number) + ")") != std::string::npos;
}

bool mentions(const std::vector<std::string>& violations, std::string_view text) {
    for (const auto& v : violations) {
        if (v.find(text) != std::string::npos) return true;
    }
    return false;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(world, two_hosts)

BOOST_AUTO_TEST_CASE(provider_lists_its_own_hosts_devices_and_opens_by_name) {
    const auto found = a.nics->list().value();
    BOOST_REQUIRE(found.size() == 1u);
    BOOST_TEST(found[0].name == "sim0");
    BOOST_TEST(found[0].memory_windows_type2);
    BOOST_REQUIRE(found[0].ports.size() == 1u);
    BOOST_CHECK(found[0].ports[0].gids.at(0).gid == a.gid);
    BOOST_TEST(found[0].ports[0].gids[0].index == 1u);
    const auto missing = a.nics->open("sim9");
    BOOST_REQUIRE(!missing.has_value());
    BOOST_CHECK(missing.error().code == device_errc::none);
    BOOST_CHECK_THROW(net.attach(roce_host("a", ipv4_gid(1, 1, 1, 1))), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(registration_refuses_what_the_kernel_refuses) {
    BOOST_TEST(failed_with(a.device->register_memory({}, access::local_write), EINVAL));
    BOOST_TEST(failed_with(a.device->register_memory(a.memory, access::remote_write), EINVAL));
}

BOOST_AUTO_TEST_CASE(registration_over_the_limit_names_memlock_and_recovers) {
    auto limited = roce_device("sim0", {ipv4_gid(10, 0, 0, 3)});
    limited.registration_limit_bytes = 100 * 1024;
    end c;
    c.open(net.attach({"c", {limited}}), ipv4_gid(10, 0, 0, 3));  // 64 KiB of them
    const auto refused = c.device->register_memory(c.memory, access::local_write);
    BOOST_REQUIRE(!refused.has_value());
    BOOST_CHECK(refused.error().code == device_errc::registration);
    BOOST_TEST(refused.error().detail.find("memlock") != std::string::npos);
    c.region.reset();
    BOOST_TEST(c.device->register_memory(c.memory, access::local_write).has_value());
}

BOOST_AUTO_TEST_CASE(ready_to_receive_fails_with_the_errno_of_its_cause) {
    a.qp = a.make();
    b.qp = b.make();
    const auto good = towards(*b.qp, b.gid);
    auto p = good;
    p.gid_index = 0;
    BOOST_TEST(failed_with(a.qp->to_ready_to_receive(p), ENODATA));
    p = good;
    p.peer.gid[0] = 0xfe;
    BOOST_TEST(failed_with(a.qp->to_ready_to_receive(p), EINVAL));
    p = good;
    p.peer.gid[15] = 99;
    BOOST_TEST(failed_with(a.qp->to_ready_to_receive(p), ETIMEDOUT));
    p = good;
    p.path_mtu = 1500;
    BOOST_TEST(failed_with(a.qp->to_ready_to_receive(p), EINVAL));
    p = good;
    p.responder_depth = 17;
    BOOST_TEST(failed_with(a.qp->to_ready_to_receive(p), EINVAL));
    net.fail_ready_to_receive("a", ENODEV);
    BOOST_TEST(failed_with(a.qp->to_ready_to_receive(good), ENODEV));
    BOOST_TEST(a.qp->to_ready_to_receive(good).has_value());
    BOOST_TEST(failed_with(a.qp->to_ready_to_receive(good), EINVAL));
}

BOOST_AUTO_TEST_CASE(states_are_passed_in_order_and_gate_posting) {
    a.qp = a.device->create_queue_pair(a.completions, 1, {}).value();
    const auto r = read(1, 0, 16);
    BOOST_TEST(failed_with(a.qp->post_receive({1, a.part(0, 8), 0}), EINVAL));
    BOOST_TEST(failed_with(a.qp->to_ready_to_send({}), EINVAL));
    a.qp->to_init(access::remote_read).value();
    BOOST_TEST(failed_with(a.qp->to_init(access::remote_read), EINVAL));
    BOOST_TEST(failed_with(a.qp->post_reads({&r, 1}), EINVAL));
    BOOST_TEST(failed_with(a.qp->post_marker(1), EINVAL));
    a.qp->to_error().value();
    BOOST_TEST(a.qp->post_marker(1).has_value());
    drain();
    BOOST_TEST(a.qp->state().value() == queue_pair_state::error);
}

BOOST_AUTO_TEST_CASE(receive_queue_full_refuses_until_a_completion_is_polled) {
    connect_ends({}, {4, 1, 0});
    b.qp->post_receive({1, b.part(0, 8), b.region->local_key()}).value();
    BOOST_TEST(failed_with(b.qp->post_receive({2, b.part(0, 8), 0}), ENOMEM));
    a.qp->post_send({1, a.part(0, 8), a.region->local_key(), false, true}).value();
    net.run();
    BOOST_TEST(b.poll().has_value());
    BOOST_TEST(b.qp->post_receive({2, b.part(0, 8), b.region->local_key()}).has_value());
    drain();
}

BOOST_AUTO_TEST_CASE(children_keep_their_parents_alive) {
    connect_ends();
    for (auto* e : {&a, &b}) {
        e->nics.reset();
        e->device.reset();
    }
    post(read(1, 0, 1024));
    net.run();
    BOOST_TEST(a.poll().value().status == completion_status::success);
}

BOOST_AUTO_TEST_CASE(objects_may_outlive_the_network) {
    end c;
    {
        network other;
        c.open(other.attach(roce_host("c", c.gid)), c.gid);
        c.qp = c.make();
    }
    BOOST_TEST(c.qp->state().value() == queue_pair_state::init);
    c.qp.reset();
    BOOST_TEST(c.poll().has_value() == false);
}

BOOST_AUTO_TEST_CASE(descriptor_is_absent_without_a_background_thread) {
    BOOST_TEST(a.completions->event_descriptor() == -1);
    BOOST_TEST(a.device->event_descriptor() == -1);
    BOOST_TEST(a.completions->arm().has_value());
}

BOOST_AUTO_TEST_CASE(completion_queue_overrun_is_a_violation_and_loses_the_queue) {
    a.completions = a.device->create_completion_queue(2).value();
    connect_ends();
    for (std::uint64_t id = 0; id < 3; ++id) post(read(id, 0, 16));
    net.run();
    BOOST_TEST(mentions(net.violations(), "completion queue of 2 entries overrun"));
    completion c;
    BOOST_TEST(!a.completions->poll({&c, 1}).has_value());
    BOOST_TEST(a.qp->state().value() == queue_pair_state::error);
}

BOOST_AUTO_TEST_CASE(queue_pair_destroyed_with_a_read_posted_is_a_violation) {
    connect_ends();
    post(read(1, 0, 2048));
    net.step(0);
    a.qp.reset();
    BOOST_TEST(mentions(net.violations(), "destroyed with 1 send requests posted"));
    BOOST_TEST(net.runnable() == 0u);
}

BOOST_AUTO_TEST_CASE(queue_pair_destroyed_before_its_completion_is_delivered_is_a_violation) {
    connect_ends();
    post(read(1, 0, 16));
    net.step(0);
    a.qp.reset();
    BOOST_TEST(net.violations().size() == 1u);
}

BOOST_AUTO_TEST_CASE(queue_pair_destroyed_with_receives_posted_is_a_violation) {
    connect_ends();
    b.qp->post_receive({7, b.part(0, 16), b.region->local_key()}).value();
    b.qp.reset();
    BOOST_TEST(mentions(net.violations(), "destroyed with 1 receives posted"));
}

BOOST_AUTO_TEST_CASE(queue_pair_drained_and_destroyed_is_no_violation) {
    connect_ends();
    post(read(1, 0, 2048));
    b.qp->post_receive({7, b.part(0, 16), b.region->local_key()}).value();
    drain();
    a.qp.reset();
    b.qp.reset();
    a.completions.reset();
    BOOST_TEST(net.violations().empty());
}

BOOST_AUTO_TEST_CASE(completion_queue_destroyed_with_completions_is_a_violation) {
    connect_ends();
    post(read(1, 0, 16));
    net.run();
    a.qp.reset();
    a.completions.reset();
    BOOST_TEST(mentions(net.violations(), "destroyed with 1 completions not polled"));
}

BOOST_AUTO_TEST_CASE(region_deregistered_under_a_posted_read_is_a_violation) {
    connect_ends();
    post(read(5, 0, 2048));
    net.step(0);
    a.region.reset();
    BOOST_TEST(mentions(net.violations(), "deregistered under posted READ 5"));
    net.run();
    BOOST_TEST(a.poll().value().status == completion_status::local_protection);
}

BOOST_AUTO_TEST_CASE(region_deregistered_under_a_posted_receive_is_a_violation) {
    connect_ends();
    b.qp->post_receive({7, b.part(0, 16), b.region->local_key()}).value();
    b.region.reset();
    BOOST_TEST(mentions(net.violations(), "deregistered under posted receive 7"));
    drain();
}

BOOST_AUTO_TEST_CASE(region_deregistered_by_the_owner_is_no_violation) {
    connect_ends();
    post(read(5, 0, 2048));
    b.region.reset();
    BOOST_TEST(net.violations().empty());
    drain();
}

BOOST_AUTO_TEST_CASE(same_seed_of_steps_gives_the_same_run) {
    const auto run = [](unsigned seed) {
        two_hosts w;
        w.connect_ends();
        auto qa = w.a.make();
        auto qb = w.b.make();
        connect(w.a, *qa, w.b, *qb);
        std::string trace;
        for (std::uint64_t id = 0; id < 8; ++id) {
            w.post(w.read(id, id * 2048, 2048));
            const auto other = w.read(100 + id, 32768 + id * 2048, 2048);
            qa->post_reads({&other, 1}).value();
        }
        while (const auto n = w.net.runnable()) {
            seed = seed * 1664525u + 1013904223u;
            const auto i = (seed >> 16) % n;
            trace += w.net.describe(i) + "\n";
            w.net.step(i);
        }
        while (w.a.poll()) {
        }
        return trace;
    };
    BOOST_TEST(run(1) == run(1));
    BOOST_TEST(run(1) != run(2));
}

BOOST_AUTO_TEST_SUITE_END()
