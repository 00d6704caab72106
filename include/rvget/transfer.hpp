#pragma once
// What a get takes and what it answers.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <rvget/detail/function.hpp>
#include <rvget/error.hpp>
#include <rvget/handle.hpp>
#include <rvget/path.hpp>

namespace rvget {

/// Per call; what is not set comes from the node's options. (`{}`, so that a designated initialiser
/// may leave members out under -Wmissing-field-initializers.)
struct get_options {
    std::uint64_t offset = 0;
    /// Clipped at the end of the slot. None: to the end.
    std::optional<std::uint64_t> length{};
    std::optional<std::chrono::milliseconds> deadline{};
    std::optional<path_policy> policy{};
    /// Both ends compute the CRC-32C of the range, and the get ends well only if they agree: after
    /// a mismatch it is tried once more, on the other path where there is one. Costs each end a
    /// pass over the bytes.
    bool checksum = false;
};

/// Per call that moves no bytes; what is not set comes from the node's options.
struct call_options {
    std::optional<std::chrono::milliseconds> deadline{};
};

/// What bringing up the connection to an owner came to. That RDMA cannot run is no error: gets take
/// another path then, and say the same reason.
struct warm_result {
    node_id owner;
    rvget::reason reason = rvget::reason::ok;  ///< `ok`: the next get's READ can be posted at once
    std::string detail;                        ///< the sentence for people, where it is not `ok`
};

/// Which way the bytes took, why, over what, and where the time went. Filled on errors as far as
/// the get came.
struct transfer_report {
    rvget::path path = rvget::path::chunked;
    /// `ok` with path rdma; else the consumer's own reason where it made no offer, else the
    /// owner's.
    rvget::reason reason = rvget::reason::ok;
    std::string detail;       ///< for people: what failed and what to do, where something did
    std::uint64_t bytes = 0;  ///< of the range
    std::uint64_t slot_bytes = 0;
    std::string device;  ///< path rdma: the consumer's device, port, GID and path MTU
    std::uint8_t port = 0;
    std::string gid;
    std::uint32_t path_mtu = 0;
    std::chrono::nanoseconds acquire{0};
    std::chrono::nanoseconds transfer{0};
    std::chrono::nanoseconds copy{0};
    /// What both ends computed. None where it was not asked for, or the owner does not know how.
    std::optional<std::uint32_t> crc32c{};
    std::uint64_t copied_bytes = 0;  ///< by the CPU between arrival and the caller's buffer
};

/// Owned bytes, uninitialised until filled. Move-only; freed or recycled on destruction.
class buffer {
public:
    buffer() = default;
    /// Takes over `keep`, which owns the memory of `bytes`.
    buffer(std::shared_ptr<void> keep, std::span<std::byte> bytes) noexcept
        : keep_(std::move(keep)), bytes_(bytes) {}
    buffer(buffer&&) noexcept = default;
    buffer& operator=(buffer&&) noexcept = default;

    [[nodiscard]] std::byte* data() const noexcept { return bytes_.data(); }
    [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }
    [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }

private:
    std::shared_ptr<void> keep_;
    std::span<std::byte> bytes_;
};

/// Bytes in the node's registered pool; the destination of get_pinned. Give it back soon: it counts
/// against the registered-bytes budget.
class pinned_buffer : public buffer {
public:
    using buffer::buffer;
    pinned_buffer() = default;
    pinned_buffer(std::shared_ptr<void> keep, std::span<std::byte> bytes, bool registered) noexcept
        : buffer(std::move(keep), bytes), registered_(registered) {}
    /// False where the pool had no room and plain memory took its place.
    [[nodiscard]] bool registered() const noexcept { return registered_; }

private:
    bool registered_ = false;
};

/// Tells when no NIC can write a destination any more. A get that was answered early (cancel,
/// deadline) leaves its destination parked until then. Copyable, any thread.
class quiet {
public:
    quiet() = default;  ///< resolved from the start
    [[nodiscard]] bool resolved() const noexcept;
    /// Runs `f` once it is resolved: at once where it is, else on the node's strand.
    void on_resolved(detail::unique_function<void()> f) const;
    /// Blocks the calling thread until resolved or `timeout`; true if resolved. Not on the node's
    /// own executor.
    [[nodiscard]] bool wait_for(std::chrono::milliseconds timeout) const;

    class state;  ///< the library's side
    explicit quiet(std::shared_ptr<state> s) noexcept : state_(std::move(s)) {}

private:
    std::shared_ptr<state> state_;
};

/// The answer to async_get.
struct get_result {
    buffer data;
    transfer_report report;
};
/// The answer to async_get_pinned.
struct get_pinned_result {
    pinned_buffer data;
    transfer_report report;
};
/// The answer to async_get_into, also where an error code comes with it: `quiet` then says when
/// the destination is the caller's again.
struct get_into_result {
    std::uint64_t bytes = 0;
    transfer_report report;
    rvget::quiet quiet;
};

/// What an owner says of a slot.
struct slot_metadata {
    std::uint64_t bytes = 0;
    std::uint32_t references = 0;
    std::uint32_t leases = 0;
    bool pinned = false;
};

}  // namespace rvget
