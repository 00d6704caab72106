#include <boost/test/unit_test.hpp>

#include <arpa/inet.h>

#include "route/choose.hpp"

using namespace rvget::route;

namespace {

gid address(const std::string& text) {
    gid g;
    if (::inet_pton(AF_INET6, text.c_str(), g.bytes.data()) == 1) return g;
    g.bytes[10] = g.bytes[11] = 0xff;
    BOOST_REQUIRE(::inet_pton(AF_INET, text.c_str(), g.bytes.data() + 12) == 1);
    return g;
}

gid_entry entry(std::uint32_t index, const std::string& text, gid_type type = gid_type::roce_v2) {
    return {.index = index, .gid = address(text), .type = type, .netdev = "eth0"};
}

device_facts device(const std::string& name, std::vector<gid_entry> gids,
                    port_state state = port_state::active, std::uint32_t mtu = 4096) {
    device_facts d;
    d.name = name;
    port_facts port;
    port.state = state;
    port.active_mtu = mtu;
    port.gids = std::move(gids);
    d.ports.push_back(std::move(port));
    return d;
}

/// A port as a NIC driver fills it: link-local first, each address once per RoCE version.
std::vector<gid_entry> usual(const std::string& ipv4) {
    return {entry(0, "fe80::1", gid_type::roce_v1), entry(1, "fe80::1"),
            entry(2, ipv4, gid_type::roce_v1), entry(3, ipv4), entry(5, "2001:db8::7")};
}

const candidate* find(const choice& c, const std::string& dev, std::uint32_t index) {
    for (const auto& one : c.candidates) {
        if (one.device == dev && one.entry.index == index) return &one;
    }
    return nullptr;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(choosing)

BOOST_AUTO_TEST_CASE(choice_table_of_one_device_picks_the_expected_index) {
    struct row {
        std::string own, peer;
        std::uint32_t index;
    };
    const std::vector devices{device("mlx5_0", usual("10.0.0.5"))};
    for (const auto& r : {
             row{"10.0.0.5", "10.0.0.9", 3},            // own address, v2
             row{"192.168.1.5", "192.168.1.9", 3},      // management network: same family
             row{"2001:db8::7", "2001:db8::9", 5},      // own IPv6 address
             row{"2001:db8:1::1", "2001:db8:1::2", 5},  // other IPv6: routable before link-local
             row{"fe80::1%eth0", "fe80::9%eth0", 1},    // own link-local address
             row{"fe80::77", "fe80::9", 5},             // other link-local: routable first
             row{"::ffff:10.0.0.5", "::ffff:10.0.0.9", 3},  // dual-stack socket: really IPv4
             row{"127.0.0.1", "127.0.0.1", 3},              // this host: IPv4 first
             row{"::1", "::1", 3},                          // this host, whatever the family
         }) {
        BOOST_TEST_CONTEXT(r.own << " to " << r.peer) {
            const auto c = choose(devices, {r.own, r.peer});
            BOOST_REQUIRE(c.winner() != nullptr);
            BOOST_TEST(c.winner()->entry.index == r.index);
            BOOST_TEST(c.winner()->usable);
            BOOST_TEST(!c.winner()->reason.empty());
            BOOST_TEST(c.candidates.size() == 5u);
            for (const auto& one : c.candidates) BOOST_TEST(!one.reason.empty());
        }
    }
}

BOOST_AUTO_TEST_CASE(choice_between_devices_is_the_one_with_the_control_address) {
    const std::vector devices{device("mlx5_0", usual("10.0.0.5")),
                              device("mlx5_1", usual("10.0.1.5"))};
    const auto c = choose(devices, {"10.0.1.5", "10.0.1.9"});
    BOOST_REQUIRE(c.winner() != nullptr);
    BOOST_TEST(c.winner()->device == "mlx5_1");
    const auto* loser = find(c, "mlx5_0", 3);
    BOOST_REQUIRE(loser != nullptr);
    BOOST_TEST(loser->usable);
    BOOST_TEST(loser->reason.find("own address") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(choice_with_only_link_local_of_the_family_takes_it_and_says_so) {
    const std::vector devices{device("rxe0", {entry(0, "fe80::1"), entry(1, "10.0.0.5")})};
    const auto c = choose(devices, {"2001:db8::1", "2001:db8::2"});
    BOOST_REQUIRE(c.winner() != nullptr);
    BOOST_TEST(c.winner()->entry.index == 0u);
    BOOST_TEST(c.winner()->reason.find("link-local") != std::string::npos);
    BOOST_TEST(find(c, "rxe0", 1)->reason.find("is IPv4, the peer") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(choice_prefers_v2_of_any_address_to_v1_of_the_own) {
    const std::vector devices{
        device("mlx4_0", {entry(0, "10.0.0.5", gid_type::roce_v1), entry(1, "10.0.9.5")})};
    const auto c = choose(devices, {"10.0.0.5", "10.0.0.9"});
    BOOST_REQUIRE(c.winner() != nullptr);
    BOOST_TEST(c.winner()->entry.index == 1u);
    BOOST_TEST(find(c, "mlx4_0", 0)->reason.find("RoCE v1") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(choice_with_only_v1_takes_v1) {
    const std::vector devices{device("mlx4_0", {entry(0, "10.0.0.5", gid_type::roce_v1)})};
    const auto c = choose(devices, {"10.0.0.5", "10.0.0.9"});
    BOOST_REQUIRE(c.winner() != nullptr);
    BOOST_TEST(c.winner()->entry.index == 0u);
}

BOOST_AUTO_TEST_CASE(choice_among_equals_takes_the_larger_mtu_then_the_first) {
    const std::vector devices{device("a", {entry(1, "10.0.0.1")}, port_state::active, 1024),
                              device("b", {entry(1, "10.0.0.2")}, port_state::active, 4096),
                              device("c", {entry(1, "10.0.0.3")}, port_state::active, 4096)};
    const auto c = choose(devices, {"172.16.0.1", "172.16.0.2"});
    BOOST_REQUIRE(c.winner() != nullptr);
    BOOST_TEST(c.winner()->device == "b");
    BOOST_TEST(find(c, "a", 1)->reason.find("MTU 1024") != std::string::npos);
    BOOST_TEST(find(c, "c", 1)->reason.find("first in the list") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(choice_of_a_port_that_is_not_active_is_refused_with_the_port) {
    for (const auto state : {port_state::down, port_state::initialising, port_state::armed}) {
        const std::vector devices{device("mlx5_0", usual("10.0.0.5"), state)};
        const auto c = choose(devices, {"10.0.0.5", "10.0.0.9"});
        BOOST_TEST(c.winner() == nullptr);
        BOOST_TEST(c.refusal.find("not active") != std::string::npos);
        BOOST_TEST(c.refusal.find("mlx5_0/1") != std::string::npos);
        BOOST_TEST(c.refusal.find("ibv_devinfo") != std::string::npos);
        BOOST_TEST(c.candidates.size() == 5u);
    }
}

BOOST_AUTO_TEST_CASE(choice_of_an_index_above_255_is_refused) {
    const std::vector devices{device("rxe0", {entry(256, "10.0.0.5")})};
    const auto c = choose(devices, {"10.0.0.5", "10.0.0.9"});
    BOOST_TEST(c.winner() == nullptr);
    BOOST_TEST(c.refusal.find("8-bit") != std::string::npos);
    const std::vector last{device("rxe0", {entry(255, "10.0.0.5")})};
    BOOST_TEST(choose(last, {"10.0.0.5", "10.0.0.9"}).winner() != nullptr);
}

BOOST_AUTO_TEST_CASE(choice_of_a_pinned_device_gid_or_index_leaves_nothing_else) {
    const std::vector devices{device("mlx5_0", usual("10.0.0.5")),
                              device("mlx5_1", usual("10.0.1.5"))};
    const control_path control{"10.0.0.5", "10.0.0.9"};

    const auto by_device = choose(devices, control, {.device = "mlx5_1"});
    BOOST_REQUIRE(by_device.winner() != nullptr);
    BOOST_TEST(by_device.winner()->device == "mlx5_1");

    const auto by_gid = choose(devices, control, {.gid = address("10.0.1.5")});
    BOOST_REQUIRE(by_gid.winner() != nullptr);
    BOOST_TEST(by_gid.winner()->entry.gid.to_string() == "10.0.1.5");
    BOOST_TEST(by_gid.winner()->entry.index == 3u);

    const auto by_index = choose(devices, control, {.gid_index = 2});
    BOOST_REQUIRE(by_index.winner() != nullptr);
    BOOST_TEST(by_index.winner()->entry.index == 2u);

    const auto wrong_family = choose(devices, control, {.gid_index = 5});
    BOOST_TEST(wrong_family.winner() == nullptr);
    BOOST_TEST(find(wrong_family, "mlx5_0", 5)->reason.find("IPv6") != std::string::npos);

    const auto no_such = choose(devices, control, {.device = "mlx5_9"});
    BOOST_TEST(no_such.winner() == nullptr);
    BOOST_TEST(no_such.refusal.find("mlx5_9") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(choice_on_infiniband_needs_no_address_family) {
    auto hca = device("mlx5_0", {entry(0, "fe80::2", gid_type::infiniband)});
    hca.ports[0].link_layer = link_layer::infiniband;
    hca.ports[0].lid = 7;
    const auto c = choose(std::vector{hca}, {"10.0.0.5", "10.0.0.9"});
    BOOST_REQUIRE(c.winner() != nullptr);
    BOOST_TEST(c.winner()->lid == 7u);
}

BOOST_AUTO_TEST_CASE(choice_on_iwarp_needs_no_address_family) {
    // Its GIDs are hardware addresses.
    auto nic = device("siw0", {entry(0, "200:0:b::", gid_type::iwarp)});
    nic.ports[0].link_layer = link_layer::iwarp;
    const auto c = choose(std::vector{nic}, {"10.0.0.5", "10.0.0.9"});
    BOOST_REQUIRE(c.winner() != nullptr);
    BOOST_TEST(c.winner()->reason.find("iWARP") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(choice_without_devices_ports_or_gids_says_which_is_missing) {
    BOOST_TEST(choose({}, {"10.0.0.5", "10.0.0.9"}).refusal.find("no RDMA device") !=
               std::string::npos);
    device_facts shut;
    shut.name = "mlx5_3";
    const auto no_port = choose(std::vector{shut}, {"10.0.0.5", "10.0.0.9"});
    BOOST_TEST(no_port.winner() == nullptr);
    BOOST_TEST(no_port.candidates.size() == 1u);
    const auto no_gid = choose(std::vector{device("rxe0", {})}, {"10.0.0.5", "10.0.0.9"});
    BOOST_TEST(no_gid.winner() == nullptr);
    BOOST_TEST(no_gid.refusal.find("no GID") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(choice_with_an_address_that_does_not_parse_names_it) {
    const std::vector devices{device("rxe0", usual("10.0.0.5"))};
    BOOST_TEST(choose(devices, {"host.example", "10.0.0.9"}).refusal.find("host.example") !=
               std::string::npos);
    BOOST_TEST(choose(devices, {"10.0.0.5", ""}).winner() == nullptr);
}

BOOST_AUTO_TEST_SUITE_END()
