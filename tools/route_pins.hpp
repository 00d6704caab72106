#pragma once
// The options that insist on a device, a GID or its place in the table.

#include <cstdint>
#include <optional>
#include <string>

#include <rvget/config.hpp>
#include <rvget/error.hpp>

#include "command_line.hpp"

namespace rvget::tools {

struct route_pins {
    std::string device;
    std::string gid;
    std::optional<std::uint32_t> gid_index;

    void apply(node_options& o) const {
        o.device = device;
        o.gid = gid;
        o.gid_index = gid_index;
    }
};

/// --device, --gid and --gid-index.
void add_route_pins(command_line& line);
[[nodiscard]] result<route_pins> read_route_pins(const command_line& line);

}  // namespace rvget::tools
