#include "wire/descriptor.hpp"

#include <algorithm>
#include <bitset>
#include <stdexcept>
#include <string>

#include "base/bytes.hpp"

namespace rvget::wire {

std::string_view to_string(lease_mode m) noexcept {
    switch (m) {
        case lease_mode::fence:
            return "fence";
        case lease_mode::window:
            return "window";
        case lease_mode::exact:
            return "exact";
    }
    return "unknown";
}
namespace {

constexpr std::uint8_t key_version = 1;
constexpr std::size_t max_rails = 15;  // four bits of the packed header
constexpr std::size_t key_bytes = 5;

constexpr std::uint8_t descriptor_version = 1;
constexpr std::uint8_t mode_bits = 0x03;
constexpr std::uint8_t checksum_bit = 0x04;
constexpr std::size_t fixed_bytes = 34;

void pack_into(byte_writer& out, std::span<const rail_key> keys) {
    if (keys.empty() || keys.size() > max_rails) {
        throw std::invalid_argument("pack_keys: " + std::to_string(keys.size()) +
                                    " keys where 1 to 15 are possible");
    }
    out.u8(static_cast<std::uint8_t>(key_version << 4 | keys.size()));
    std::bitset<256> seen;
    for (const rail_key& key : keys) {
        if (seen.test(key.rail)) {
            throw std::invalid_argument("pack_keys: rail " + std::to_string(key.rail) +
                                        " has two keys");
        }
        seen.set(key.rail);
        out.u8(key.rail);
        out.u32(key.remote_key);
    }
}

/// The packed keys end where `in` ends. Causes name rails, never keys: those are secrets.
std::vector<rail_key> unpack_from(byte_reader& in) {
    const std::size_t start = in.offset();
    const std::uint8_t header = in.u8();
    const std::size_t count = header & 0x0f;
    if (header >> 4 != key_version) {
        in.fail_at(start, "packed key version " + std::to_string(header >> 4) + " is not known");
    } else if (count == 0) {
        in.fail_at(start, "no key is packed");
    }
    if (!in.ok()) {
        return {};
    }
    std::vector<rail_key> keys;
    keys.reserve(count);
    std::bitset<256> seen;
    for (std::size_t i = 0; i < count && in.ok(); ++i) {
        const std::size_t at = in.offset();
        const std::uint8_t rail = in.u8();
        if (seen.test(rail)) {
            in.fail_at(at, "rail " + std::to_string(rail) + " is named twice");
        }
        seen.set(rail);
        keys.push_back({rail, in.u32()});
    }
    in.expect_end();
    return keys;
}

failure refusal(std::string_view subject, const byte_reader& in) {
    return {connection_errc::protocol, std::string(subject) + ": " + in.error()};
}

}  // namespace

std::vector<std::byte> pack_keys(std::span<const rail_key> keys) {
    byte_writer out(1 + key_bytes * keys.size());
    pack_into(out, keys);
    return std::move(out).take();
}

result<std::vector<rail_key>> unpack_keys(std::span<const std::byte> packed) {
    byte_reader in(packed);
    auto keys = unpack_from(in);
    if (!in.ok()) {
        return refusal("packed key", in);
    }
    return keys;
}

std::vector<std::byte> encode(const descriptor& d) {
    const auto mode = static_cast<std::uint8_t>(d.mode);
    if (mode > static_cast<std::uint8_t>(lease_mode::exact)) {
        throw std::invalid_argument("descriptor: no such lease mode");
    }
    byte_writer out(fixed_bytes + 4 + 1 + key_bytes * d.keys.size());
    out.u8(descriptor_version);
    out.u8(static_cast<std::uint8_t>(mode | (d.crc32c ? checksum_bit : 0)));
    out.u64(d.address);
    out.u64(d.length);
    out.u64(d.lease);
    out.u32(d.duration_ms);
    out.u32(d.generation);
    if (d.crc32c) {
        out.u32(*d.crc32c);
    }
    pack_into(out, d.keys);
    return std::move(out).take();
}

result<descriptor> decode_descriptor(std::span<const std::byte> bytes) {
    byte_reader in(bytes);
    if (const auto version = in.u8(); in.ok() && version != descriptor_version) {
        in.fail_at(0, "version " + std::to_string(version) + " is not known");
    }
    const std::uint8_t flags = in.u8();
    const std::uint8_t mode = flags & mode_bits;
    if ((flags & ~(mode_bits | checksum_bit)) != 0) {
        in.fail_at(1, "a flag is not known");
    } else if (mode > static_cast<std::uint8_t>(lease_mode::exact)) {
        in.fail_at(1, "lease mode " + std::to_string(mode) + " is not known");
    }
    descriptor d;
    d.mode = static_cast<lease_mode>(mode);
    d.address = in.u64();
    d.length = in.u64();
    d.lease = in.u64();
    d.duration_ms = in.u32();
    d.generation = in.u32();
    if ((flags & checksum_bit) != 0) {
        d.crc32c = in.u32();
    }
    d.keys = unpack_from(in);
    if (!in.ok()) {
        return refusal("descriptor", in);
    }
    return d;
}

}  // namespace rvget::wire
