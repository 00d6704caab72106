#pragma once
// One control connection as the engine sees it: whole frames in, whole frames out, in order.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rvget/error.hpp>
#include <rvget/handle.hpp>

#include "base/function.hpp"
#include "base/time.hpp"

namespace rvget::engine {

/// Bytes that ride behind a frame's head without being copied; `keep` holds them until written.
struct frame_payload {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> keep;
};

/// What the link tells its user, always on the strand.
class control_link_events {
public:
    /// A frame arrived whole: its head (wire::frame) and, unless `payload_destination` took them
    /// elsewhere, its payload bytes. The spans are valid during the call only.
    virtual void on_frame(std::span<const std::byte> head, std::span<const std::byte> payload) = 0;
    /// A frame with `payload_bytes` of payload announced itself by its head. Return where to put
    /// the payload (exactly that size), or an empty span for a buffer of the link's own.
    virtual std::span<std::byte> payload_destination(std::span<const std::byte> head,
                                                     std::size_t payload_bytes) = 0;
    /// The connection ended; nothing arrives after. Called once, never from within send().
    virtual void on_closed(const failure& why) = 0;

    virtual ~control_link_events() = default;
};

/// The sending half. All calls on the strand.
class control_link {
public:
    virtual ~control_link() = default;
    /// Begins to read. `events` is kept alive until on_closed returned. Called once.
    virtual void start(std::shared_ptr<control_link_events> events) = 0;
    /// Queues one frame; `head` is copied (moved), the payload is not.
    virtual void send(std::vector<std::byte> head, frame_payload payload = {}) = 0;
    /// Nothing is written into `destination` (a span that payload_destination returned) from now
    /// on: a payload that is half way in goes on into a buffer of the link's own, and on_frame
    /// gets an empty payload for it.
    virtual void forget_destination(std::span<std::byte> destination) = 0;
    /// Bytes queued and not yet handed to the kernel.
    [[nodiscard]] virtual std::size_t queued_bytes() const = 0;
    /// Ends the connection soon, after writing what is queued if `flush`; on_closed follows.
    virtual void close(bool flush = false) = 0;
    /// Whom we talk to, for people: "10.0.0.2:7471".
    [[nodiscard]] virtual std::string peer_name() const = 0;
    /// Numeric address of the peer and of our own end, for the choice of a route.
    [[nodiscard]] virtual std::string peer_address() const = 0;
    [[nodiscard]] virtual std::string own_address() const = 0;
    /// The id that the peer has proved to have, where the connection is one that asks for proof.
    [[nodiscard]] virtual std::optional<node_id> proven_peer() const { return std::nullopt; }
};

/// Makes control connections. All calls and callbacks on the strand.
class control_network {
public:
    virtual ~control_network() = default;
    using connected = unique_function<void(result<std::shared_ptr<control_link>>)>;
    using accepted = unique_function<void(std::shared_ptr<control_link>)>;

    /// Resolves and connects; every address of the name is tried until `deadline`. The failure
    /// names the address and the errno text of the last attempt.
    virtual void connect(const endpoint_address& to, time_point deadline, connected done) = 0;
    /// Listens until stop_listening(); port 0 takes a free one. Returns the address in use.
    virtual result<endpoint_address> listen(const endpoint_address& at, accepted on_accept) = 0;
    virtual void stop_listening() = 0;
};

}  // namespace rvget::engine
