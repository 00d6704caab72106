#pragma once
// Errors are values. An error code says what went wrong in one of five categories, grouped by what
// must be rebuilt before a retry can help; `failure` adds the sentence for people.

#include <string>
#include <type_traits>
#include <utility>

#include <boost/system/error_code.hpp>
#include <boost/system/result.hpp>

namespace rvget {

using boost::system::error_code;

/// The request itself: nothing needs rebuilding, the same call will fail again.
enum class request_errc {
    invalid_argument = 1,  ///< a precondition of the call does not hold
    malformed_handle,      ///< the text is not a handle or an rvget:// URL
    not_found,             ///< the owner has no such slot (never staged, or freed)
    out_of_range,          ///< the range begins past the end of the slot
    not_pinned,            ///< policy `require` and the slot is in plain memory
    path_not_available,    ///< policy `require` and RDMA cannot run; the detail names the reason
    busy,                  ///< the owner is out of budget; retry after the time in the detail
    buffer_busy,           ///< a NIC may still write the destination; await its `quiet`
    cancelled,             ///< the caller cancelled
    deadline_exceeded,     ///< the call's deadline passed
    not_supported,         ///< the device or the build cannot do this
    refused,               ///< the owner refused for a reason given in the detail
    io,                    ///< a file or stream of the caller failed
    checksum,              ///< the bytes that came, twice, are not those of the owner
};

/// The lease of this get: a new acquire helps.
enum class lease_errc {
    lost = 1,  ///< the lease ended, or its key was revoked, before the bytes were here
    unknown,   ///< the owner does not know the lease (ended, or never granted)
    expired,   ///< the lease is past its end; a renewal comes too late
};

/// The control connection or the queue pair to one peer: it is re-made by the library.
enum class connection_errc {
    connect_failed = 1,  ///< the peer's address refuses or does not answer
    lost,                ///< the control connection ended while a request was pending
    protocol,            ///< the peer sent what the protocol does not allow
    version_mismatch,    ///< no protocol version in common
    wrong_owner,         ///< the address is served by another owner than the handle's
    queue_pair,          ///< the queue pair went to error; the detail names the status
    authentication,      ///< the peer did not prove who it is, or did not accept this end's proof
};

/// The RDMA device: reopen it or choose another.
enum class device_errc {
    none = 1,           ///< no usable device
    open_failed,        ///< the device exists and cannot be opened
    registration,       ///< memory registration failed; the detail says why (memlock, say)
    resource,           ///< a queue pair, completion queue or window could not be made
    query_failed,       ///< the device does not answer a query
    transition_failed,  ///< a queue pair refused a state change
    post_failed,        ///< a work request was not accepted
};

/// The node: nothing on it works any more, or not yet.
enum class node_errc {
    stopped = 1,    ///< shut down, or being shut down
    out_of_memory,  ///< plain memory could not be had
    internal,       ///< an invariant of the library did not hold; please report it
};

const boost::system::error_category& request_category() noexcept;
const boost::system::error_category& lease_category() noexcept;
const boost::system::error_category& connection_category() noexcept;
const boost::system::error_category& device_category() noexcept;
const boost::system::error_category& node_category() noexcept;

error_code make_error_code(request_errc code) noexcept;
error_code make_error_code(lease_errc code) noexcept;
error_code make_error_code(connection_errc code) noexcept;
error_code make_error_code(device_errc code) noexcept;
error_code make_error_code(node_errc code) noexcept;

}  // namespace rvget

namespace boost::system {
template <>
struct is_error_code_enum<rvget::request_errc> : std::true_type {};
template <>
struct is_error_code_enum<rvget::lease_errc> : std::true_type {};
template <>
struct is_error_code_enum<rvget::connection_errc> : std::true_type {};
template <>
struct is_error_code_enum<rvget::device_errc> : std::true_type {};
template <>
struct is_error_code_enum<rvget::node_errc> : std::true_type {};
}  // namespace boost::system

namespace rvget {

/// An error code and the sentence that names the thing, the cause and the next step.
struct failure {
    error_code code;
    std::string detail;

    failure() = default;
    failure(error_code c) : code(c) {}  // NOLINT
    failure(error_code c, std::string d) : code(c), detail(std::move(d)) {}
    template <class Enum>
    requires boost::system::is_error_code_enum<Enum>::value failure(Enum e, std::string d = {})
        : code(make_error_code(e)), detail(std::move(d)) {}  // NOLINT

    /// "category message: detail", for a log line or a terminal.
    [[nodiscard]] std::string message() const;
};

/// Called by `result::value()` on an error: throws boost::system::system_error with the detail.
[[noreturn]] void throw_exception_from_error(const failure& f, const boost::source_location& where);

/// A value or a failure.
template <class T>
using result = boost::system::result<T, failure>;

}  // namespace rvget
