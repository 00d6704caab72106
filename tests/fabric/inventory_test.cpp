// The kernel's own answers about routes and neighbours, as far as every machine has them: loopback.

#include <string>

#include <arpa/inet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>
#include <boost/test/unit_test.hpp>

#include "fabric/inventory/kernel_route.hpp"
#include "fabric/inventory/neighbour.hpp"

using namespace rvget;
using namespace rvget::fabric::inventory;

namespace {

/// The kernel enters whom it sends to, and who is on a loopback netdev as nobody (0.0.0.0).
void send_something_to_loopback() {
    const int sender = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(9);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    BOOST_TEST(::sendto(sender, "x", 1, 0, reinterpret_cast<sockaddr*>(&to), sizeof to) == 1);
    ::close(sender);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(fabric_inventory)

BOOST_AUTO_TEST_CASE(route_is_that_of_a_packet_which_bears_the_source_that_is_given) {
    const auto chosen = route_to("127.0.0.1");
    const auto given = route_to("127.0.0.1", "127.0.0.2");
    BOOST_REQUIRE((chosen && given));
    BOOST_TEST(chosen->source == "127.0.0.1");
    BOOST_TEST(given->source == "127.0.0.2");
    BOOST_TEST(given->netdev == "lo");
    BOOST_TEST(given->local);
}

BOOST_AUTO_TEST_CASE(source_that_is_not_this_machines_has_no_route) {
    const auto none = route_to("127.0.0.1", "192.0.2.77");
    BOOST_REQUIRE(!none);
    BOOST_TEST((none.error().code == connection_errc::connect_failed));
    BOOST_TEST(none.error().detail.find("ip route get 127.0.0.1 from 192.0.2.77") !=
               std::string::npos);
}

BOOST_AUTO_TEST_CASE(source_of_another_family_is_refused) {
    for (const auto* source : {"::1", "nobody"}) {
        const auto none = route_to("127.0.0.1", source);
        BOOST_REQUIRE(!none);
        BOOST_TEST((none.error().code == request_errc::invalid_argument), source);
    }
}

BOOST_AUTO_TEST_CASE(neighbour_is_that_of_the_netdev_that_is_named) {
    send_something_to_loopback();
    BOOST_TEST(neighbour_of("0.0.0.0", "lo").state == "noarp");
    BOOST_TEST(neighbour_of("0.0.0.0", "").state == "noarp");
    BOOST_TEST(neighbour_of("0.0.0.0", "none-such").state.empty());
    struct if_nameindex* all = ::if_nameindex();
    BOOST_REQUIRE(all != nullptr);
    for (const auto* one = all; one->if_index != 0; ++one) {
        const std::string name(one->if_name);
        // On Ethernet nobody has that address.
        if (name.starts_with("eth") || name.starts_with("en"))
            BOOST_TEST(neighbour_of("0.0.0.0", name).state.empty(), name);
    }
    ::if_freenameindex(all);
}

BOOST_AUTO_TEST_CASE(neighbour_answers_where_the_kernel_knows_and_not_where_it_believes) {
    for (const auto* known : {"permanent", "noarp", "reachable"})
        BOOST_TEST(known_to_answer(known));
    for (const auto* other : {"stale", "delay", "probe", "incomplete", "failed", ""})
        BOOST_TEST(!known_to_answer(other), other);
}

BOOST_AUTO_TEST_SUITE_END()
