#include <boost/test/unit_test.hpp>

#include "route/mtu.hpp"

namespace route = rvget::route;

BOOST_AUTO_TEST_SUITE(mtu)

BOOST_AUTO_TEST_CASE(path_mtu_at_each_step_of_a_nic_changes_exactly_there) {
    struct row {
        std::uint32_t netdev, below, at;
    };
    for (const auto& r :
         {row{608, 256, 512}, row{1120, 512, 1024}, row{2144, 1024, 2048}, row{4192, 2048, 4096}}) {
        BOOST_TEST(route::path_mtu_for_netdev("mlx5", r.netdev - 1) == r.below);
        BOOST_TEST(route::path_mtu_for_netdev("mlx5", r.netdev) == r.at);
        BOOST_TEST(route::netdev_mtu_for_path("mlx5", r.at) == r.netdev);
    }
}

BOOST_AUTO_TEST_CASE(path_mtu_of_rxe_matches_what_its_ports_report) {
    struct row {
        std::uint32_t netdev, active;
    };
    // Measured on Linux 6.1 with `ip link set mtu` and ibv_query_port.
    for (const auto& r : {row{1100, 512}, row{1109, 1024}, row{1500, 1024}, row{2148, 2048},
                          row{4148, 2048}, row{4200, 4096}, row{9000, 4096}}) {
        BOOST_TEST(route::path_mtu_for_netdev("rxe", r.netdev) == r.active);
    }
    BOOST_TEST(route::netdev_mtu_for_path("rxe", 4096) == 4176u);
    BOOST_TEST(route::path_mtu_for_netdev("rxe", 4175) == 2048u);
}

BOOST_AUTO_TEST_CASE(path_mtu_of_a_tiny_netdev_is_the_smallest_step) {
    BOOST_TEST(route::path_mtu_for_netdev("mlx5", 0) == 256u);
    BOOST_TEST(route::path_mtu_for_netdev("rxe", 100) == 256u);
}

BOOST_AUTO_TEST_CASE(netdev_mtu_for_no_step_is_zero) {
    BOOST_TEST(route::netdev_mtu_for_path("mlx5", 1500) == 0u);
    BOOST_TEST(route::netdev_mtu_for_path("mlx5", 0) == 0u);
}

BOOST_AUTO_TEST_CASE(common_path_mtu_is_the_smaller_end_lowered_to_a_step) {
    BOOST_TEST(route::common_path_mtu(4096, 1024) == 1024u);
    BOOST_TEST(route::common_path_mtu(1024, 4096) == 1024u);
    BOOST_TEST(route::common_path_mtu(4000, 4096) == 2048u);
    BOOST_TEST(route::common_path_mtu(9000, 9000) == 4096u);
    BOOST_TEST(route::common_path_mtu(4096, 0) == 0u);
    BOOST_TEST(route::common_path_mtu(255, 4096) == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
