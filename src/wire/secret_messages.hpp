#pragma once
// The four messages by which two nodes prove to each other that they know the same secret, each the
// head of a frame without payload: before hello, and only where a secret is set.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include <rvget/error.hpp>
#include <rvget/handle.hpp>

namespace rvget::wire {

using random_bytes = std::array<std::byte, 32>;
using proof_bytes = std::array<std::byte, 32>;

inline constexpr std::uint8_t secret_version = 1;

/// Consumer, first. A random number to prove something about; nothing of its own.
struct secret_hello {
    std::uint8_t version = secret_version;
    random_bytes random{};
    friend bool operator==(const secret_hello&, const secret_hello&) = default;
};
/// Owner: as random as its opening, and binds the owner to its id without showing it.
struct secret_challenge {
    random_bytes commitment{};
    friend bool operator==(const secret_challenge&, const secret_challenge&) = default;
};
/// Consumer: proves itself before it has seen anything of the owner.
struct secret_proof {
    node_id consumer;
    proof_bytes proof{};
    friend bool operator==(const secret_proof&, const secret_proof&) = default;
};
/// Owner, only to a consumer that has proved itself: what the commitment was made of, and its
/// proof.
struct secret_answer {
    node_id owner;
    random_bytes opening{};
    proof_bytes proof{};
    friend bool operator==(const secret_answer&, const secret_answer&) = default;
};

using secret_message = std::variant<secret_hello, secret_challenge, secret_proof, secret_answer>;

std::vector<std::byte> encode(const secret_message& m);
/// `connection_errc::protocol` with what was wrong at which offset. Allocates nothing but that.
result<secret_message> decode_secret_message(std::span<const std::byte> head);

}  // namespace rvget::wire
