#pragma once
// Anonymous pages to register: huge ones where they can be had.

#include <cstddef>
#include <span>

#include <rvget/error.hpp>

namespace rvget::engine {

/// Owns a private anonymous mapping; move-only, unmaps on destruction. A forked child does not
/// inherit it (MADV_DONTFORK): after a copy-on-write break the parent's pages would no longer be
/// the ones that the NIC knows, and libibverbs guards against that only after ibv_fork_init.
class page_mapping {
public:
    static constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

    /// Maps exactly `bytes`, a multiple of page_bytes(), zeroed. A multiple of huge_page_bytes
    /// tries reserved huge pages first, then aligned ordinary pages advised to become huge.
    /// `out_of_memory` names the size and the errno text.
    static result<page_mapping> map(std::size_t bytes);
    [[nodiscard]] static std::size_t page_bytes() noexcept;

    page_mapping() = default;
    page_mapping(page_mapping&& other) noexcept;
    page_mapping& operator=(page_mapping&& other) noexcept;
    ~page_mapping();

    [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }

private:
    explicit page_mapping(std::span<std::byte> bytes) noexcept;
    std::span<std::byte> bytes_;
};

}  // namespace rvget::engine
