#pragma once
// Control frames: what travels on the control connection. Bytes in, values out.
//
// On the wire a frame is a prefix of 8 bytes (head length, payload length; both 32 bits, little
// endian), the head, and the payload. The payload is raw staged bytes (chunk, inline answer) and is
// never looked at here. The head is: type (1 byte), a zero byte, the request id (8 bytes), the
// type's fixed fields, then optional fields as (tag 1 byte, length 2 bytes, value). An unknown tag
// with its top bit set may be skipped; any other unknown tag is refused. Every byte is accounted
// for: a head that is too short, has bytes left over, or repeats a tag is refused. Each value has
// one form only (tags grow; a field that would say its default is left out), so that what decodes
// encodes to the same bytes again, skipped tags aside. docs/wire.md has the tables.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <rvget/error.hpp>
#include <rvget/handle.hpp>
#include <rvget/path.hpp>

#include "wire/connect_data.hpp"
#include "wire/descriptor.hpp"
#include "wire/queue_pair_facts.hpp"

namespace rvget::wire {

inline constexpr std::uint16_t protocol_version = 2;         ///< newest spoken
inline constexpr std::uint16_t protocol_version_oldest = 1;  ///< oldest spoken
/// From here on offers, lanes and descriptors are what this end knows; a pair that speaks an older
/// version moves bytes in chunks and inline answers.
inline constexpr std::uint16_t protocol_version_rdma = 2;
inline constexpr std::size_t prefix_bytes = 8;
inline constexpr std::size_t max_head_bytes = 64 * 1024;
inline constexpr std::size_t max_payload_bytes = 16 * 1024 * 1024;
inline constexpr std::size_t max_leases = 8000;  ///< in one acquire or detach
inline constexpr std::size_t max_text_bytes = 512;

// Members of class type say `{}` so that a designated initialiser may leave them out
// (-Wmissing-field-initializers).

struct frame_prefix {
    std::uint32_t head_bytes = 0;
    std::uint32_t payload_bytes = 0;
};
std::array<std::byte, prefix_bytes> encode_prefix(frame_prefix p);
/// Refuses lengths beyond the limits above and an empty head.
result<frame_prefix> decode_prefix(std::span<const std::byte, prefix_bytes> bytes);

/// First frame in both directions. `id` 0. Both then speak `common_version`.
struct hello {
    std::uint16_t version_oldest = protocol_version_oldest;
    std::uint16_t version_newest = protocol_version;
    node_id node;
    friend bool operator==(const hello&, const hello&) = default;
};

/// The version that this end speaks with whoever sent `theirs`; none where there is none in common.
[[nodiscard]] std::optional<std::uint16_t> common_version(const hello& theirs) noexcept;

/// Bits of lane_offer::backends: Reliable Connection queue pairs, wired up by an exchange of both
/// ends' facts over this connection, or by RDMA-CM. An offer has one.
inline constexpr std::uint16_t backend_exchange = 1;
inline constexpr std::uint16_t backend_cm = 2;

/// The consumer can READ: its end of a lane. `facts` travel until the owner's own were received.
struct lane_offer {
    std::uint32_t generation = 0;  ///< of the lane, chosen by the consumer, growing, never 0
    std::uint16_t backends = backend_exchange;
    std::optional<queue_pair_facts> facts{};
    friend bool operator==(const lane_offer&, const lane_offer&) = default;
};

inline constexpr std::uint64_t whole_length = ~std::uint64_t{0};

/// What both ends compute over the bytes of a range.
enum class checksum : std::uint8_t { none = 0, crc32c = 1 };

/// Asks for a lease on a range and for the way to get it.
struct acquire {
    std::uint64_t slot = 0;
    std::uint64_t offset = 0;
    std::uint64_t length = whole_length;  ///< clipped at the end of the slot
    std::uint32_t deadline_ms = 0;        ///< what is left of the call's deadline
    bool force = false;                   ///< policy `require`
    std::optional<lane_offer> offer{};
    reason no_offer_reason = reason::ok;    ///< why there is no offer
    std::vector<std::uint64_t> detaches{};  ///< leases that end with this message; max_leases
    rvget::wire::checksum checksum = checksum::none;  ///< an owner that does not know it gives none
    friend bool operator==(const acquire&, const acquire&) = default;
};

enum class answer : std::uint8_t {
    rdma = 0,
    inline_answer = 1,  ///< the payload is the range
    chunked = 2,
    not_found = 3,
    out_of_range = 4,
    not_pinned = 5,  ///< `force` on a slot in plain memory
    busy = 6,
    refused = 7,  ///< `force`, and RDMA cannot run for `why`
};

struct acquire_reply {
    rvget::wire::answer answer = answer::chunked;
    reason why = reason::ok;
    std::uint64_t slot_bytes = 0;
    std::uint64_t range_bytes = 0;
    std::uint64_t lease = 0;        ///< 0: none granted
    std::uint32_t duration_ms = 0;  ///< of the lease
    std::uint32_t retry_after_ms = 0;
    std::optional<std::vector<std::byte>> descriptor{};  ///< encoded, with answer rdma
    std::optional<std::uint32_t> lane_generation{};      ///< the lane that `lane_facts` is for
    std::optional<queue_pair_facts> lane_facts{};        ///< the owner's end, until first used
    std::string detail{};                   ///< for people; encode() cuts it to max_text_bytes
    std::optional<std::uint32_t> crc32c{};  ///< of the range, where asked for
    friend bool operator==(const acquire_reply&, const acquire_reply&) = default;
};

/// Ends leases: the promise that the consumer's NIC is done with them. No answer.
struct detach {
    std::vector<std::uint64_t> leases{};  ///< at most max_leases
    friend bool operator==(const detach&, const detach&) = default;
};

struct renew {
    std::uint64_t lease = 0;
    /// The lane that the lease was granted for has failed: asks for a key that is good on this one.
    std::optional<lane_offer> offer{};
    friend bool operator==(const renew&, const renew&) = default;
};
struct renew_reply {
    bool granted = false;
    std::uint32_t duration_ms = 0;
    std::optional<std::vector<std::byte>> descriptor{};  ///< fresh, where the key changed
    std::optional<std::uint32_t> lane_generation{};      ///< as in acquire_reply
    std::optional<queue_pair_facts> lane_facts{};
    friend bool operator==(const renew_reply&, const renew_reply&) = default;
};

/// Asks for part of a leased range; answered by one chunk with exactly that many payload bytes.
struct pull {
    std::uint64_t lease = 0;
    std::uint64_t offset = 0;  ///< from the start of the leased range
    std::uint32_t bytes = 0;   ///< at most max_payload_bytes
    friend bool operator==(const pull&, const pull&) = default;
};
enum class chunk_status : std::uint8_t { ok = 0, lease_unknown = 1, out_of_range = 2 };
struct chunk {
    chunk_status status = chunk_status::ok;
    friend bool operator==(const chunk&, const chunk&) = default;
};

struct metadata_request {
    std::uint64_t slot = 0;
    friend bool operator==(const metadata_request&, const metadata_request&) = default;
};
struct metadata_reply {
    bool found = false;
    std::uint64_t bytes = 0;
    std::uint32_t references = 0;
    std::uint32_t leases = 0;
    bool pinned = false;
    friend bool operator==(const metadata_reply&, const metadata_reply&) = default;
};

enum class reference_change : std::uint8_t { add = 0, release = 1 };
struct reference {
    std::uint64_t slot = 0;
    reference_change change = reference_change::add;
    friend bool operator==(const reference&, const reference&) = default;
};
struct reference_reply {
    bool found = false;
    std::uint32_t references = 0;  ///< after the change
    friend bool operator==(const reference_reply&, const reference_reply&) = default;
};

/// The owner's end of a lane is gone or going (fenced, in error, draining): post nothing more.
/// From the consumer: its end is in error, the owner may destroy its own.
struct lane_down {
    std::uint32_t generation = 0;
    reason why = reason::ok;
    friend bool operator==(const lane_down&, const lane_down&) = default;
};

/// The last word before a close, for the other side's log.
struct goodbye {
    std::string why{};  ///< encode() cuts it to max_text_bytes
    friend bool operator==(const goodbye&, const goodbye&) = default;
};

/// Where the owner awaits the lane's connection by RDMA-CM, and the word that is to be said there
/// (wire/connect_data.hpp): once, and within a few seconds.
struct connect_point {
    std::array<std::uint8_t, 16> address{};  ///< IPv6, or IPv4-mapped
    std::uint16_t port = 0;
    connect_nonce nonce{};
    friend bool operator==(const connect_point&, const connect_point&) = default;
};

/// Liveness probe and its echo. With an offer it asks for the owner's end of that lane, ahead of
/// any acquire, and the echo waits until that end is there, can be connected to, or has failed.
struct ping {
    std::optional<lane_offer> offer{};
    friend bool operator==(const ping&, const ping&) = default;
};
struct pong {
    std::optional<std::uint32_t>
        lane_generation{};                         ///< the lane that is there; none: there is none
    std::optional<queue_pair_facts> lane_facts{};  ///< as in acquire_reply
    reason why = reason::ok;                       ///< why there is none, where one was asked for
    std::string detail{};                          ///< as in acquire_reply
    std::optional<connect_point> connect_to{};     ///< of a lane that is offered by RDMA-CM
    friend bool operator==(const pong&, const pong&) = default;
};

using body = std::variant<hello, acquire, acquire_reply, detach, renew, renew_reply, pull, chunk,
                          metadata_request, metadata_reply, reference, reference_reply, lane_down,
                          goodbye, ping, pong>;

struct frame {
    std::uint64_t id = 0;  ///< replies carry their request's
    wire::body body;
    friend bool operator==(const frame&, const frame&) = default;
};

/// The head's bytes. Preconditions, else std::invalid_argument: vectors and numbers within the
/// limits above, enumerations of this header's values, queue pair facts that are possible.
std::vector<std::byte> encode(const frame& f);
/// `connection_errc::protocol` with what was wrong at which offset. Allocates no more than a small
/// multiple of the head's size, whatever the head says.
result<frame> decode_frame(std::span<const std::byte> head);

}  // namespace rvget::wire
