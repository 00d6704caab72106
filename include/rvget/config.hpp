#pragma once
// What can be set on a node. Plain values with safe defaults; validate() says what is wrong.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <rvget/error.hpp>
#include <rvget/handle.hpp>
#include <rvget/path.hpp>

namespace rvget {

/// What a lease hands a consumer, and so what its end can take away again.
enum class lease_key_choice : std::uint8_t {
    strongest,  ///< window, else exact, as the device proves able to do when the node starts
    window,     ///< a memory window a lease: the NIC refuses a READ after the lease, on any path
    exact,      ///< a registration a lease: the same at a higher price, on devices without windows
    fence,  ///< one key for all: for consumers that are trusted, because whoever has seen it can
            ///< READ staged memory for as long as the node lives, also through a new connection
};

/// TLS 1.3 on the control connection, with a certificate on both sides. Files are PEM and are read
/// when the node starts. See docs/security.md.
struct tls_options {
    std::string certificate_file;  ///< this node's, then those between it and the authority's
    std::string key_file;          ///< its private key, not encrypted
    std::string authority_file;    ///< whose certificates peers must have
    /// Names (DNS names or IP addresses) of which a peer's certificate must bear one, as a subject
    /// alternative name. For connections that this node makes, none means the host it connects to.
    std::vector<std::string> peers;

    [[nodiscard]] bool enabled() const noexcept {
        return !certificate_file.empty() || !key_file.empty() || !authority_file.empty();
    }
};

/// Who writes the rings of a ConnectX that a consumer's READs are posted to. Other devices do not
/// know the difference, and no choice is needed for a get to work.
enum class mlx5_choice : std::uint8_t {
    automatic,  ///< libibverbs, until the direct path has run on a ConnectX: it never has
    off,        ///< libibverbs
    verbs_qp,   ///< this library, on queue pairs that libibverbs made; libibverbs where that fails
    devx,       ///< this library, on queue pairs of its own making; not built yet: as verbs_qp
};

/// How a consumer wires a queue pair up with its owner's.
enum class wireup_choice : std::uint8_t {
    automatic,  ///< by exchange, and by RDMA-CM where that fails
    exchange,   ///< both ends tell each other over the control connection: one round trip, which
                ///< the first get's own is
    cm,  ///< by RDMA-CM, the connection manager of the kernel: some round trips more, which a
         ///< first get does not wait for beyond `wireup_wait`
};

/// When a consumer makes the two ends of the queue pair over which it READs from an owner.
enum class wireup_eagerness : std::uint8_t {
    lazy,      ///< at the first get that can use it
    prepared,  ///< its own end with the control connection, the owner's at the first get
    eager,     ///< both ends with the control connection, so that no get pays for them
};

struct node_options {
    /// Where to serve; none: this node only gets. Port 0 takes a free one.
    std::optional<endpoint_address> listen;

    /// What to do about RDMA where a call does not say.
    path_policy policy = path_policy::prefer;
    /// Switches RDMA off on this node, as owner and as consumer. `from_environment()` also sets it
    /// where RVGET_RDMA_DISABLE is 1, true, yes or on, in any case.
    bool rdma_disabled = false;
    /// Name of the RDMA device ("mlx5_0"); empty: the first one with a usable port.
    std::string device;
    /// Insists on this GID, an address of the device's netdev ("192.0.2.1", "fe80::1"), or on this
    /// place of the GID table, for those who must: places move, addresses do not. A pin never makes
    /// usable what is not. Empty, none: the best towards each peer (see node::explain).
    std::string gid{};
    std::optional<std::uint32_t> gid_index{};
    /// As consumer. `from_environment()` also sets it where RVGET_MLX5 is auto, off, verbs_qp or
    /// devx. What came of it is in node::rdma().
    mlx5_choice mlx5 = mlx5_choice::automatic;

