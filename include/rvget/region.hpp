#pragma once
// Memory of the caller's that the device knows: gets write it directly, and it is staged without a
// copy.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include <rvget/transfer.hpp>

namespace rvget {

/// How the memory of a region came back. Either way it is the caller's again.
enum class unregister_outcome : std::uint8_t {
    drained,    ///< what used it had ended
    timed_out,  ///< what still used it when the time was up was made to end: leases were revoked,
                ///< gets into it answered `cancelled`
};

/// Tells when a region's memory is the caller's again: when it is resolved. Copyable, any thread.
class unregistration : public quiet {
public:
    unregistration() = default;  ///< of no region: resolved from the start
    /// None until it is resolved.
    [[nodiscard]] std::optional<unregister_outcome> outcome() const noexcept;
    /// What register_owned() took; once, and not before it is resolved: else an empty buffer.
    [[nodiscard]] buffer take_buffer() const;

    class state;  ///< the library's side
    explicit unregistration(std::shared_ptr<state> s) noexcept;

private:
    std::shared_ptr<state> state_;
};

/// Registered memory of the caller's. A get_into whose destination lies in it needs no copy;
/// node::stage_region serves parts of it where they are. Its own key gives no remote side any
/// right. The caller keeps the memory mapped until unregister() is resolved.
/// Move-only; one thread at a time. Dropping it unregisters in the background, with a warning in
/// the log, and never blocks.
class region {
public:
    region();
    ~region();
    region(region&&) noexcept;
    region& operator=(region&&) noexcept;

    [[nodiscard]] std::span<std::byte> bytes() const noexcept;

    /// Gates new use at once: gets into the memory go over a bounce buffer, and slots that were
    /// staged in it are gone for all who do not hold a lease. Resolved when no NIC can touch the
    /// memory, no lease on it is active and it is deregistered. What has not ended after `timeout`
    /// (none: the node's default_deadline) is made to end, which takes a NIC's retry window more.
    /// Does not block. Later calls return the same, whatever their timeout.
    unregistration unregister(std::optional<std::chrono::milliseconds> timeout = {});

    struct impl;  ///< the library's side

private:
    friend class node;
    std::unique_ptr<impl> impl_;
};

}  // namespace rvget
