#pragma once
// The exchange by which two nodes prove to each other that they know the same secret. Pure:
// messages in, messages out.
//
//     consumer                                    owner
//        secret_hello: Rc              ->
//                                      <-  secret_challenge: C = SHA-256("id", Ro, owner's id)
//        secret_proof: consumer's id,
//          HMAC(secret, "consumer", T) ->
//                                      <-  secret_answer: owner's id, Ro, HMAC(secret, "owner", T)
//
// with T = consumer's id, Rc, C. An id is an incarnation: a restarted node has another one. Both
// proofs cover both ids (the owner's through C), both random numbers and the role, so that a
// recording is worth nothing against anybody later, and a proof cannot be handed back as its own
// answer. Who does not know the secret sees random numbers from the owner and nothing else.

#include <cstdint>
#include <optional>
#include <string>

#include <rvget/error.hpp>
#include <rvget/handle.hpp>

#include "wire/secret_messages.hpp"

namespace rvget::engine {

class secret_handshake {
public:
    enum class role : std::uint8_t { consumer, owner };

    /// `fresh` is used here and nowhere else, ever.
    secret_handshake(role as, node_id self, std::string secret, const wire::random_bytes& fresh);

    /// The consumer's first message; the owner waits for it.
    [[nodiscard]] std::optional<wire::secret_message> begin() const;

    /// Takes the peer's next message and gives the reply, where one is due. A failure
    /// (`authentication`, or `protocol` for a message out of turn) is the end of the exchange.
    result<std::optional<wire::secret_message>> next(const wire::secret_message& m);

    /// The peer has proved itself; on the owner's side, its answer is still on its way.
    [[nodiscard]] bool proven() const noexcept { return step_ == step::proven; }
    /// Who it is. Precondition: proven().
    [[nodiscard]] node_id peer() const noexcept {
        return role_ == role::consumer ? owner_ : consumer_;
    }

private:
    enum class step : std::uint8_t { hello, challenge, proof, answer, proven, failed };

    wire::secret_message challenge(const wire::secret_hello& m);
    wire::secret_message prove(const wire::secret_challenge& m);
    result<std::optional<wire::secret_message>> check(const wire::secret_proof& m);
    result<std::optional<wire::secret_message>> check(const wire::secret_answer& m);

    [[nodiscard]] wire::random_bytes commitment() const;
    [[nodiscard]] wire::proof_bytes proof_of(role who) const;

    const role role_;
    const std::string secret_;
    step step_;
    node_id consumer_;
    node_id owner_;
    wire::random_bytes consumer_random_{};
    wire::random_bytes opening_{};
    wire::random_bytes commitment_{};
};

}  // namespace rvget::engine
