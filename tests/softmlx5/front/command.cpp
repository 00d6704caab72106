// Commands to the firmware, as DEVX passes them on: big-endian mailboxes.

#include <algorithm>
#include <cerrno>

#include "softmlx5/core/bytes.hpp"
#include "softmlx5/front/uverbs_file.hpp"

namespace softmlx5::front {

namespace {

constexpr std::uint16_t query_hca_cap = 0x100;

enum class status : std::uint8_t { good = 0x00, bad_operation = 0x02, bad_input_length = 0x50 };

int answer(std::span<std::byte> out, status s, std::uint32_t syndrome) {
    std::fill(out.begin(), out.end(), std::byte{0});
    out[0] = static_cast<std::byte>(s);
    store_be(&out[4], syndrome);
    return s == status::good ? 0 : EREMOTEIO;
}

}  // namespace

int run_command(device& nic, std::span<const std::byte> in, std::span<std::byte> out) {
    if (in.size() < 16 || out.size() < 16) return EINVAL;
    const auto operation = load16(in.data());
    if (operation != query_hca_cap) {
        nic.violations().report("command.operation",
                                "command " + std::to_string(operation) + " is not known");
        return answer(out, status::bad_operation, 0x1);
    }
    // The page is empty: no capability beyond what every device of the family has.
    return answer(out, status::good, 0);
}

}  // namespace softmlx5::front
