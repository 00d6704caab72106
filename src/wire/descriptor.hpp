#pragma once
// What an owner hands a consumer so that its NIC can READ: at most 48 bytes for one device, one
// range, no checksum. The incarnation belongs to the connection and is not repeated here.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <rvget/error.hpp>

namespace rvget::wire {

/// The key of one rail: the memory key of the region or window, and which rail it is for.
struct rail_key {
    std::uint8_t rail = 0;
    std::uint32_t remote_key = 0;
    friend bool operator==(const rail_key&, const rail_key&) = default;
};

enum class lease_mode : std::uint8_t { fence = 0, window = 1, exact = 2 };
std::string_view to_string(lease_mode m) noexcept;

/// Packs keys: 1 byte of header (version and count), then 5 bytes a rail (rail id, key): 6 bytes
/// for one device, 5 more for each further rail. Precondition, else std::invalid_argument: 1 to 15
/// keys, each of another rail.
std::vector<std::byte> pack_keys(std::span<const rail_key> keys);
/// Refuses (`connection_errc::protocol`) what it cannot account for: unknown version, no key, a
/// rail named twice, missing or trailing bytes.
result<std::vector<rail_key>> unpack_keys(std::span<const std::byte> packed);

struct descriptor {
    std::uint64_t address = 0;  ///< of the range's first byte, as the owner's NIC knows it
    std::uint64_t length = 0;   ///< of the range
    std::uint64_t lease = 0;
    std::uint32_t duration_ms = 0;  ///< of the lease, from now
    std::uint32_t generation = 0;   ///< of the lane it is for; an older one is never posted
    lease_mode mode = lease_mode::fence;
    std::vector<rail_key> keys;
    std::optional<std::uint32_t> crc32c;  ///< of the range, where asked for
    friend bool operator==(const descriptor&, const descriptor&) = default;
};

/// Precondition: as pack_keys().
std::vector<std::byte> encode(const descriptor& d);
/// Accounts for every byte; never reads past `bytes`.
result<descriptor> decode_descriptor(std::span<const std::byte> bytes);

}  // namespace rvget::wire
