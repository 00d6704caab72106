// Wire-up by RDMA-CM: single flight, the time that a get gives it, who is turned away, and what
// becomes of an attempt that fails.

#include <array>
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
#include "wire/connect_data.hpp"

namespace rvget::test {
namespace {

using fault::call;

node_options by(wireup_choice wireup) {
    node_options o;
    o.wireup = wireup;
    o.spare_queue_pairs = 0;
    return o;
}

struct cm_nodes : sim_nodes {
    explicit cm_nodes(wireup_choice wireup = wireup_choice::cm) : sim_nodes({}, by(wireup)) {}
    /// A consumer that does not wait longer than `wait` for a connection.
    void hurry(std::chrono::milliseconds wait) {
        BOOST_TEST(consumer->shutdown(20s));
        auto o = by(wireup_choice::cm);
        o.wireup_wait = wait;
        consumer.emplace(start_node_on(consumer_nic.get(), o).value());
    }
    [[nodiscard]] std::uint64_t connects() const { return plan->count(call::connect); }
    /// The first get that goes by RDMA; those before it may be told to come again.
    [[nodiscard]] bool reaches_rdma(const url& from) {
        const auto end = std::chrono::steady_clock::now() + patience;
        while (std::chrono::steady_clock::now() < end)
            if (consumer->get(from).value().report.path == path::rdma) return true;
        return false;
    }
};
struct automatic_nodes : cm_nodes {
    automatic_nodes() : cm_nodes(wireup_choice::automatic) {}
};
struct exchange_nodes : cm_nodes {
    exchange_nodes() : cm_nodes(wireup_choice::exchange) {}
};

/// Holds the first connect of a node back until it is opened.
struct gate {
    explicit gate(fault::plan& plan) {
        plan.before(call::connect, 1, [entered = entered_, open = opened_.get_future().share()] {
            entered->set_value();
            open.wait();
        });
    }
    void await_entry() { entered_->get_future().wait(); }
    void open() { opened_.set_value(); }

private:
    std::shared_ptr<std::promise<void>> entered_ = std::make_shared<std::promise<void>>();
    std::promise<void> opened_;
};

BOOST_AUTO_TEST_SUITE(by_connection_manager)

BOOST_FIXTURE_TEST_CASE(contract_7_1_get_of_every_size_by_cm_takes_its_path, cm_nodes) {
    for (const auto size : transfer_sizes) {
        const auto got = consumer->get(stage(size)).value();
        check_pattern(got.data.bytes());
        BOOST_TEST((got.report.path == path::rdma) == (size >= 65536));
    }
    BOOST_TEST(connects() == 1u);
    BOOST_TEST(owner_plan->count(call::listen) == 1u);
}

BOOST_FIXTURE_TEST_CASE(contract_7_1_gets_at_once_connect_once_and_all_go_by_rdma, cm_nodes) {
    const auto from = stage(medium);
    gate held(*plan);
    std::vector<std::future<get_result>> gets;
    for (int i = 0; i < 20; ++i)
        gets.push_back(consumer->async_get(from, {}, boost::asio::use_future));
    held.await_entry();
    held.open();
    for (auto& g : gets) {
        const auto got = g.get();
        BOOST_TEST((got.report.path == path::rdma));
        check_pattern(got.data.bytes());
    }
    BOOST_TEST(connects() == 1u);
}

BOOST_FIXTURE_TEST_CASE(contract_7_1_get_that_prefers_goes_in_chunks_beyond_wireup_wait, cm_nodes) {
    hurry(20ms);
    const auto from = stage(medium);
    gate held(*plan);
    const auto first = consumer->get(from).value();
    BOOST_TEST((first.report.path == path::chunked));
    BOOST_TEST((first.report.reason == reason::no_lane));
    BOOST_TEST(first.report.detail.find("still connecting") != std::string::npos);
    check_pattern(first.data.bytes());
    const auto second =
        consumer->get(from).value();  // the time is the connection's, not each get's
    BOOST_TEST((second.report.reason == reason::no_lane));
    held.open();
    BOOST_TEST(reaches_rdma(from));
    BOOST_TEST(connects() == 1u);
}

BOOST_FIXTURE_TEST_CASE(contract_7_1_get_that_requires_waits_for_the_connection, cm_nodes) {
    hurry(1ms);
    const auto from = stage(medium);
    gate held(*plan);
    get_options o;
    o.policy = path_policy::require;
    auto answer = consumer->async_get(from, o, boost::asio::use_future);
    held.await_entry();
    BOOST_TEST((consumer->get(from).value().report.path == path::chunked));
    held.open();
    BOOST_TEST((answer.get().report.path == path::rdma));
}

BOOST_FIXTURE_TEST_CASE(warm_by_cm_brings_both_ends_up, cm_nodes) {
    const auto from = stage(medium);
    const auto warmed = consumer->warm(*owner->address());
    BOOST_REQUIRE_MESSAGE(warmed, warmed.error().message());
    BOOST_TEST((warmed->reason == reason::ok));
    BOOST_TEST(connects() == 1u);
    BOOST_TEST((consumer->get(from).value().report.path == path::rdma));
    BOOST_TEST(connects() == 1u);
}

BOOST_FIXTURE_TEST_CASE(connection_that_fails_is_told_and_made_again_after_its_backoff, cm_nodes) {
    const auto from = stage(medium);
    plan->fail(call::connect, 1, {connection_errc::connect_failed, "scripted: no event"});
    const auto got = consumer->get(from).value();
    BOOST_TEST((got.report.path == path::chunked));
    BOOST_TEST(got.report.detail.find("scripted: no event") != std::string::npos);
    BOOST_TEST(reaches_rdma(from));
    BOOST_TEST(connects() == 2u);
}

BOOST_FIXTURE_TEST_CASE(connection_with_packets_dropped_costs_its_limit_and_no_get_its_deadline,
                        cm_nodes) {
    hurry(20ms);
    const auto from = stage(medium);
    net.drop_between("owner", "consumer");
    BOOST_TEST((consumer->get(from).value().report.path == path::chunked));
    const auto warmed = consumer->warm(*owner->address());
    BOOST_REQUIRE(warmed);
    BOOST_TEST(warmed->detail.find("no event in") != std::string::npos);
    net.drop_between("owner", "consumer", false);
    BOOST_TEST(reaches_rdma(from));
}

BOOST_FIXTURE_TEST_CASE(owner_that_cannot_listen_says_why, cm_nodes) {
    const auto from = stage(medium);
    owner_plan->fail(call::listen, 1, {connection_errc::connect_failed, "scripted: no rdma_cm"});
    const auto got = consumer->get(from).value();
    BOOST_TEST((got.report.path == path::chunked));
    BOOST_TEST(got.report.detail.find("scripted: no rdma_cm") != std::string::npos);
}

BOOST_FIXTURE_TEST_CASE(contract_7_1_exchange_that_fails_is_followed_by_cm, automatic_nodes) {
    const auto from = stage(medium);
    net.fail_ready_to_receive("consumer", 110);
    BOOST_TEST((consumer->get(from).value().report.path == path::chunked));
    BOOST_TEST(connects() == 0u);
    BOOST_TEST(reaches_rdma(from));
    BOOST_TEST(connects() == 1u);
}

BOOST_FIXTURE_TEST_CASE(contract_7_1_exchange_that_fails_at_the_owner_is_followed_by_cm,
                        automatic_nodes) {
    const auto from = stage(medium);
    net.fail_ready_to_receive("owner", 110);
    BOOST_TEST((consumer->get(from).value().report.path == path::chunked));
    BOOST_TEST(reaches_rdma(from));
    BOOST_TEST(connects() == 1u);
}

BOOST_FIXTURE_TEST_CASE(exchange_by_choice_is_never_followed_by_cm, exchange_nodes) {
    const auto from = stage(medium);
    net.fail_ready_to_receive("consumer", 110);
    BOOST_TEST((consumer->get(from).value().report.path == path::chunked));
    BOOST_TEST(reaches_rdma(from));
    BOOST_TEST(connects() == 0u);
    BOOST_TEST(owner_plan->count(call::listen) == 0u);
}

BOOST_FIXTURE_TEST_CASE(lane_by_cm_that_breaks_is_made_again_by_cm, automatic_nodes) {
    BOOST_TEST(consumer->shutdown(20s));
    consumer.emplace(start_node_on(consumer_nic.get(), patient(by(wireup_choice::cm))).value());
    const auto from = stage(medium);
    BOOST_TEST((consumer->get(from).value().report.path == path::rdma));
    net.refuse_reads("consumer");
    BOOST_TEST(consumer->get(from).has_value());
    BOOST_TEST(reaches_rdma(from));
    BOOST_TEST(connects() == 2u);
    // Beyond the first a listener is there.
    BOOST_TEST(owner_plan->count(call::listen) == 1u);
}

/// Speaks the control protocol by hand and knocks from a host of its own.
struct stranger : cm_nodes {
    std::unique_ptr<fabric::provider> nic =
        net.attach(sim::roce_host("stranger", sim::ipv4_gid(10, 0, 0, 3)));
    std::shared_ptr<fabric::device> device = nic->open("sim0").value();
    std::shared_ptr<fabric::completion_queue> completions =
        device->create_completion_queue(16).value();
    std::unique_ptr<fabric::queue_pair> queue_pair =
        device->create_queue_pair(completions, 1, {.send_requests = 2, .binds = false}).value();
    raw_socket control = connect_raw(*owner->address());

