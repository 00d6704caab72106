#pragma once
// Wire-up by RDMA-CM: the kernel's connection manager of the device tells each end what its queue
// pair must know of the other. The queue pair stays its user's, who makes it, moves it through its
// states with what the connection says, and so keeps what RDMA-CM alone does not do: both ends at
// the smaller path MTU, finite retries.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <rvget/error.hpp>

namespace rvget::fabric {

struct receive_parameters;

/// How the details of failures begin where the kernel offers no RDMA-CM to this process.
inline constexpr const char* cm_unavailable = "open /dev/infiniband/rdma_cm";

/// What one end tells the other.
struct connection_terms {
    std::uint32_t queue_pair_number = 0;
    std::uint8_t initiator_depth = 0;  ///< READs that it has outstanding
    std::uint8_t responder_depth = 0;  ///< READs of the peer that it answers at once
    /// At most 56 bytes from who connects (RDMA-CM's own header takes the rest of 92), 196 from who
    /// accepts.
    std::span<const std::byte> private_data;
};
inline constexpr std::size_t max_connect_data = 56;

/// Where to connect, as numeric addresses, link-local ones with their zone ("fe80::1%eth0").
struct connection_target {
    std::string own_address;
    std::string peer_address;
    std::uint16_t port = 0;
};

/// One end of a connection that is being made: a request that came in, or the answer to one's own.
/// Blocking calls: never on the reactor.
class connection {
public:
    /// Tells the peer where it is established; rejects a request that is not. May block in the
    /// kernel. Before the queue pair is destroyed.
    virtual ~connection() = default;

    /// What the peer said. RDMA-CM pads it with zeros.
    [[nodiscard]] virtual std::span<const std::byte> private_data() const noexcept = 0;
    /// What RDMA-CM settled for to_ready_to_receive(): the peer's number, PSN and address, and this
    /// end's place in the GID table. Path MTU and READ depth are the user's to lower. None where
    /// the kernel moves the queue pair by itself, as it does with iWARP.
    [[nodiscard]] virtual const std::optional<receive_parameters>& receive() const noexcept = 0;
    /// For to_ready_to_send().
    [[nodiscard]] virtual std::uint32_t starting_psn() const noexcept = 0;
    /// The last step, with the queue pair ready to send: accepts with `terms`, which who connected
    /// has told already, or tells who accepted that this end is ready. Nobody waits for the other:
    /// the last message of the handshake may be lost, and is repeated only after seconds. So who
    /// accepted must not send before it has heard from the peer.
    virtual result<void> establish(const connection_terms& terms) = 0;
    /// Refuses a request with a word for the peer, which its failure quotes.
    virtual void reject(std::span<const std::byte> private_data) noexcept = 0;
};

/// Takes requests to connect to one device, at one of its addresses.
class connection_listener {
public:
    virtual ~connection_listener() = default;
    /// Of the kernel's choice.
    [[nodiscard]] virtual std::uint16_t port() const noexcept = 0;
    /// The next request; null once stop() was called. Blocks until then. One thread at a time.
    virtual result<std::unique_ptr<connection>> next() = 0;
    /// Any thread.
    virtual void stop() noexcept = 0;
};

}  // namespace rvget::fabric
