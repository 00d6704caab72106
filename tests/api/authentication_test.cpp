// Nodes that share a secret, and everybody who does not: wrong or missing secrets, recordings said
// again, strangers that are slow, many, or send garbage. A stranger learns nothing and costs
// nothing.

#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "api/nodes.hpp"
#include "api/raw_peer.hpp"
#include "api/scripted_owner.hpp"
#include "base/random.hpp"
#include "engine/secret_handshake.hpp"
#include "support/seeded_random.hpp"
#include "wire/secret_messages.hpp"

namespace rvget::test {
namespace {

using engine::secret_handshake;

const std::string secret = "thirty-two bytes of randomness..";

node_options knowing(const std::string& s, node_options o = {}) {
    o.secret = s;
    return o;
}

bytes framed(std::span<const std::byte> head) {
    const auto prefix = wire::encode_prefix({static_cast<std::uint32_t>(head.size()), 0});
    bytes out(prefix.begin(), prefix.end());
    out.insert(out.end(), head.begin(), head.end());
    return out;
}

std::optional<wire::secret_message> read_message(const raw_socket& s) {
    const auto prefix = s.read(wire::prefix_bytes);
    if (!prefix) return std::nullopt;
    const auto lengths = wire::decode_prefix(std::span(*prefix).first<wire::prefix_bytes>());
    const auto head = s.read(lengths.value().head_bytes);
    if (!head) return std::nullopt;
    return wire::decode_secret_message(*head).value();
}

wire::random_bytes fresh() {
    wire::random_bytes r{};
    fill_random(r);
    return r;
}

/// Proves the secret over `s` as `self`; returns what it said.
std::vector<bytes> prove(const raw_socket& s, node_id self) {
    std::vector<bytes> said;
    secret_handshake h(secret_handshake::role::consumer, self, secret, fresh());
    for (auto m = h.begin(); m;) {
        said.push_back(framed(wire::encode(*m)));
        BOOST_REQUIRE(s.write(said.back()));
        const auto reply = read_message(s);
        BOOST_REQUIRE(reply);
        m = h.next(*reply).value();
    }
    BOOST_REQUIRE(h.proven());
    return said;
}

/// The stream ends, and not one byte came.
bool ends_without_a_word(const raw_socket& s) {
    std::byte b{};
    const auto n = ::recv(s.get(), &b, 1, 0);
    return n == 0 || (n < 0 && errno == ECONNRESET);
}

failure failure_of(node& consumer, const url& from) {
    const auto got = consumer.get(from);
    BOOST_REQUIRE(!got);
    return got.error();
}

struct secret_owner {
    explicit secret_owner(node_options o = {})
        : owner(start_tcp_node(listening(knowing(secret, o)))) {}
    void check_serves() {
        auto consumer = start_tcp_node(knowing(secret));
        const auto got = consumer.get(owner.url_of(staged));
        BOOST_REQUIRE_MESSAGE(got, got.error().message());
        check_pattern(got->data.bytes());
    }
    [[nodiscard]] raw_socket connect() const { return connect_raw(*owner.address()); }

