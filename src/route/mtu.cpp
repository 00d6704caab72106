#include "route/mtu.hpp"

#include <algorithm>
#include <array>

namespace rvget::route {

namespace {

constexpr std::array<std::uint32_t, 5> steps = {4096, 2048, 1024, 512, 256};

// iboe_get_mtu() of the kernel, which NIC drivers use, reserves GRH, UDP, BTH, the longest extended
// headers and ICRC (96 bytes); eth_mtu_int_to_enum() of rxe reserves RXE_MAX_HDR_LENGTH (80).
constexpr std::uint32_t reserved_bytes(std::string_view driver) noexcept {
    return driver == "rxe" ? 80 : 96;
}

}  // namespace

std::uint32_t path_mtu_for_netdev(std::string_view driver, std::uint32_t netdev_mtu) noexcept {
    const auto reserved = reserved_bytes(driver);
    for (const auto step : steps) {
        if (netdev_mtu >= step + reserved) return step;
    }
    return steps.back();
}

std::uint32_t netdev_mtu_for_path(std::string_view driver, std::uint32_t path_mtu) noexcept {
    if (std::find(steps.begin(), steps.end(), path_mtu) == steps.end()) return 0;
    return path_mtu + reserved_bytes(driver);
}

std::uint32_t common_path_mtu(std::uint32_t ours, std::uint32_t theirs) noexcept {
    const auto smaller = std::min(ours, theirs);
    for (const auto step : steps) {
        if (smaller >= step) return step;
    }
    return 0;
}

}  // namespace rvget::route
