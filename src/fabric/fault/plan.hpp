#pragma once
// What a fault provider counts and what it does at which call. Shared between the test that scripts
// it and the decorators that consult it; every call may come from any thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "fabric/fabric.hpp"

namespace rvget::fabric::fault {

/// Every call of the seam that does work. One post of several READs is one call.
enum class call : std::uint8_t {
    list,
    open,
    refresh,
    register_memory,
    create_completion_queue,
    create_queue_pair,
    allocate_window,
    listen,
    connect,
    to_init,
    to_ready_to_receive,
    to_ready_to_send,
    to_error,
    query_state,
    post_reads,
    post_send,
    post_receive,
    post_marker,
    post_bind,
    post_invalidate,
    poll,
    arm,
    destroy_queue_pair,  ///< cannot fail; hooks only
    any,                 ///< in scripts: the Nth call of whatever kind. Never counted itself.
};
inline constexpr std::size_t call_kinds = static_cast<std::size_t>(call::any);
[[nodiscard]] std::string_view to_string(call kind) noexcept;

class plan {
public:
    using hook = std::function<void()>;
    using counts_by_kind = std::array<std::uint64_t, call_kinds>;

    /// The `nth` call (from 1, counted from the start) of `kind` fails with `with` instead of
    /// reaching the provider. A completion queue whose poll failed stays lost.
    void fail(call kind, std::uint64_t nth, failure with);
    /// Runs `f` on the calling thread just before or after the `nth` call of `kind`, with no lock
    /// held. A call that is made to fail still runs both.
    void before(call kind, std::uint64_t nth, hook f);
    void after(call kind, std::uint64_t nth, hook f);
    /// The `nth` READ posted completes with `status`: its queue pair is taken to error and what
    /// was posted behind it completes as flushed. From its post on, all requests of that queue
    /// pair are signalled. READs in flight on it must differ by id.
    void fail_read(std::uint64_t nth, completion_status status);
    /// The queue pair of the `nth` call of `kind`, which must be one of a queue pair, is taken to
    /// error just before it, as an error of its own would: nobody above is told.
    void break_queue_pair(call kind, std::uint64_t nth);
    /// The `nth` READ is posted with a key that nobody has: the peer's NIC itself refuses it.
    void refuse_read(std::uint64_t nth);

    [[nodiscard]] std::uint64_t count(call kind) const;  ///< `any`: of all kinds together
    [[nodiscard]] counts_by_kind counts() const;
    [[nodiscard]] std::uint64_t reads() const;  ///< READs posted, as fail_read counts them

    // --- For the decorators --------------------------------------------------------------------

    /// One call under way: counted, its script looked up.
    struct entry {
        std::vector<hook> before;
        std::vector<hook> after;
        std::optional<failure> error;
        bool breaks = false;  ///< the queue pair
    };
    [[nodiscard]] entry enter(call kind);
    /// Counts `n` READs; returns the index within them of the first that is to fail, and how.
    struct doomed_read {
        std::size_t index = 0;
        std::optional<completion_status> status;  ///< none: the peer's NIC refuses it
    };
    [[nodiscard]] std::optional<doomed_read> count_reads(std::size_t n);

private:
    enum class when : std::uint8_t { instead, before, after, broken };
    struct action {
        call kind = call::any;
        std::uint64_t nth = 0;
        when at = when::instead;
        failure error;
        hook run;
    };
    struct read_action {
        std::uint64_t nth = 0;
        std::optional<completion_status> status;
    };

    mutable std::mutex mutex_;
    counts_by_kind counts_{};
    std::uint64_t total_ = 0;
    std::uint64_t reads_ = 0;
    std::vector<action> actions_;
    std::vector<read_action> read_actions_;
};

}  // namespace rvget::fabric::fault
