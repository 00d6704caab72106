#pragma once
// What the one port of the device is.

#include <array>
#include <cstdint>

namespace softmlx5::front {

// A ConnectX-7 by its PCI numbers; libmlx5 looks no further.
inline constexpr const char* modalias = "pci:v000015B3d00001021sv000015B3sd00000040bc02sc07i00";
inline constexpr const char* node_guid_text = "0200:5eff:fe00:5301";

enum class gid_type : std::uint8_t { roce_v1 = 1, roce_v2 = 2 };

struct gid_entry {
    std::array<std::uint8_t, 16> bytes;
    gid_type type;
    const char* text;
};

/// A link-local and an IPv4 address (of the range for benchmarks, RFC 2544), each as both types.
inline constexpr std::array<gid_entry, 4> gid_table{{
    {{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0x5e, 0xff, 0xfe, 0, 0x53, 1},
     gid_type::roce_v1,
     "fe80:0000:0000:0000:0000:5eff:fe00:5301"},
    {{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0x5e, 0xff, 0xfe, 0, 0x53, 1},
     gid_type::roce_v2,
     "fe80:0000:0000:0000:0000:5eff:fe00:5301"},
    {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 18, 0, 1},
     gid_type::roce_v1,
     "0000:0000:0000:0000:0000:ffff:c612:0001"},
    {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 18, 0, 1},
     gid_type::roce_v2,
     "0000:0000:0000:0000:0000:ffff:c612:0001"},
}};

}  // namespace softmlx5::front