    /// As consumer; an owner takes both. `from_environment()` also sets it where RVGET_WIREUP is
    /// auto, exchange or cm.
    wireup_choice wireup = wireup_choice::automatic;
    /// As consumer. node::async_warm() brings up both ends of one connection, whatever this says.
    wireup_eagerness eagerness = wireup_eagerness::prepared;
    /// Queue pairs made ahead of need, in the background, of each kind that the node uses: an
    /// owner's for new consumers, a consumer's for new owners. At most 64; 0: none.
    std::uint32_t spare_queue_pairs = 2;

    /// As owner: what keys leases have.
    lease_key_choice lease_keys = lease_key_choice::strongest;

    /// Ranges smaller than this are served in chunks although RDMA could run.
    std::size_t rdma_min_bytes = std::size_t{64} << 10;
    /// Ranges no larger than this ride inside the acquire reply. At most 64 KiB.
    std::size_t inline_max = std::size_t{4} << 10;

    /// How long a get may take where the call does not say.
    std::chrono::milliseconds default_deadline{30'000};
    /// How long a lease lives without renewal. At least 100 ms and four retry windows.
    std::chrono::milliseconds lease_timeout{30'000};
    /// How long an acquire waits for a new queue pair before it answers with chunks.
    std::chrono::milliseconds wireup_wait{50};
    /// How long the NIC retries an unanswered packet before it gives the queue pair up.
    std::chrono::milliseconds retry_window{500};
    /// How long a control connection may take to be established, greeting included.
    std::chrono::milliseconds handshake_timeout{5'000};
    /// How long a silent control connection may stay unproven before it counts as dead.
    std::chrono::milliseconds peer_timeout{5'000};

    /// Where it is not empty: known to every node that this one talks to, of at least 16 bytes,
    /// best 32 random ones. Both ends of a control connection prove that they know it before
    /// anything else is said, and who does not is told nothing. It encrypts nothing; see
    /// docs/security.md.
    std::string secret;
    /// Off while its files are empty. Together with a secret both are required.
    tls_options tls;

    /// Registered memory: first arena, growth limit, and the budget over all of it, whole pages:
    /// arenas, regions, and the registrations of leases with `exact` keys.
    std::size_t first_arena_bytes = std::size_t{64} << 20;
    std::size_t max_arena_bytes = std::size_t{1} << 30;
    std::size_t registered_budget_bytes = std::size_t{1} << 30;
    /// How much of it may be on loan for gets into memory that is not registered; more of them are
    /// pulled in chunks. None: all of it.
    std::optional<std::size_t> bounce_budget_bytes;
    /// An arena that nobody has used goes back to the system after one to two of these, as long as
    /// `warm_floor_bytes` of arenas stay. 0: never before the budget needs its bytes.
    std::chrono::milliseconds arena_idle_time{60'000};
    std::size_t warm_floor_bytes = std::size_t{64} << 20;

    /// READs outstanding on one queue pair; lowered to what both devices can do.
    std::uint8_t read_depth = 16;
    /// A large get is cut into READs of this size (and of the device's largest message).
    std::size_t read_piece_bytes = std::size_t{1} << 20;

    /// The chunked path: size of one chunk, and how many are asked for ahead.
    std::size_t chunk_bytes = std::size_t{512} << 10;
    std::uint32_t chunks_in_flight = 4;

    /// As owner: consumers connected at once, and leases active at once, before `busy`.
    std::size_t max_consumers = 4096;
    /// As owner: connections whose consumer has not yet proved itself and greeted. Beyond it the
    /// oldest of them is closed.
    std::size_t max_handshakes = 256;
    std::size_t max_leases = 65'536;
    /// As owner: bytes of chunks that wait to be written to their consumers, before `busy`.
    std::size_t chunk_budget_bytes = std::size_t{1} << 30;

    /// How long the reactor polls after the last completion before it sleeps; 0 where the process
    /// may use one CPU only.
    std::chrono::microseconds spin{20};
    /// Threads for calls that may block in the kernel (wire-up, registration).
    std::uint32_t worker_threads = 2;

    /// The defaults plus what the environment says, read now and never again.
    [[nodiscard]] static node_options from_environment();

    /// The first rule that does not hold, by name, with the value and the bound.
    [[nodiscard]] result<void> validate() const;
};

}  // namespace rvget
