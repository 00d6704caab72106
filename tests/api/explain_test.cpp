// What a node tells of its routes, and what pins do to them.

#include <tuple>

#include <boost/test/unit_test.hpp>

#include "api/nodes_on_sim.hpp"

namespace rvget::test {
namespace {

const auto first_gid = sim::ipv4_gid(10, 0, 0, 1);
const auto second_gid = sim::ipv4_gid(10, 0, 0, 2);

/// A machine whose device has two addresses.
struct two_addresses {
    sim::network net;
    std::unique_ptr<fabric::provider> nic = net.attach(
        {.name = "host", .devices = {sim::roce_device("sim0", {first_gid, second_gid})}});

    [[nodiscard]] node start(node_options o) {
        o.listen = endpoint_address{"127.0.0.1", 0};
        o.lease_keys = lease_key_choice::fence;  // nothing moves here that a key could be proven by
        return start_node_on(nic.get(), std::move(o)).value();
    }
};

BOOST_FIXTURE_TEST_SUITE(explain, two_addresses)

BOOST_AUTO_TEST_CASE(contract_7_2_every_candidate_is_told_with_its_reason) {
    auto n = start({});
    const auto told = n.explain("127.0.0.1").value();
    BOOST_TEST(told.peer == "127.0.0.1");
    BOOST_TEST(told.source == "127.0.0.1");
    BOOST_TEST(told.netdev == "lo");
    BOOST_TEST(told.local);
    BOOST_TEST(told.refusal == "");
    BOOST_REQUIRE(told.candidates.size() == 2u);
    BOOST_REQUIRE(told.winner() == told.candidates.data());
    const auto& [winner, loser] = std::tie(told.candidates[0], told.candidates[1]);
    BOOST_TEST(winner.device == "sim0");
    BOOST_TEST(winner.gid == "10.0.0.1");
    BOOST_TEST(winner.gid_index == 1u);
    BOOST_TEST(winner.type == "RoCE v2");
    BOOST_TEST(winner.mtu_bytes == 1024u);
    BOOST_TEST(winner.usable);
    BOOST_TEST(winner.reason.find("suits a peer on this host") != std::string::npos);
    BOOST_TEST(loser.gid == "10.0.0.2");
    BOOST_TEST(loser.usable);
    BOOST_TEST(loser.reason.find("as good as the winner") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(contract_7_2_pinned_gid_or_place_wins_and_the_others_say_why_they_lost) {
    for (const bool by_value : {true, false}) {
        node_options o;
        if (by_value)
            o.gid = "10.0.0.2";
        else
            o.gid_index = 2;
        auto n = start(o);
        const auto told = n.explain("localhost").value();
        BOOST_REQUIRE(told.winner() != nullptr);
        BOOST_TEST(told.winner()->gid == "10.0.0.2");
        BOOST_TEST(told.candidates[1].usable == false);
        BOOST_TEST(told.candidates[1].reason ==
                   (by_value ? "not the pinned GID 10.0.0.2" : "not the pinned GID index 2"));
    }
}

BOOST_AUTO_TEST_CASE(contract_7_2_pin_that_no_device_has_leaves_the_node_without_rdma) {
    auto n = start({.gid = "10.0.0.9"});
    BOOST_TEST(!n.rdma().usable);
    BOOST_TEST(n.rdma().detail.find("has the GID 10.0.0.9") != std::string::npos);
    const auto told = n.explain("127.0.0.1").value();
    BOOST_TEST(told.winner() == nullptr);
    BOOST_TEST(told.candidates.empty());
    BOOST_TEST(told.refusal == n.rdma().detail);
    auto m = start({.gid = "10.0.0.1", .gid_index = 2});
    BOOST_TEST(m.rdma().detail.find("has the GID 10.0.0.1 at index 2") != std::string::npos);
}

/// As on a ConnectX: RoCE v1 and v2 of each address, v1 first.
BOOST_AUTO_TEST_CASE(contract_7_2_address_that_stands_twice_is_found_again_by_its_type) {
    auto d = sim::roce_device("sim0", {first_gid, first_gid});
    d.facts.ports[0].gids[0].type = route::gid_type::roce_v1;
    const auto twice = net.attach({.name = "twice", .devices = {d}});
    const node_options o;
    const auto rdma = engine::rdma_context::open(twice.get(), o, wire::lease_mode::fence);
    const auto port = rdma->choose_port("10.0.0.1", "10.0.0.9").value();
    BOOST_TEST(port.identity.gid_index == 2u);
    BOOST_TEST(rdma->gid_index_of(port.identity).value() == 2u);
}

BOOST_AUTO_TEST_CASE(explain_of_what_is_no_peer_says_why) {
    auto n = start({});
    check_failure(n.explain("no.such.host.invalid"), request_errc::invalid_argument, "resolve");
    check_failure(n.explain("0.0.0.0"), request_errc::invalid_argument, "no peer");
    check_failure(node_options{.gid = "mlx5_0"}.validate(), request_errc::invalid_argument,
                  "no address");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace rvget::test
