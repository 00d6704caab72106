#include <rvget/error.hpp>

#include <boost/system/errc.hpp>
#include <boost/system/system_error.hpp>
#include <boost/throw_exception.hpp>

namespace rvget {
namespace {

namespace errc = boost::system::errc;

std::string_view text(request_errc code) noexcept {
    switch (code) {
        case request_errc::invalid_argument:
            return "invalid argument";
        case request_errc::malformed_handle:
            return "malformed handle or url";
        case request_errc::not_found:
            return "the owner has no such slot";
        case request_errc::out_of_range:
            return "the range begins past the end of the slot";
        case request_errc::not_pinned:
            return "the slot is not in registered memory";
        case request_errc::path_not_available:
            return "rdma is required and cannot run";
        case request_errc::busy:
            return "the owner is out of budget";
        case request_errc::buffer_busy:
            return "a nic may still write the destination";
        case request_errc::cancelled:
            return "cancelled";
        case request_errc::deadline_exceeded:
            return "deadline exceeded";
        case request_errc::not_supported:
            return "not supported by the device or the build";
        case request_errc::refused:
            return "refused by the owner";
        case request_errc::checksum:
            return "the bytes have another checksum than the owner's";
        case request_errc::io:
            return "input or output of the caller failed";
    }
    return "unknown request error";
}

std::string_view text(lease_errc code) noexcept {
    switch (code) {
        case lease_errc::lost:
            return "the lease ended before the bytes were here";
        case lease_errc::unknown:
            return "the owner does not know the lease";
        case lease_errc::expired:
            return "the lease is past its end";
    }
    return "unknown lease error";
}

std::string_view text(connection_errc code) noexcept {
    switch (code) {
        case connection_errc::connect_failed:
            return "cannot connect to the peer";
        case connection_errc::lost:
            return "the control connection ended";
        case connection_errc::protocol:
            return "the peer broke the protocol";
        case connection_errc::version_mismatch:
            return "no protocol version in common";
        case connection_errc::wrong_owner:
            return "the address is served by another owner";
        case connection_errc::queue_pair:
            return "the queue pair went to error";
        case connection_errc::authentication:
            return "authentication failed";
    }
    return "unknown connection error";
}

std::string_view text(device_errc code) noexcept {
    switch (code) {
        case device_errc::none:
            return "no usable rdma device";
        case device_errc::open_failed:
            return "the rdma device cannot be opened";
        case device_errc::registration:
            return "memory registration failed";
        case device_errc::resource:
            return "the rdma device refused a resource";
        case device_errc::query_failed:
            return "the rdma device does not answer a query";
        case device_errc::transition_failed:
            return "a queue pair refused a state change";
        case device_errc::post_failed:
            return "a work request was not accepted";
    }
    return "unknown device error";
}

std::string_view text(node_errc code) noexcept {
    switch (code) {
        case node_errc::stopped:
            return "the node is shut down";
        case node_errc::out_of_memory:
            return "out of memory";
        case node_errc::internal:
            return "an invariant of the library did not hold";
    }
    return "unknown node error";
}

// The generic conditions let a caller compare with std-like codes, whoever reports them.
int generic(request_errc code) noexcept {
    switch (code) {
        case request_errc::invalid_argument:
        case request_errc::malformed_handle:
            return errc::invalid_argument;
        case request_errc::cancelled:
            return errc::operation_canceled;
        case request_errc::deadline_exceeded:
            return errc::timed_out;
        case request_errc::not_supported:
            return errc::not_supported;
        default:
            return 0;
    }
}
int generic(node_errc code) noexcept {
    return code == node_errc::out_of_memory ? errc::not_enough_memory : 0;
}
template <class Enum>
int generic(Enum) noexcept {
    return 0;
}

// Boost gives error_category a protected destructor that is not virtual, so that categories need no
// destruction; nobody deletes one through its base.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wnon-virtual-dtor"

/// The id makes copies of the category equal, where two shared objects each hold the library.
template <class Enum, boost::ulong_long_type Id>
class category final : public boost::system::error_category {
public:
    explicit constexpr category(const char* name) noexcept : error_category(Id), name_(name) {}

    const char* name() const noexcept override { return name_; }
    std::string message(int value) const override {
        return std::string(text(static_cast<Enum>(value)));
    }
    boost::system::error_condition default_error_condition(int value) const noexcept override {
        if (const int condition = generic(static_cast<Enum>(value)); condition != 0) {
            return {condition, boost::system::generic_category()};
        }
        return {value, *this};
    }

private:
    const char* name_;
};

#pragma GCC diagnostic pop

constexpr category<request_errc, 0x7276676574000001> request_instance("rvget.request");
constexpr category<lease_errc, 0x7276676574000002> lease_instance("rvget.lease");
constexpr category<connection_errc, 0x7276676574000003> connection_instance("rvget.connection");
constexpr category<device_errc, 0x7276676574000004> device_instance("rvget.device");
constexpr category<node_errc, 0x7276676574000005> node_instance("rvget.node");

}  // namespace

const boost::system::error_category& request_category() noexcept { return request_instance; }
const boost::system::error_category& lease_category() noexcept { return lease_instance; }
const boost::system::error_category& connection_category() noexcept { return connection_instance; }
const boost::system::error_category& device_category() noexcept { return device_instance; }
const boost::system::error_category& node_category() noexcept { return node_instance; }

error_code make_error_code(request_errc code) noexcept {
    return {static_cast<int>(code), request_instance};
}
error_code make_error_code(lease_errc code) noexcept {
    return {static_cast<int>(code), lease_instance};
}
error_code make_error_code(connection_errc code) noexcept {
    return {static_cast<int>(code), connection_instance};
}
error_code make_error_code(device_errc code) noexcept {
    return {static_cast<int>(code), device_instance};
}
error_code make_error_code(node_errc code) noexcept {
    return {static_cast<int>(code), node_instance};
}

std::string failure::message() const {
    std::string out = code.message();
    if (!detail.empty()) {
        out.append(": ").append(detail);
    }
    return out;
}

void throw_exception_from_error(const failure& f, const boost::source_location& where) {
    if (f.detail.empty()) {
        boost::throw_exception(boost::system::system_error(f.code), where);
    }
    boost::throw_exception(boost::system::system_error(f.code, f.detail), where);
}

}  // namespace rvget
