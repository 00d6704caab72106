#include "wire/secret_messages.hpp"

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "base/bytes.hpp"

namespace rvget::wire {
namespace {

// The type's byte is the alternative's index plus this: far from those of wire/frames.hpp.
constexpr std::uint8_t first_type = 64;

struct encoder {
    byte_writer& out;
    void number(std::uint8_t v) const { out.u8(v); }
    void id(node_id v) const { out.u64(v.value); }
    void array(std::span<const std::byte> v) const { out.bytes(v); }
};

struct decoder {
    byte_reader& in;
    void number(std::uint8_t& v) const { v = in.u8(); }
    void id(node_id& v) const { v.value = in.u64(); }
    void array(std::span<std::byte> v) const { std::ranges::copy(in.bytes(v.size()), v.begin()); }
};

// Each message's fields, once for both directions.
template <class Codec, class M>
void fields(const Codec& c, M& m) {
    using message = std::remove_const_t<M>;
    if constexpr (std::is_same_v<message, secret_hello>) {
        c.number(m.version);
        c.array(m.random);
    } else if constexpr (std::is_same_v<message, secret_challenge>) {
        c.array(m.commitment);
    } else if constexpr (std::is_same_v<message, secret_proof>) {
        c.id(m.consumer);
        c.array(m.proof);
    } else {
        c.id(m.owner);
        c.array(m.opening);
        c.array(m.proof);
    }
}

secret_message message_of_type(std::uint8_t type) {
    switch (type - first_type) {
        case 0:
            return secret_hello{};
        case 1:
            return secret_challenge{};
        case 2:
            return secret_proof{};
        default:
            return secret_answer{};
    }
}

}  // namespace

std::vector<std::byte> encode(const secret_message& m) {
    byte_writer out(96);
    out.u8(static_cast<std::uint8_t>(first_type + m.index()));
    out.u8(0);
    out.u64(0);  // the request id: nothing is asked
    std::visit([&](const auto& body) { fields(encoder{out}, body); }, m);
    return std::move(out).take();
}

result<secret_message> decode_secret_message(std::span<const std::byte> head) {
    byte_reader in(head);
    const auto type = in.u8();
    if (type < first_type || type >= first_type + std::variant_size_v<secret_message>) {
        in.fail_at(0, "type " + std::to_string(type) + " is no proof of a secret");
    }
    if (in.ok() && in.u8() != 0) in.fail_at(1, "a byte that must be 0");
    if (in.ok() && in.u64() != 0) in.fail_at(2, "a request id where nothing is asked");
    auto m = message_of_type(type);
    if (in.ok()) std::visit([&](auto& body) { fields(decoder{in}, body); }, m);
    if (const auto* hello = std::get_if<secret_hello>(&m);
        hello != nullptr && in.ok() && hello->version != secret_version) {
        in.fail_at(10, "version " + std::to_string(hello->version) + " of the proof is not known");
    }
    in.expect_end();
    if (!in.ok()) return failure{connection_errc::protocol, in.error()};
    return m;
}

}  // namespace rvget::wire
