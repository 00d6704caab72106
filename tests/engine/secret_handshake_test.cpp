// The proof of a shared secret, without a network: who passes, and that no recording, reflection or
// changed bit does.

#include "engine/secret_handshake.hpp"

#include <functional>
#include <utility>
#include <vector>

#include <boost/test/unit_test.hpp>

namespace rvget::engine {
namespace {

using role = secret_handshake::role;
using wire::secret_message;

const std::string secret = "sixteen bytes at least";
constexpr node_id consumer_id{0x1111};
constexpr node_id owner_id{0x2222};

wire::random_bytes fresh(unsigned seed) {
    wire::random_bytes r{};
    for (std::size_t i = 0; i < r.size(); ++i) r[i] = static_cast<std::byte>(seed * 31 + i);
    return r;
}

secret_handshake consumer(unsigned seed = 1, node_id self = consumer_id, std::string s = secret) {
    return {role::consumer, self, std::move(s), fresh(seed)};
}
secret_handshake owner(unsigned seed = 2, node_id self = owner_id, std::string s = secret) {
    return {role::owner, self, std::move(s), fresh(seed)};
}

/// Changes a message on its way, by its number from 0.
using interference = std::function<void(std::size_t, secret_message&)>;

/// What was said, in order, until somebody refused or the exchange was over.
std::vector<secret_message> run(secret_handshake& c, secret_handshake& o,
                                const interference& change = {}) {
    std::vector<secret_message> said;
    auto m = c.begin();
    for (bool to_owner = true; m; to_owner = !to_owner) {
        if (change) change(said.size(), *m);
        said.push_back(*m);
        auto reply = (to_owner ? o : c).next(*m);
        if (!reply) {
            BOOST_TEST((reply.error().code == connection_errc::authentication ||
                        reply.error().code == connection_errc::protocol));
            break;
        }
        m = *reply;
    }
    return said;
}

BOOST_AUTO_TEST_SUITE(handshake)

BOOST_AUTO_TEST_CASE(both_know_the_secret_and_learn_each_others_id) {
    auto c = consumer();
    auto o = owner();
    BOOST_TEST(run(c, o).size() == 4u);
    BOOST_REQUIRE(c.proven());
    BOOST_REQUIRE(o.proven());
    BOOST_TEST(c.peer().value == owner_id.value);
    BOOST_TEST(o.peer().value == consumer_id.value);
}

BOOST_AUTO_TEST_CASE(contract_6_4_other_secret_is_refused_by_the_owner_before_it_answers) {
    for (const std::string& other : {std::string("sixteen bytes at leasT"), secret + "x",
                                     std::string(), std::string(64, 'a')}) {
        auto c = consumer(1, consumer_id, other);
        auto o = owner();
        BOOST_TEST(run(c, o).size() == 3u);  // hello, challenge, proof
        BOOST_TEST(!o.proven());
        BOOST_TEST(!c.proven());
    }
}

BOOST_AUTO_TEST_CASE(contract_6_4_owner_without_the_secret_cannot_answer) {
    auto c = consumer();
    auto real = owner();
    auto said = run(c, real);
    // It knows all that is public, and what the real owner said to another consumer.
    auto next = consumer(3);
    BOOST_REQUIRE(next.next(said[1]));
    BOOST_TEST(!next.next(said[3]));
    BOOST_TEST(!next.proven());
}

BOOST_AUTO_TEST_CASE(contract_6_4_stranger_sees_nothing_that_depends_on_owner_id_or_secret_alone) {
    // The challenge is the only thing that an owner says to a stranger: two owners that differ in
    // the secret only say the same, and the same owner never says the same twice.
    const wire::secret_hello hello{.random = fresh(9)};
    auto a = owner(2);
    auto b = owner(2, owner_id, "another secret, also long enough");
    auto later = owner(3);
    const auto said_a = a.next(hello).value();
    BOOST_TEST((said_a == b.next(hello).value()));
    BOOST_TEST((said_a != later.next(hello).value()));
}

BOOST_AUTO_TEST_CASE(contract_6_4_any_changed_bit_of_any_message_is_refused) {
    for (std::size_t message = 0; message < 4; ++message) {
        auto probe_c = consumer();
        auto probe_o = owner();
        const auto bits = wire::encode(run(probe_c, probe_o)[message]).size() * 8;
        for (std::size_t bit = 10 * 8; bit < bits; ++bit) {
            auto c = consumer();
            auto o = owner();
            bool delivered = true;
            run(c, o, [&](std::size_t i, secret_message& m) {
                if (i != message) return;
                auto bytes = wire::encode(m);
                bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
                if (auto changed = wire::decode_secret_message(bytes))
                    m = *changed;
                else
                    delivered = false;
            });
            BOOST_TEST((!delivered || !c.proven()), "message " << message << " bit " << bit);
            BOOST_TEST((!delivered || message == 3 || !o.proven()));
        }
    }
}

// What an eavesdropper recorded of a good exchange, said again.

struct recorded {
    recorded() {
        auto c = consumer();
        auto o = owner();
        said = run(c, o);
        BOOST_REQUIRE(said.size() == 4);
    }
    std::vector<secret_message> said;
};

BOOST_FIXTURE_TEST_CASE(contract_6_4_recording_replayed_to_the_same_owner_is_refused, recorded) {
    auto o = owner(7);  // the same node: only its random number is new
    BOOST_REQUIRE(o.next(said[0]));
    const auto answer = o.next(said[2]);
    BOOST_REQUIRE(!answer);
    BOOST_TEST((answer.error().code == connection_errc::authentication));
    BOOST_TEST(!o.proven());
}

BOOST_FIXTURE_TEST_CASE(contract_6_4_recording_replayed_to_another_node_is_refused, recorded) {
    // Even one that happens to draw the same random number.
    auto o = owner(2, node_id{0x3333});
    BOOST_REQUIRE(o.next(said[0]));
    BOOST_TEST(!o.next(said[2]));
    BOOST_TEST(!o.proven());
}

BOOST_FIXTURE_TEST_CASE(contract_6_4_recording_replayed_to_a_restarted_owner_is_refused, recorded) {
    auto o = owner(8, node_id{owner_id.value + 1});
    BOOST_REQUIRE(o.next(said[0]));
    BOOST_TEST(!o.next(said[2]));
    BOOST_TEST(!o.proven());
}

BOOST_FIXTURE_TEST_CASE(
    contract_6_4_recording_replayed_to_the_same_or_a_restarted_consumer_is_refused, recorded) {
    for (auto c : {consumer(7), consumer(1, node_id{consumer_id.value + 1})}) {
        BOOST_REQUIRE(c.next(said[1]));
        BOOST_TEST(!c.next(said[3]));
        BOOST_TEST(!c.proven());
    }
}

BOOST_FIXTURE_TEST_CASE(contract_6_4_recording_replayed_at_the_other_role_is_refused, recorded) {
    const auto& proof = std::get<wire::secret_proof>(said[2]);
    const auto& answer = std::get<wire::secret_answer>(said[3]);
    const auto& challenge = std::get<wire::secret_challenge>(said[1]);
    // The consumer's proof as an owner's answer, to the same consumer.
    auto c = consumer();
    BOOST_REQUIRE(c.next(said[1]));
    BOOST_TEST(!c.next(wire::secret_answer{answer.owner, answer.opening, proof.proof}));
    BOOST_TEST(!c.proven());
    // The owner's answer as a consumer's proof, to an owner with the same random number.
    auto o = owner();
    BOOST_REQUIRE(o.next(said[0]));
    BOOST_TEST(!o.next(wire::secret_proof{proof.consumer, answer.proof}));
    BOOST_TEST(!o.proven());
    // A node is often both: its challenge as its own random number.
    auto both = owner();
    BOOST_REQUIRE(both.next(wire::secret_hello{.random = challenge.commitment}));
    BOOST_TEST(!both.next(said[2]));
}

BOOST_FIXTURE_TEST_CASE(message_out_of_turn_ends_the_exchange, recorded) {
    for (std::size_t first = 0; first < said.size(); ++first) {
        auto o = owner();
        if (first == 0) continue;
        const auto refused = o.next(said[first]);
        BOOST_REQUIRE(!refused);
        BOOST_TEST((refused.error().code == connection_errc::protocol));
        BOOST_TEST(!o.next(said[0]), "it is over for good");
    }
    for (std::size_t first = 0; first < said.size(); ++first) {
        if (first == 1) continue;
        auto c = consumer();
        BOOST_TEST(!c.next(said[first]));
        BOOST_TEST(!c.next(said[1]), "it is over for good");
    }
    auto c = consumer();
    auto o = owner();
    run(c, o);
    BOOST_TEST(!o.next(said[0]));
    BOOST_TEST(!o.proven(), "a proof does not outlive a broken protocol");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace rvget::engine
