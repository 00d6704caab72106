#include "engine/secret_handshake.hpp"

#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "base/bytes.hpp"
#include "base/sha256.hpp"

namespace rvget::engine {
namespace {

// All inputs have fixed lengths, so that no two of them look alike.
constexpr std::string_view id_label = "rvget secret 1 id......";
constexpr std::string_view consumer_label = "rvget secret 1 consumer";
constexpr std::string_view owner_label = "rvget secret 1 owner...";
static_assert(id_label.size() == owner_label.size() && owner_label.size() == consumer_label.size());

}  // namespace

secret_handshake::secret_handshake(role as, node_id self, std::string secret,
                                   const wire::random_bytes& fresh)
    : role_(as),
      secret_(std::move(secret)),
      step_(as == role::consumer ? step::challenge : step::hello) {
    if (as == role::consumer) {
        consumer_ = self;
        consumer_random_ = fresh;
    } else {
        owner_ = self;
        opening_ = fresh;
        commitment_ = commitment();
    }
}

std::optional<wire::secret_message> secret_handshake::begin() const {
    if (role_ == role::owner) return std::nullopt;
    return wire::secret_hello{.random = consumer_random_};
}

result<std::optional<wire::secret_message>> secret_handshake::next(const wire::secret_message& m) {
    // Failed unless what is due has come and proves what it must.
    const auto due = std::exchange(step_, step::failed);
    if (const auto* hello = std::get_if<wire::secret_hello>(&m); hello && due == step::hello)
        return std::optional(challenge(*hello));
    if (const auto* c = std::get_if<wire::secret_challenge>(&m); c && due == step::challenge)
        return std::optional(prove(*c));
    if (const auto* proof = std::get_if<wire::secret_proof>(&m); proof && due == step::proof)
        return check(*proof);
    if (const auto* answer = std::get_if<wire::secret_answer>(&m); answer && due == step::answer)
        return check(*answer);
    return failure{connection_errc::protocol, "a message of the proof out of turn"};
}

wire::secret_message secret_handshake::challenge(const wire::secret_hello& m) {
    consumer_random_ = m.random;
    step_ = step::proof;
    return wire::secret_challenge{commitment_};
}

wire::secret_message secret_handshake::prove(const wire::secret_challenge& m) {
    commitment_ = m.commitment;
    step_ = step::answer;
    return wire::secret_proof{consumer_, proof_of(role::consumer)};
}

result<std::optional<wire::secret_message>> secret_handshake::check(const wire::secret_proof& m) {
    consumer_ = m.consumer;
    if (!equal_in_constant_time(m.proof, proof_of(role::consumer)))
        return failure{connection_errc::authentication, "it does not know this node's secret"};
    step_ = step::proven;
    return std::optional<wire::secret_message>(
        wire::secret_answer{owner_, opening_, proof_of(role::owner)});
}

result<std::optional<wire::secret_message>> secret_handshake::check(const wire::secret_answer& m) {
    owner_ = m.owner;
    opening_ = m.opening;
    const bool knows = equal_in_constant_time(m.proof, proof_of(role::owner));
    if (!equal_in_constant_time(commitment_, commitment()) || !knows)
        return failure{connection_errc::authentication, "it does not know this node's secret"};
    step_ = step::proven;
    return std::optional<wire::secret_message>();
}

wire::random_bytes secret_handshake::commitment() const {
    byte_writer w(64);
    w.text(id_label);
    w.bytes(opening_);
    w.u64(owner_.value);
    return sha256(std::move(w).take());
}

wire::proof_bytes secret_handshake::proof_of(role who) const {
    byte_writer w(96);
    w.text(who == role::consumer ? consumer_label : owner_label);
    w.u64(consumer_.value);
    w.bytes(consumer_random_);
    w.bytes(commitment_);
    return hmac_sha256(std::as_bytes(std::span(secret_)), std::move(w).take());
}

}  // namespace rvget::engine
