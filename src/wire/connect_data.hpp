#pragma once
// What a consumer says with a request to connect by RDMA-CM, and the owner with its answer: who
// knocks must know the nonce that was told over the control connection.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace rvget::wire {

/// 128 random bits, good for one request.
using connect_nonce = std::array<std::uint8_t, 16>;

inline constexpr std::uint8_t connect_version = 1;
/// Magic (4 bytes "rvgt"), version, three zeros, nonce.
inline constexpr std::size_t connect_data_bytes = 24;

std::array<std::byte, connect_data_bytes> encode_connect_data(const connect_nonce& nonce) noexcept;
/// None where it is not of this library, or of a version that it does not know. What follows must
/// be zeros: RDMA-CM pads.
std::optional<connect_nonce> decode_connect_data(std::span<const std::byte> data) noexcept;

}  // namespace rvget::wire
