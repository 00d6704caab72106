#include "fabric/inventory/ethtool.hpp"

#include <array>
#include <cstring>
#include <string_view>

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rvget::fabric::inventory {

namespace {

class ethtool {
public:
    explicit ethtool(const std::string& netdev)
        : socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
        netdev.copy(request_.ifr_name, sizeof request_.ifr_name - 1);
    }
    ~ethtool() {
        if (socket_ >= 0) ::close(socket_);
    }
    ethtool(const ethtool&) = delete;
    ethtool& operator=(const ethtool&) = delete;

    bool ask(void* command) {
        request_.ifr_data = static_cast<char*>(command);
        return socket_ >= 0 && ::ioctl(socket_, SIOCETHTOOL, &request_) == 0;
    }

private:
    int socket_;
    ifreq request_{};
};

/// Some drivers have thousands of per-queue counters; these say something about a port.
bool of_interest(std::string_view name) {
    for (const std::string_view part :
         {"_phy", "prio", "pause", "pci_stall", "crc", "rx_out_of_buffer", "steer_missed", "cnp"}) {
        if (name.find(part) != std::string_view::npos) return true;
    }
    return false;
}

void add_counters(ethtool& tool, counters& into) {
    // The interface's structures end in arrays: laid out in plain buffers here.
    std::array<std::uint64_t, sizeof(ethtool_sset_info) / 8 + 1> sizes{};
    const ethtool_sset_info wanted{
        .cmd = ETHTOOL_GSSET_INFO, .reserved = 0, .sset_mask = 1ULL << ETH_SS_STATS};
    std::memcpy(sizes.data(), &wanted, sizeof wanted);
    if (!tool.ask(sizes.data())) return;
    std::uint32_t count = 0;
    std::memcpy(&count, reinterpret_cast<const char*>(sizes.data()) + sizeof wanted, sizeof count);
    constexpr std::uint32_t most = 16'384;
    if (count == 0 || count > most) return;
    std::vector<std::uint64_t> names((sizeof(ethtool_gstrings) + count * ETH_GSTRING_LEN) / 8 + 1);
    std::vector<std::uint64_t> values(sizeof(ethtool_stats) / 8 + count + 1);
    const ethtool_gstrings names_header{
        .cmd = ETHTOOL_GSTRINGS, .string_set = ETH_SS_STATS, .len = count};
    const ethtool_stats values_header{.cmd = ETHTOOL_GSTATS, .n_stats = count};
    std::memcpy(names.data(), &names_header, sizeof names_header);
    std::memcpy(values.data(), &values_header, sizeof values_header);
    if (!tool.ask(names.data()) || !tool.ask(values.data())) return;
    const char* name = reinterpret_cast<const char*>(names.data()) + sizeof names_header;
    for (std::uint32_t i = 0; i < count; ++i, name += ETH_GSTRING_LEN) {
        const std::string text(name, ::strnlen(name, ETH_GSTRING_LEN));
        if (of_interest(text)) into[text] = values[sizeof(ethtool_stats) / 8 + i];
    }
}

}  // namespace

void add_ethtool(netdev& n) {
    ethtool tool(n.name);
    ethtool_pauseparam pause{.cmd = ETHTOOL_GPAUSEPARAM};
    if (tool.ask(&pause)) {
        n.pause_rx = pause.rx_pause != 0;
        n.pause_tx = pause.tx_pause != 0;
    }
    ethtool_ringparam ring{.cmd = ETHTOOL_GRINGPARAM};
    if (tool.ask(&ring)) {
        n.ring_rx = ring.rx_pending;
        n.ring_rx_max = ring.rx_max_pending;
    }
    ethtool_coalesce coalesce{.cmd = ETHTOOL_GCOALESCE};
    if (tool.ask(&coalesce)) {
        n.coalesce_adaptive = coalesce.use_adaptive_rx_coalesce != 0;
        n.coalesce_rx_us = coalesce.rx_coalesce_usecs;
    }
    ethtool_value checksum{.cmd = ETHTOOL_GRXCSUM, .data = 0};
    if (tool.ask(&checksum)) n.checksum_offload = checksum.data != 0;
    std::array<std::uint64_t, sizeof(ethtool_tunable) / 8 + 1> watchdog{};
    const ethtool_tunable timeout{.cmd = ETHTOOL_GTUNABLE,
                                  .id = ETHTOOL_PFC_PREVENTION_TOUT,
                                  .type_id = ETHTOOL_TUNABLE_U16,
                                  .len = sizeof(std::uint16_t)};
    std::memcpy(watchdog.data(), &timeout, sizeof timeout);
    if (tool.ask(watchdog.data())) {
        std::uint16_t value = 0;
        std::memcpy(&value, reinterpret_cast<const char*>(watchdog.data()) + sizeof timeout,
                    sizeof value);
        n.pfc_watchdog_ms = value;
    }
    add_counters(tool, n.counters);
}

}  // namespace rvget::fabric::inventory
