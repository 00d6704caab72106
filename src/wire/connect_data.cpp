#include "wire/connect_data.hpp"

#include <algorithm>

namespace rvget::wire {

namespace {

constexpr std::array<std::byte, 8> head{std::byte{'r'}, std::byte{'v'}, std::byte{'g'},
                                        std::byte{'t'}, std::byte{connect_version}};

}  // namespace

std::array<std::byte, connect_data_bytes> encode_connect_data(const connect_nonce& nonce) noexcept {
    std::array<std::byte, connect_data_bytes> data{};
    const auto after = std::ranges::copy(head, data.begin()).out;
    std::ranges::copy(std::as_bytes(std::span(nonce)), after);
    return data;
}

std::optional<connect_nonce> decode_connect_data(std::span<const std::byte> data) noexcept {
    if (data.size() < connect_data_bytes || !std::ranges::equal(head, data.first(head.size())))
        return std::nullopt;
    const auto padding = data.subspan(connect_data_bytes);
    if (std::ranges::any_of(padding, [](std::byte b) { return b != std::byte{0}; }))
        return std::nullopt;
    connect_nonce nonce{};
    std::ranges::copy(data.subspan(head.size(), nonce.size()),
                      std::as_writable_bytes(std::span(nonce)).begin());
    return nonce;
}

}  // namespace rvget::wire
