#include <boost/test/unit_test.hpp>

#include "route/facts.hpp"

using rvget::route::gid;

namespace {
gid make(std::initializer_list<std::uint8_t> head, std::initializer_list<std::uint8_t> tail) {
    gid g;
    std::copy(head.begin(), head.end(), g.bytes.begin());
    std::copy(tail.begin(), tail.end(), g.bytes.end() - static_cast<std::ptrdiff_t>(tail.size()));
    return g;
}
const gid mapped = make({}, {0xff, 0xff, 10, 1, 2, 3});
const gid link_local = make({0xfe, 0x80}, {0, 1});
const gid global = make({0xfd, 0, 0, 1}, {0x12, 0x34});
}  // namespace

BOOST_AUTO_TEST_SUITE(gid_value)

BOOST_AUTO_TEST_CASE(gid_of_no_bytes_is_zero) {
    BOOST_TEST(gid{}.is_zero());
    BOOST_TEST(!mapped.is_zero());
    BOOST_TEST(gid{}.to_string() == "::");
}

BOOST_AUTO_TEST_CASE(gid_mapped_prints_as_ipv4) {
    BOOST_TEST(mapped.is_ipv4_mapped());
    BOOST_TEST(!mapped.is_link_local());
    BOOST_TEST(mapped.to_string() == "10.1.2.3");
}

BOOST_AUTO_TEST_CASE(gid_link_local_is_recognised_in_both_families) {
    BOOST_TEST(link_local.is_link_local());
    BOOST_TEST(make({0xfe, 0xbf}, {1}).is_link_local());
    BOOST_TEST(!make({0xfe, 0xc0}, {1}).is_link_local());
    BOOST_TEST(make({}, {0xff, 0xff, 169, 254, 7, 9}).is_link_local());
    BOOST_TEST(link_local.to_string() == "fe80::1");
}

BOOST_AUTO_TEST_CASE(gid_global_is_neither_mapped_nor_link_local) {
    BOOST_TEST(!global.is_ipv4_mapped());
    BOOST_TEST(!global.is_link_local());
    BOOST_TEST(global.to_string() == "fd00:1::1234");
}

BOOST_AUTO_TEST_CASE(gid_is_parsed_from_the_text_of_an_address) {
    BOOST_TEST((rvget::route::parse_gid("10.1.2.3") == mapped));
    BOOST_TEST((rvget::route::parse_gid("::ffff:10.1.2.3") == mapped));
    BOOST_TEST((rvget::route::parse_gid("fe80::1%eth0") == link_local));
    BOOST_TEST(!rvget::route::parse_gid("host"));
    BOOST_TEST(!rvget::route::parse_gid(""));
    BOOST_TEST(!rvget::route::parse_gid("10.1.2"));
}

BOOST_AUTO_TEST_SUITE_END()
