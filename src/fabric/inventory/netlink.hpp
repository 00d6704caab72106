#pragma once
// One netlink request and its answers, for the few tables that have no files.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <rdma/rdma_netlink.h>

namespace rvget::fabric::inventory {

/// The type of a message to the kernel's table of RDMA devices.
constexpr std::uint16_t nldev(unsigned command) {
    return static_cast<std::uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command));
}

/// A message under construction: fixed header first, then attributes.
class netlink_request {
public:
    netlink_request(std::uint16_t type, std::uint16_t flags, std::span<const std::byte> header);
    netlink_request& add(std::uint16_t attribute, std::span<const std::byte> value);
    netlink_request& add_u32(std::uint16_t attribute, std::uint32_t value);
    netlink_request& add_text(std::uint16_t attribute, std::string_view value);

    /// Sends it over a socket of `protocol` and calls `message` with what follows the netlink
    /// header of each answer. False where the kernel refused or did not answer within a second.
    bool run(int protocol, const std::function<void(std::span<const std::byte>)>& message);

private:
    std::vector<std::byte> bytes_;
};

/// The value of an attribute within a run of attributes.
[[nodiscard]] std::optional<std::span<const std::byte>> netlink_attribute(
    std::span<const std::byte> attributes, std::uint16_t wanted);
/// Its value as a number; nullopt where it is absent or shorter.
[[nodiscard]] std::optional<std::uint32_t> netlink_u32(std::span<const std::byte> attributes,
                                                       std::uint16_t wanted);
[[nodiscard]] std::string_view netlink_text(std::span<const std::byte> attributes,
                                            std::uint16_t wanted);

}  // namespace rvget::fabric::inventory
