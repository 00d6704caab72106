#pragma once
// Memory regions and type-2 memory windows.

#include <memory>
#include <span>

#include "fabric/verbs/context.hpp"

namespace rvget::fabric::verbs {

/// InfiniBand's access flags for ours.
[[nodiscard]] int access_flags(access rights) noexcept;

class region final : public memory_region {
public:
    static result<std::unique_ptr<memory_region>> make(std::shared_ptr<const context> parent,
                                                       std::span<std::byte> memory, access rights);
    static result<std::unique_ptr<memory_region>> make_of_dmabuf(
        std::shared_ptr<const context> parent, int descriptor, std::uint64_t offset,
        std::span<std::byte> mapped, access rights);

    [[nodiscard]] std::uint32_t local_key() const noexcept override { return handle_->lkey; }
    [[nodiscard]] std::uint32_t remote_key() const noexcept override { return handle_->rkey; }
    [[nodiscard]] std::span<std::byte> bytes() const noexcept override { return memory_; }
    [[nodiscard]] ibv_mr* handle() const noexcept { return handle_.get(); }

private:
    static int deregister(ibv_mr* mr) noexcept { return ibv_dereg_mr(mr); }

    region(std::shared_ptr<const context> parent, std::span<std::byte> memory, ibv_mr* handle)
        : parent_(std::move(parent)), memory_(memory), handle_(handle) {}

    std::shared_ptr<const context> parent_;
    std::span<std::byte> memory_;
    owned<ibv_mr, deregister> handle_;
};

class window final : public memory_window {
public:
    static result<std::unique_ptr<memory_window>> make(std::shared_ptr<const context> parent);

    [[nodiscard]] std::uint32_t remote_key() const noexcept override { return handle_->rkey; }
    [[nodiscard]] ibv_mw* handle() const noexcept { return handle_.get(); }

private:
    static int deallocate(ibv_mw* mw) noexcept { return ibv_dealloc_mw(mw); }

    window(std::shared_ptr<const context> parent, ibv_mw* handle)
        : parent_(std::move(parent)), handle_(handle) {}

    std::shared_ptr<const context> parent_;
    owned<ibv_mw, deallocate> handle_;
};

}  // namespace rvget::fabric::verbs
