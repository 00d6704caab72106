#pragma once
// The sentences of failures: errno by name, and what it means where it came from.

#include <string>
#include <string_view>

#include "fabric/fabric.hpp"

namespace rvget::fabric::verbs {

/// "ENODATA (61, No data available)". Verbs return errno values with either sign.
[[nodiscard]] std::string errno_text(int error);

/// The facts that a failed state change is explained with.
struct transition {
    std::string_view device;
    std::uint8_t port = 0;
    std::string_view target;  ///< "ready to receive", ...
    route::gid own;           ///< as the table has it now; zero where the entry is empty
    std::uint32_t gid_index = 0;
    route::gid peer;
    std::uint32_t path_mtu = 0;
};
/// Names device, port, both GIDs, the cause as far as errno tells, and the next step.
[[nodiscard]] failure transition_failure(const transition& t, int error);

/// Why memory could not be registered: names the memlock limit where that is the cause.
[[nodiscard]] failure registration_failure(std::string_view device, std::size_t bytes, int error);

/// Why a device could not be opened.
[[nodiscard]] failure open_failure(std::string_view device, int error);

}  // namespace rvget::fabric::verbs
