#include "route_pins.hpp"

#include <charconv>

#include "route/facts.hpp"

namespace rvget::tools {

void add_route_pins(command_line& line) {
    line.add("device", "NAME", "the RDMA device to use; default: the first usable one");
    line.add("gid", "ADDRESS", "insist on this GID; default: the best towards the peer");
    line.add("gid-index", "N", "insist on this place of the GID table; places move");
}

result<route_pins> read_route_pins(const command_line& line) {
    route_pins pins{.device = line.text("device").value_or(""),
                    .gid = line.text("gid").value_or(""),
                    .gid_index = {}};
    if (line.has("gid") && !route::parse_gid(pins.gid)) {
        return failure{request_errc::invalid_argument,
                       "--gid '" + pins.gid + "' is no address; copy one of `rvget list`"};
    }
    if (const auto text = line.text("gid-index")) {
        std::uint32_t index = 0;
        const auto* const end = text->data() + text->size();
        if (std::from_chars(text->data(), end, index).ptr != end || text->empty()) {
            return failure{
                request_errc::invalid_argument,
                "--gid-index '" + *text + "' is no place of a GID table; give a number, such as 1"};
        }
        pins.gid_index = index;
    }
    return pins;
}

}  // namespace rvget::tools
