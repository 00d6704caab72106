// Control connections behind a secret: what gets through, and what a stranger gets.

#include "engine/secret_network.hpp"

#include <algorithm>
#include <string>

#include <boost/test/unit_test.hpp>

#include "engine/memory_network.hpp"
#include "wire/frames.hpp"
#include "wire/secret_messages.hpp"

namespace rvget::test {
namespace {

using engine::control_link;

constexpr node_id consumer_id{0x1111};
constexpr node_id owner_id{0x2222};
const std::string secret = "sixteen bytes at least";

using heads = std::vector<std::vector<std::byte>>;

std::vector<std::byte> some_frame(std::uint64_t id) {
    return wire::encode(wire::frame{id, wire::ping{}});
}

struct listener final : engine::control_link_events {
    void on_frame(std::span<const std::byte> head, std::span<const std::byte> payload) override {
        heads.emplace_back(head.begin(), head.end());
        payload_bytes += payload.size();
    }
    std::span<std::byte> payload_destination(std::span<const std::byte>, std::size_t) override {
        ++announced;
        return {};
    }
    void on_closed(const failure& why) override {
        ++closed;
        closed_why = why;
    }
    std::vector<std::vector<std::byte>> heads;
    std::size_t payload_bytes = 0;
    int announced = 0;
    int closed = 0;
    failure closed_why;
};

/// A consumer and an owner over one network; either with a secret, or none.
struct pair_of_ends {
    explicit pair_of_ends(const std::string& consumer_secret = secret,
                          const std::string& owner_secret = secret) {
        auto& at_owner = secured(owner_secret, owner_id, owner_net);
        auto& at_consumer = secured(consumer_secret, consumer_id, consumer_net);
        BOOST_REQUIRE(at_owner.listen({"192.0.2.2", 1}, [this](std::shared_ptr<control_link> l) {
            owner_link = std::move(l);
            owner_link->start(owner_events);
        }));
        at_consumer.connect({"192.0.2.2", 1}, {}, [this](auto link) {
            consumer_link = link.value();
            consumer_link->start(consumer_events);
            consumer_link->send(some_frame(1));
        });
    }
    engine::control_network& secured(const std::string& s, node_id self,
                                     std::unique_ptr<engine::control_network>& out) {
        if (s.empty()) return net;
        out = engine::make_secret_network(env, net, self, s);
        return *out;
    }

    counting_environment env;
    memory_network net;
    std::unique_ptr<engine::control_network> owner_net;
    std::unique_ptr<engine::control_network> consumer_net;
    std::shared_ptr<listener> consumer_events = std::make_shared<listener>();
    std::shared_ptr<listener> owner_events = std::make_shared<listener>();
    std::shared_ptr<control_link> consumer_link;
    std::shared_ptr<control_link> owner_link;
};

void check_nothing_came_through(const pair_of_ends& p) {
    for (const auto& end : {p.consumer_events, p.owner_events}) {
        BOOST_TEST(end->heads.empty());
        BOOST_TEST(end->announced == 0);
        BOOST_TEST(end->closed == 1);
    }
}

BOOST_AUTO_TEST_CASE(same_secret_lets_frames_through_in_order_and_tells_who_is_there) {
    pair_of_ends p;
    p.consumer_link->send(some_frame(2));
    p.owner_link->send(some_frame(3), {});
    BOOST_TEST(!p.owner_link->proven_peer().has_value());
    p.net.run();
    BOOST_TEST((p.owner_events->heads == heads{some_frame(1), some_frame(2)}));
    BOOST_TEST((p.consumer_events->heads == heads{some_frame(3)}));
    BOOST_TEST((p.owner_link->proven_peer() == consumer_id));
    BOOST_TEST((p.consumer_link->proven_peer() == owner_id));
    const std::vector<std::byte> payload(5);
    p.owner_link->send(some_frame(4), {payload, nullptr});
    p.net.run();
    BOOST_TEST(p.consumer_events->announced == 1);
    BOOST_TEST(p.consumer_events->payload_bytes == 5u);
    p.owner_link->close(true);
    p.net.run();
    BOOST_TEST((p.consumer_events->closed_why.code == connection_errc::lost));
}

BOOST_AUTO_TEST_CASE(contract_6_4_other_secret_ends_both_without_a_frame) {
    pair_of_ends p(secret, "another, and long enough");
    p.net.run();
    check_nothing_came_through(p);
    BOOST_TEST((p.owner_events->closed_why.code == connection_errc::authentication));
    BOOST_TEST((p.consumer_events->closed_why.code == connection_errc::authentication));
}

BOOST_AUTO_TEST_CASE(contract_6_4_consumer_without_a_secret_hears_nothing_from_an_owner_with_one) {
    pair_of_ends p("", secret);
    p.owner_link->send(some_frame(3), {});  // a goodbye, say
    const auto& consumer_end = *p.net.ends.front();
    p.net.run();
    BOOST_TEST(consumer_end.inbox.empty());
    check_nothing_came_through(p);
    BOOST_TEST((p.owner_events->closed_why.code == connection_errc::authentication));
}

BOOST_AUTO_TEST_CASE(contract_6_4_consumer_with_a_secret_says_nothing_to_an_owner_without_one) {
    pair_of_ends p(secret, "");
    const auto& owner_end = *p.net.ends.back();
    BOOST_TEST_REQUIRE(owner_end.inbox.size() == 1u);
    BOOST_TEST(wire::decode_secret_message(owner_end.inbox.front().first).has_value());
    // An owner that knows no such message answers with its greeting, or closes.
    p.owner_link->send(some_frame(3), {});
    p.net.run();
    BOOST_TEST(p.consumer_events->heads.empty());
    BOOST_TEST((p.consumer_events->closed_why.code == connection_errc::authentication));
    BOOST_TEST(p.owner_events->heads.size() == 1u, "its first message, and nothing after it");
}

BOOST_AUTO_TEST_CASE(peer_that_closes_instead_of_proving_is_an_authentication_failure) {
    pair_of_ends p(secret, "");
    p.owner_link->close(false);
    p.net.run();
    BOOST_TEST((p.consumer_events->closed_why.code == connection_errc::authentication));
    BOOST_TEST(p.consumer_events->closed_why.detail.find("secret") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(
    contract_6_4_payload_before_the_proof_ends_the_connection_before_memory_is_found_for_it) {
    pair_of_ends p("", secret);
    p.net.ends.back()->inbox.clear();
    const std::vector<std::byte> payload(100);
    p.consumer_link->send(some_frame(2), {payload, nullptr});
    p.net.run();
    BOOST_TEST(p.owner_events->announced == 0);
    BOOST_TEST(p.owner_events->closed == 1);
}

BOOST_AUTO_TEST_CASE(garbage_before_the_proof_ends_the_connection_without_a_word) {
    for (const std::size_t size : {1, 10, 42, 43, 65536}) {
        pair_of_ends p("", secret);
        p.net.ends.back()->inbox.clear();
        p.consumer_link->send(std::vector<std::byte>(size, std::byte{0x40}), {});
        p.net.run();
        check_nothing_came_through(p);
    }
}

BOOST_AUTO_TEST_CASE(close_with_flush_before_the_proof_flushes_nothing) {
    pair_of_ends p("", secret);
    p.owner_link->send(some_frame(3), {});
    p.owner_link->close(true);
    p.net.run();
    BOOST_TEST(p.consumer_events->heads.empty());
    BOOST_TEST(p.consumer_events->closed == 1);
}

}  // namespace
}  // namespace rvget::test