    node owner;
    handle staged = owner.stage(payload(100'000)).value();
};

BOOST_AUTO_TEST_SUITE(secret_mode)

BOOST_FIXTURE_TEST_CASE(same_secret_serves_every_kind_of_call, secret_owner) {
    check_serves();
    auto consumer = start_tcp_node(knowing(secret));
    BOOST_TEST((consumer.connect(*owner.address()).value() == owner.id()));
    BOOST_TEST(consumer.metadata(owner.url_of(staged)).value().bytes == 100'000u);
}

BOOST_FIXTURE_TEST_CASE(contract_6_4_wrong_secret_is_an_authentication_failure, secret_owner) {
    for (const std::string& other :
         {std::string("thirty-two bytes of randomness.,"), secret + "."}) {
        auto consumer = start_tcp_node(knowing(other));
        const auto f = failure_of(consumer, owner.url_of(staged));
        BOOST_TEST(f.code == make_error_code(connection_errc::authentication), f.message());
        BOOST_TEST(f.detail.find(owner.address()->to_string()) != std::string::npos, f.detail);
        BOOST_TEST(f.detail.find("secret") != std::string::npos, f.detail);
    }
    check_serves();
}

BOOST_FIXTURE_TEST_CASE(contract_6_4_no_secret_at_the_consumer_is_refused_without_a_word,
                        secret_owner) {
    auto consumer = start_tcp_node();
    const auto f = failure_of(consumer, owner.url_of(staged));
    BOOST_TEST(f.code == make_error_code(connection_errc::lost), f.message());
    BOOST_TEST(f.detail.find("it may ask for a proof") != std::string::npos, f.detail);
    const auto s = connect();
    BOOST_REQUIRE(s.write(wire::frame{0, wire::hello{.node = raw_id}}));
    BOOST_TEST(ends_without_a_word(s));
    check_serves();
}

BOOST_AUTO_TEST_CASE(
    contract_6_4_no_secret_at_the_owner_is_an_authentication_failure_of_the_consumer) {
    tcp_nodes n({}, knowing(secret));
    const auto f = failure_of(n.consumer, n.stage(1000));
    BOOST_TEST(f.code == make_error_code(connection_errc::authentication), f.message());
}

BOOST_AUTO_TEST_CASE(contract_6_4_owner_that_greets_instead_of_proving_gets_no_request) {
    // A downgrade by whoever sits on the address: the consumer says its random number and no more.
    raw_port port;
    port.listen();
    bool ended = false;
    std::thread impostor([&] {
        const auto peer = port.accept();
        if (!read_message(peer)) return;
        peer.write(wire::frame{0, wire::hello{.node = raw_id}});
        ended = ends_without_a_word(peer);
    });
    auto consumer = start_tcp_node(knowing(secret));
    const auto f = failure_of(consumer, url{port.address(), {raw_id, 99}});
    impostor.join();
    BOOST_TEST(f.code == make_error_code(connection_errc::authentication), f.message());
    BOOST_TEST(ended);
}

BOOST_FIXTURE_TEST_CASE(contract_6_4_recording_said_again_gets_a_challenge_and_no_more,
                        secret_owner) {
    const auto first = connect();
    auto said = prove(first, raw_id);
    said.push_back(on_the_wire(wire::frame{0, wire::hello{.node = raw_id}}));
    BOOST_REQUIRE(first.write(said.back()));
    BOOST_REQUIRE(first.read_frame());  // it is a real conversation
    secret_owner another;
    // A restarted owner is one with the same secret and another id, as `another` is.
    for (const auto* to : {&owner, &another.owner}) {
        const auto s = connect_raw(*to->address());
        BOOST_REQUIRE(s.write(said[0]));
        BOOST_REQUIRE(read_message(s));
        s.write(said[1]);
        s.write(said[2]);
        BOOST_TEST(ends_without_a_word(s));
    }
    check_serves();
    another.check_serves();
}

BOOST_FIXTURE_TEST_CASE(contract_6_4_reflected_messages_prove_nothing, secret_owner) {
    const auto s = connect();
    BOOST_REQUIRE(s.write(framed(wire::encode(wire::secret_hello{.random = fresh()}))));
    const auto challenge = read_message(s);
    BOOST_REQUIRE(challenge);
    // Its own challenge in another role, to itself over another connection, and what comes back.
    const auto mirror = connect();
    BOOST_REQUIRE(mirror.write(framed(wire::encode(
        wire::secret_hello{.random = std::get<wire::secret_challenge>(*challenge).commitment}))));
    const auto mirrored = read_message(mirror);
    BOOST_REQUIRE(mirrored);
    s.write(framed(wire::encode(
        wire::secret_proof{owner.id(), std::get<wire::secret_challenge>(*mirrored).commitment})));
    BOOST_TEST(ends_without_a_word(s));
    mirror.write(framed(wire::encode(*mirrored)));
    BOOST_TEST(ends_without_a_word(mirror));
}

BOOST_FIXTURE_TEST_CASE(contract_6_4_greeting_with_another_id_than_the_proven_one_is_refused,
                        secret_owner) {
    const auto s = connect();
    prove(s, raw_id);
    BOOST_REQUIRE(s.write(wire::frame{0, wire::hello{.node = node_id{raw_id.value + 1}}}));
    BOOST_TEST(ends_without_a_word(s));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(strangers)

node_options impatient() {
    node_options o;
    o.handshake_timeout = 300ms;
    return o;
}

node_options roomy(std::size_t max_handshakes) {
    node_options o;
    o.handshake_timeout = 10min;  // so that only the limit can end what waits
    o.max_handshakes = max_handshakes;
    return o;
}

BOOST_AUTO_TEST_CASE(contract_6_4_slow_stranger_is_closed_at_the_handshake_deadline) {
    secret_owner o(impatient());
    const auto silent = o.connect();
    const auto half = o.connect();
    const auto hello = framed(wire::encode(wire::secret_hello{.random = fresh()}));
    BOOST_REQUIRE(half.write(std::span(hello).first(hello.size() / 2)));
    const auto challenged = o.connect();
    BOOST_REQUIRE(challenged.write(hello));
    BOOST_REQUIRE(read_message(challenged));
    // One that proved itself and does not greet is held to the same deadline.
    const auto proven = o.connect();
    prove(proven, raw_id);
    for (const auto* s : {&silent, &half, &challenged, &proven})
        BOOST_TEST(ends_without_a_word(*s));
    o.check_serves();
}

BOOST_AUTO_TEST_CASE(contract_6_4_slow_stranger_is_closed_without_a_secret_too) {
    auto owner = start_tcp_node(listening(impatient()));
    const auto silent = connect_raw(*owner.address());
    BOOST_TEST(ends_without_a_word(silent));
}

BOOST_AUTO_TEST_CASE(contract_6_4_many_strangers_keep_nobody_out) {
    constexpr std::size_t limit = 8;
    constexpr std::size_t many = 100;
    secret_owner o(roomy(limit));
    auto known = start_tcp_node(knowing(secret));
    BOOST_REQUIRE(known.get(o.owner.url_of(o.staged)));
    std::vector<raw_socket> crowd;
    for (std::size_t i = 0; i < many; ++i) crowd.push_back(o.connect());
    // The oldest go, and whoever comes with the secret meanwhile gets in.
    for (std::size_t i = 0; i < many - limit; ++i) BOOST_REQUIRE(ends_without_a_word(crowd[i]));
    o.check_serves();
    BOOST_TEST(known.get(o.owner.url_of(o.staged)).has_value());
    // The last ones are still there: the limit is what it says, less who came after.
    std::byte b{};
    BOOST_TEST(::recv(crowd.back().get(), &b, 1, MSG_DONTWAIT) == -1);
    BOOST_TEST(errno == EAGAIN);
}

BOOST_AUTO_TEST_CASE(consumer_beyond_the_limit_is_told_that_the_owner_is_busy) {
    node_options options;
    options.max_consumers = 1;
    secret_owner o(options);
    auto first = start_tcp_node(knowing(secret));
    BOOST_REQUIRE(first.get(o.owner.url_of(o.staged)));
    auto second = start_tcp_node(knowing(secret));
    const auto f = failure_of(second, o.owner.url_of(o.staged));
    BOOST_TEST(f.detail.find("busy: 1 consumers are connected") != std::string::npos, f.detail);
    BOOST_TEST(first.get(o.owner.url_of(o.staged)).has_value());
    BOOST_TEST(first.shutdown(10s));
    // The place is free as soon as the owner has seen the other go.
    for (bool in = false; !in;)
        in = start_tcp_node(knowing(secret)).get(o.owner.url_of(o.staged)).has_value();
}

BOOST_AUTO_TEST_CASE(garbage_from_strangers_changes_nothing) {
    secret_owner o;
    seeded_random random("garbage_from_strangers");
    for (int i = 0; i < 200; ++i) {
        bytes garbage(random.below(300) + 1);
        for (auto& b : garbage) b = static_cast<std::byte>(random.u64());
        // Half of them are frames that begin as the first message should.
        if (i % 2 == 0) {
            garbage[0] = std::byte{64};
            garbage = framed(garbage);
        }
        const auto s = o.connect();
        s.write(garbage);
        s.shutdown(SHUT_WR);
        BOOST_TEST(ends_without_a_word(s));
    }
    o.check_serves();
    BOOST_TEST(o.owner.statistics().leases_granted == 1u);  // that get's, which ends behind it
}

BOOST_AUTO_TEST_CASE(contract_6_4_shutdown_says_nothing_to_a_stranger) {
    auto o = std::make_unique<secret_owner>(roomy(8));
    const auto s = o->connect();
    BOOST_REQUIRE(s.write(framed(wire::encode(wire::secret_hello{.random = fresh()}))));
    BOOST_REQUIRE(read_message(s));
    BOOST_TEST(o->owner.shutdown(10s));
    BOOST_TEST(ends_without_a_word(s));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_CASE(secret_that_is_too_short_or_too_long_does_not_validate) {
    for (const std::size_t bytes : {1, 15, 4097})
        BOOST_TEST(!knowing(std::string(bytes, 'x')).validate());
    for (const std::size_t bytes : {0, 16, 4096})
        BOOST_TEST(knowing(std::string(bytes, 'x')).validate().has_value());
}

}  // namespace
}  // namespace rvget::test
