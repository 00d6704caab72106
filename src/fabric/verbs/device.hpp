#pragma once
// An opened device.

#include <memory>

#include "fabric/verbs/context.hpp"

namespace rvget::fabric::verbs {

class device final : public fabric::device {
public:
    static result<std::shared_ptr<fabric::device>> open(ibv_device* found);

    [[nodiscard]] const route::device_facts& facts() const noexcept override { return facts_; }
    [[nodiscard]] const fabric::quirks& quirks() const noexcept override {
        return context_->quirks;
    }
    result<void> refresh() override;

    result<std::unique_ptr<memory_region>> register_memory(std::span<std::byte> memory,
                                                           access rights) override;
    result<std::unique_ptr<memory_region>> register_dmabuf(int descriptor, std::uint64_t offset,
                                                           std::span<std::byte> mapped,
                                                           access rights) override;
    result<std::shared_ptr<completion_queue>> create_completion_queue(
        std::uint32_t entries) override;
    result<std::unique_ptr<queue_pair>> create_queue_pair(
        std::shared_ptr<completion_queue> completions, std::uint8_t port,
        const queue_pair_options& options) override;
    result<std::unique_ptr<memory_window>> allocate_window() override;
    result<std::unique_ptr<connection_listener>> listen(const std::string& address) override;
    result<std::unique_ptr<connection>> connect(const connection_target& target,
                                                const connection_terms& terms,
                                                std::chrono::milliseconds limit) override;

    [[nodiscard]] int event_descriptor() const noexcept override {
        return context_->handle->async_fd;
    }
    std::optional<async_event> next_event() override;

    /// For the direct path, whose queue pairs live beside those of this body.
    [[nodiscard]] const std::shared_ptr<const context>& opened() const noexcept { return context_; }

private:
    device(std::shared_ptr<const context> opened, route::device_facts facts)
        : context_(std::move(opened)), facts_(std::move(facts)) {}

    std::shared_ptr<const context> context_;
    route::device_facts facts_;
};

}  // namespace rvget::fabric::verbs
