#pragma once
// The attributes of one RDMA_VERBS_IOCTL.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include <rdma/rdma_user_ioctl_cmds.h>

namespace softmlx5::front {

class attributes {
public:
    explicit attributes(ib_uverbs_ioctl_hdr& header) : all_(header.attrs, header.num_attrs) {}

    [[nodiscard]] ib_uverbs_attr* find(std::uint16_t id) const noexcept {
        const auto found =
            std::find_if(all_.begin(), all_.end(), [&](const auto& a) { return a.attr_id == id; });
        return found == all_.end() ? nullptr : &*found;
    }
    /// Input bytes: up to 8 lie in the attribute itself.
    [[nodiscard]] std::span<const std::byte> bytes(std::uint16_t id) const noexcept {
        const auto* a = find(id);
        if (a == nullptr) return {};
        const void* at = a->len <= 8 ? static_cast<const void*>(&a->data)
                                     : reinterpret_cast<const void*>(a->data);
        return {static_cast<const std::byte*>(at), a->len};
    }
    /// Reads an input structure; what the caller left out is zero. Whether it was given at all.
    template <class T>
    [[nodiscard]] bool take(std::uint16_t id, T& value) const noexcept {
        const auto from = bytes(id);
        std::memset(&value, 0, sizeof value);
        if (find(id) == nullptr) return false;
        std::memcpy(&value, from.data(), std::min(sizeof value, from.size()));
        return true;
    }
    template <class T>
    [[nodiscard]] std::optional<T> in(std::uint16_t id) const noexcept {
        T value;
        if (!take(id, value)) return std::nullopt;
        return value;
    }
    /// A handle that comes in.
    [[nodiscard]] std::optional<std::uint32_t> handle(std::uint16_t id) const noexcept {
        const auto* a = find(id);
        if (a == nullptr) return std::nullopt;
        return static_cast<std::uint32_t>(a->data);
    }
    /// A file descriptor that comes in.
    [[nodiscard]] std::optional<int> descriptor(std::uint16_t id) const noexcept {
        const auto* a = find(id);
        if (a == nullptr) return std::nullopt;
        return static_cast<int>(a->data_s64);
    }
    /// Copies out as much as there is room for.
    void out_bytes(std::uint16_t id, const void* from, std::size_t size) const noexcept {
        auto* a = find(id);
        if (a == nullptr) return;
        auto* to = reinterpret_cast<std::byte*>(a->data);
        std::memset(to, 0, a->len);
        std::memcpy(to, from, std::min<std::size_t>(a->len, size));
        a->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
    }
    template <class T>
    void out(std::uint16_t id, const T& value) const noexcept {
        out_bytes(id, &value, sizeof value);
    }
    void out_handle(std::uint16_t id, std::int64_t value) const noexcept {
        if (auto* a = find(id)) a->data_s64 = value;
    }
    [[nodiscard]] std::span<ib_uverbs_attr> all() const noexcept { return all_; }

private:
    std::span<ib_uverbs_attr> all_;
};

}  // namespace softmlx5::front
