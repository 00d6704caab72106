#include "exit_status.hpp"

namespace rvget::tools {
namespace {

exit_status of_request(request_errc code) noexcept {
    switch (code) {
        case request_errc::invalid_argument:
        case request_errc::malformed_handle:
            return exit_status::usage;
        case request_errc::not_found:
            return exit_status::not_found;
        case request_errc::out_of_range:
            return exit_status::out_of_range;
        case request_errc::not_pinned:
        case request_errc::path_not_available:
            return exit_status::path_not_available;
        case request_errc::busy:
        case request_errc::refused:
            return exit_status::refused;
        case request_errc::deadline_exceeded:
            return exit_status::deadline;
        case request_errc::io:
            return exit_status::io;
        case request_errc::checksum:
        case request_errc::buffer_busy:
        case request_errc::cancelled:
        case request_errc::not_supported:
            break;
    }
    return exit_status::other;
}

}  // namespace

std::string_view to_string(exit_status s) noexcept {
    switch (s) {
        case exit_status::ok:
            return "ok";
        case exit_status::other:
            return "other";
        case exit_status::usage:
        case exit_status::diagnostic_usage:
            return "usage";
        case exit_status::not_found:
            return "not_found";
        case exit_status::refused:
            return "refused";
        case exit_status::path_not_available:
            return "path_not_available";
        case exit_status::io:
            return "io";
        case exit_status::connection:
            return "connection";
        case exit_status::deadline:
            return "deadline";
        case exit_status::out_of_range:
            return "out_of_range";
        case exit_status::authentication:
            return "authentication";
    }
    return "signal";
}

exit_status status_of(const error_code& code, path_policy policy) noexcept {
    if (!code) {
        return exit_status::ok;
    }
    const bool of_path =
        code.category() == device_category() || code == connection_errc::queue_pair;
    if (of_path && policy == path_policy::require) {
        return exit_status::path_not_available;
    }
    if (code.category() == request_category()) {
        return of_request(static_cast<request_errc>(code.value()));
    }
    if (code == connection_errc::authentication) {
        return exit_status::authentication;
    }
    if (code == connection_errc::wrong_owner) {
        return exit_status::not_found;
    }
    if (code.category() == connection_category() || code.category() == lease_category()) {
        return exit_status::connection;
    }
    if (code.category() == boost::system::system_category() ||
        code.category() == boost::system::generic_category()) {
        return exit_status::io;
    }
    return exit_status::other;
}

std::string_view exit_status_help() noexcept {
    return "Exit status:\n"
           "  0  done\n"
           "  1  another error\n"
           "  2  usage, a malformed URL among it\n"
           "  3  not found: no such slot, or another owner is at the address\n"
           "  4  refused: the owner is busy or shutting down\n"
           "  5  RDMA was required and is not available\n"
           "  6  I/O: a local file, stream or listening address failed\n"
           "  7  the peer does not answer, or the connection was lost\n"
           "  8  the deadline passed\n"
           "  9  the range is not inside the data\n"
           "  10 authentication failed: the peer did not prove who it is, or refused this proof\n"
           "  129, 130, 131, 143  ended by SIGHUP, SIGINT, SIGQUIT, SIGTERM, after cleaning up\n";
}

}  // namespace rvget::tools
