// Nodes of today with peers of protocol version 1, which move bytes in chunks and know no RDMA.

#include <algorithm>
#include <string>

#include <boost/test/unit_test.hpp>

#include "api/nodes_on_sim.hpp"
#include "api/raw_peer.hpp"
#include "api/scripted_owner.hpp"
#include "support/protocol_v1.hpp"

namespace rvget::test {
namespace {

constexpr std::uint64_t old_node = 0x1111;
constexpr std::size_t part = 70'000;  ///< above rdma_min_bytes: RDMA where both know it

BOOST_AUTO_TEST_SUITE(versions)

BOOST_FIXTURE_TEST_CASE(contract_6_2_consumer_of_version_1_is_served_in_chunks, sim_nodes) {
    const auto from = stage(part);
    const auto s = connect_raw(*owner->address());
    BOOST_REQUIRE(s.write(v1::greeting(old_node)));
    const auto hello = v1::read(s);
    BOOST_TEST(hello.type() == v1::hello);
    BOOST_TEST(hello.field(10, 2) <= 1u);  // speaks 1 too
    BOOST_REQUIRE(s.write(v1::frame(v1::acquire, 5)
                              .field(from.handle.slot, 8)
                              .field(0, 8)
                              .field(~std::uint64_t{0}, 8)
                              .field(20'000, 4)
                              .field(0, 1)
                              .on_the_wire()));
    const auto reply = v1::read(s);
    BOOST_TEST(reply.type() == v1::acquire_reply);
    BOOST_TEST(reply.id() == 5u);
    BOOST_TEST(reply.field(10, 1) == 2u);  // chunked
    BOOST_TEST(reply.field(20, 8) == part);
    const auto lease = reply.field(28, 8);
    BOOST_TEST(lease != 0u);
    for (const std::uint8_t tag : {1, 2, 3}) BOOST_TEST(!reply.has(tag, 44));  // not in version 1
    BOOST_REQUIRE(
        s.write(v1::frame(v1::pull, 6).field(lease, 8).field(0, 8).field(part, 4).on_the_wire()));
    const auto chunk = v1::read(s);
    BOOST_TEST(chunk.type() == v1::chunk);
    BOOST_TEST(chunk.field(10, 1) == 0u);
    BOOST_TEST(chunk.payload.size() == part);
    check_pattern(chunk.payload);
    BOOST_REQUIRE(s.write(v1::frame(v1::detach, 0).field(1, 2).field(lease, 8).on_the_wire()));
}

BOOST_FIXTURE_TEST_CASE(contract_6_2_offer_of_an_older_version_is_answered_version, sim_nodes) {
    const auto from = stage(part);
    const auto s = connect_raw(*owner->address());
    BOOST_REQUIRE(s.write(v1::greeting(old_node)));
    static_cast<void>(v1::read(s));
    wire::acquire a;
    a.slot = from.handle.slot;
    a.deadline_ms = 20'000;
    a.offer = wire::lane_offer{.generation = 1, .facts = wire::queue_pair_facts{}};
    a.offer->facts->path_mtu = 1024;
    BOOST_REQUIRE(s.write(wire::frame{5, a}));
    const auto reply = s.read_frame();
    BOOST_REQUIRE(reply);
    const auto& r = std::get<wire::acquire_reply>(reply->frame.body);
    BOOST_TEST((r.answer == wire::answer::chunked));
    BOOST_TEST((r.why == reason::version));
    BOOST_TEST(!r.lane_facts.has_value());
    BOOST_TEST(owner->statistics().queue_pairs_made == 0u);
    BOOST_REQUIRE(s.write(wire::frame{0, wire::detach{{r.lease}}}));
}

/// Serves chunks of the pattern, whatever is asked for, until its peer goes.
void serve_version_1(const raw_socket& peer, bool& offered) {
    try {
        for (;;) {
            const auto asked = v1::read(peer);
            if (asked.type() == v1::acquire) {
                offered = offered || asked.has(1, 39);
                peer.write(v1::frame(v1::acquire_reply, asked.id())
                               .field(2, 1)  // chunked
                               .field(static_cast<std::uint8_t>(reason::no_offer), 1)
                               .field(part, 8)
                               .field(part, 8)
                               .field(77, 8)
                               .field(20'000, 4)
                               .field(0, 4)
                               .on_the_wire());
            } else if (asked.type() == v1::pull) {
                bytes payload(asked.field(26, 4));
                fill_pattern(payload, asked.field(18, 8));
                peer.write(v1::frame(v1::chunk, asked.id()).field(0, 1).on_the_wire(payload));
            }
        }
    } catch (const std::runtime_error&) {  // the peer is gone
    }
}

/// An owner of version 1 on a thread of its own, with what it saw.
struct owner_of_version_1 {
    bool offered = false;
    scripted_owner owner{[this](const raw_socket& peer) {
                             peer.write(v1::greeting(raw_id.value));
                             serve_version_1(peer, offered);
                         },
                         false};
};

BOOST_AUTO_TEST_CASE(contract_6_2_owner_of_version_1_is_got_from_in_chunks) {
    owner_of_version_1 old;
    sim_nodes n;
    const auto got = n.consumer->get(old.owner.target());
    BOOST_REQUIRE_MESSAGE(got, got.error().message());
    BOOST_TEST(got->data.size() == part);
    check_pattern(got->data.bytes());
    BOOST_TEST(got->report.path == path::chunked);
    BOOST_TEST(got->report.reason == reason::version);
    BOOST_TEST(got->report.detail.find("update the owner") != std::string::npos);
    BOOST_TEST(n.consumer->statistics().queue_pairs_made == 0u);
    n.consumer.reset();
    BOOST_TEST(!old.offered);
}

BOOST_AUTO_TEST_CASE(contract_2_4_require_names_the_older_version) {
    owner_of_version_1 old;
    sim_nodes n;
    const auto refused = n.consumer->get(old.owner.target(), {.policy = path_policy::require});
    BOOST_REQUIRE(!refused);
    BOOST_TEST((refused.error().code == request_errc::path_not_available));
    BOOST_TEST(refused.error().message().find("version") != std::string::npos);
    n.consumer.reset();
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace rvget::test