    stranger() {
        queue_pair->to_init(fabric::access::none).value();
        BOOST_REQUIRE(control.write(wire::frame{0, wire::hello{.node = node_id{0x5ae}}}));
        BOOST_REQUIRE(control.read_frame());
    }
    ~stranger() {
        static_cast<void>(queue_pair->to_error());
        queue_pair.reset();
    }

    wire::pong ask(std::uint32_t generation, std::uint16_t backends = wire::backend_cm) {
        wire::lane_offer offer{.generation = generation, .backends = backends};
        offer.facts = wire::queue_pair_facts{.number = queue_pair->number(),
                                             .gid = sim::ipv4_gid(10, 0, 0, 3).bytes,
                                             .path_mtu = 1024,
                                             .read_depth = 1};
        BOOST_REQUIRE(control.write(wire::frame{generation, wire::ping{offer}}));
        const auto reply = control.read_frame();
        BOOST_REQUIRE(reply);
        return std::get<wire::pong>(reply->frame.body);
    }
    result<std::unique_ptr<fabric::connection>> knock(const wire::connect_point& at,
                                                      std::span<const std::byte> data,
                                                      std::uint32_t number) {
        return device->connect({"10.0.0.3", route::gid{at.address}.to_string(), at.port},
                               {.queue_pair_number = number,
                                .initiator_depth = 1,
                                .responder_depth = 1,
                                .private_data = data},
                               2000ms);
    }
    void rejected(const wire::connect_point& at, std::span<const std::byte> data,
                  const std::string& why) {
        const auto made = knock(at, data, queue_pair->number());
        BOOST_REQUIRE(!made);
        BOOST_TEST(made.error().detail.find(why) != std::string::npos, made.error().detail);
    }
};

BOOST_FIXTURE_TEST_CASE(contract_7_1_strangers_are_rejected_with_the_reason, stranger) {
    const auto told = ask(1);
    BOOST_REQUIRE(told.connect_to);
    BOOST_TEST((told.why == reason::ok));
    BOOST_TEST(told.lane_facts->number != 0u);
    const auto at = *told.connect_to;
    rejected(at, {}, "not a request of rvget");
    rejected(at, std::as_bytes(std::span("hello, who are you there?")), "not a request of rvget");
    auto other = at.nonce;
    other[7] ^= 1;
    rejected(at, wire::encode_connect_data(other), "the nonce is unknown");
    // Whoever has the nonce may connect, once.
    auto made = knock(at, wire::encode_connect_data(at.nonce), queue_pair->number());
    BOOST_REQUIRE_MESSAGE(made, made.error().message());
    BOOST_TEST((*made)->receive()->peer.number == told.lane_facts->number);
    rejected(at, wire::encode_connect_data(at.nonce), "the nonce is unknown");
}

BOOST_FIXTURE_TEST_CASE(nonces_differ_each_time, stranger) {
    const auto first = ask(1).connect_to.value().nonce;
    BOOST_REQUIRE(
        control.write(wire::frame{0, wire::lane_down{.generation = 1, .why = reason::get_failed}}));
    const auto second = ask(2).connect_to.value().nonce;
    BOOST_TEST((first != second));
    BOOST_TEST((first != wire::connect_nonce{}));
}

BOOST_FIXTURE_TEST_CASE(connection_of_another_queue_pair_than_offered_is_refused, stranger) {
    const auto at = ask(1).connect_to.value();
    const auto made = knock(at, wire::encode_connect_data(at.nonce), queue_pair->number() + 1);
    BOOST_TEST(!made);
    const auto down = control.read_frame();
    BOOST_REQUIRE(down);
    BOOST_TEST((std::get<wire::lane_down>(down->frame.body).why == reason::no_lane));
}

BOOST_FIXTURE_TEST_CASE(connection_with_a_nonce_seen_on_its_way_is_refused_from_another_host,
                        stranger) {
    const auto at = ask(1).connect_to.value();
    const auto thief = net.attach(sim::roce_host("thief", sim::ipv4_gid(10, 0, 0, 4)));
    const auto data = wire::encode_connect_data(at.nonce);
    const auto made = thief->open("sim0").value()->connect(
        {"10.0.0.4", route::gid{at.address}.to_string(), at.port},
        {.queue_pair_number = queue_pair->number(),
         .initiator_depth = 1,
         .responder_depth = 1,
         .private_data = data},
        2000ms);
    BOOST_TEST(!made);
}

BOOST_FIXTURE_TEST_CASE(contract_7_1_nonce_that_nobody_uses_expires, stranger) {
    const auto at = ask(1).connect_to.value();
    const auto down = control.read_frame();  // after five seconds, which the owner counts
    BOOST_REQUIRE(down);
    BOOST_TEST((std::get<wire::lane_down>(down->frame.body).why == reason::no_lane));
    rejected(at, wire::encode_connect_data(at.nonce), "the nonce is unknown");
}

BOOST_FIXTURE_TEST_CASE(owner_with_a_nonce_out_shuts_down_at_once_and_rejects_it, stranger) {
    const auto at = ask(1).connect_to.value();
    BOOST_TEST(owner->shutdown(20s));
    BOOST_TEST(!knock(at, wire::encode_connect_data(at.nonce), queue_pair->number()));
}

BOOST_FIXTURE_TEST_CASE(offer_of_no_known_backend_is_told_so, stranger) {
    const auto told = ask(1, 0x8000);
    BOOST_TEST((told.why == reason::no_common_backend));
    BOOST_TEST(!told.connect_to);
}

BOOST_AUTO_TEST_CASE(owner_that_knows_no_cm_gets_no_lane_and_says_version) {
    scripted_owner old([](const raw_socket& peer) {
        // An owner of before answers such a ping without saying where to connect.
        while (const auto f = peer.read_frame()) {
            if (std::get_if<wire::ping>(&f->frame.body) != nullptr)
                peer.write(wire::frame{f->frame.id, wire::pong{.why = reason::no_common_backend}});
        }
    });
    sim::network net;
    net.run_in_background(true);
    const auto nic = net.attach(sim::roce_host("consumer", sim::ipv4_gid(10, 0, 0, 2)));
    auto consumer = start_node_on(nic.get(), by(wireup_choice::cm)).value();
    const auto warmed = consumer.warm(old.target().address);
    BOOST_REQUIRE_MESSAGE(warmed, warmed.error().message());
    BOOST_TEST((warmed->reason == reason::version));
    BOOST_TEST(warmed->detail.find("does not connect by RDMA-CM") != std::string::npos);
    BOOST_TEST(consumer.shutdown(20s));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace rvget::test
