#pragma once
// What the command's exit status says. Documented in rvget(1) and in --help: never renumber.

#include <rvget/error.hpp>
#include <rvget/path.hpp>

namespace rvget::tools {

enum class exit_status : int {
    ok = 0,
    other = 1,               ///< none of the below
    usage = 2,               ///< bad arguments, a malformed URL among them
    not_found = 3,           ///< the owner has no such slot, or another owner is at the address
    refused = 4,             ///< the owner refused: it is busy, or shutting down
    path_not_available = 5,  ///< policy `require`, and RDMA cannot run or failed
    io = 6,                  ///< a local file, stream or listening address failed
    connection = 7,          ///< the peer does not answer, broke off, or broke the protocol
    deadline = 8,            ///< --deadline, or a request's own deadline, passed
    out_of_range = 9,        ///< the range is not inside the slot
    authentication = 10,     ///< the peer did not prove who it is, or refused this end's proof
    diagnostic_usage = 64,   ///< bad arguments of doctor, check or list (sysexits(3))
    // 128 + n: signal n came; see report_signal()
};

/// "not_found", say; the `code` of an error object.
std::string_view to_string(exit_status s) noexcept;

/// The status that belongs to a failure of a get under `policy`.
exit_status status_of(const error_code& code, path_policy policy = path_policy::prefer) noexcept;

/// The lines of --help about it.
std::string_view exit_status_help() noexcept;

}  // namespace rvget::tools
