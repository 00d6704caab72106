#pragma once
// A device of libibverbs, with queue pairs whose sends are written directly where they can be had.

#include <atomic>
#include <memory>

#include "fabric/mlx5/takeover.hpp"
#include "fabric/verbs/device.hpp"

namespace rvget::fabric::mlx5 {

/// `beneath` with what `choice` asks for, or as it is, with the reason in fast_path().
std::shared_ptr<fabric::device> decorate(std::shared_ptr<fabric::device> beneath,
                                         mlx5_choice choice);

class completion_queue;

class device final : public fabric::device {
public:
    /// Without `direct` everything is as beneath; `path` says so.
    device(std::shared_ptr<verbs::device> beneath, const library* direct, fabric::fast_path path)
        : beneath_(std::move(beneath)), direct_(direct), path_(std::move(path)) {}

    [[nodiscard]] const route::device_facts& facts() const noexcept override {
        return beneath_->facts();
    }
    [[nodiscard]] const fabric::quirks& quirks() const noexcept override {
        return beneath_->quirks();
    }
    [[nodiscard]] fabric::fast_path fast_path() const override { return path_; }
    result<void> refresh() override { return beneath_->refresh(); }
    result<std::unique_ptr<memory_region>> register_memory(std::span<std::byte> memory,
                                                           access rights) override {
        return beneath_->register_memory(memory, rights);
    }
    result<std::shared_ptr<fabric::completion_queue>> create_completion_queue(
        std::uint32_t entries) override;
    /// A queue pair without binds whose sends cannot be taken over is one of libibverbs.
    result<std::unique_ptr<fabric::queue_pair>> create_queue_pair(
        std::shared_ptr<fabric::completion_queue> completions, std::uint8_t port,
        const queue_pair_options& options) override;
    result<std::unique_ptr<memory_window>> allocate_window() override {
        return beneath_->allocate_window();
    }
    result<std::unique_ptr<connection_listener>> listen(const std::string& address) override {
        return beneath_->listen(address);
    }
    result<std::unique_ptr<connection>> connect(const connection_target& target,
                                                const connection_terms& terms,
                                                std::chrono::milliseconds limit) override {
        return beneath_->connect(target, terms, limit);
    }
    [[nodiscard]] int event_descriptor() const noexcept override {
        return beneath_->event_descriptor();
    }
    std::optional<async_event> next_event() override { return beneath_->next_event(); }

    /// Whether a queue pair can be taken over at all: makes one, and drops it.
    [[nodiscard]] result<void> try_out();

private:
    /// Over `other`, which is one of libibverbs and takes the completions of receives and binds.
    [[nodiscard]] result<std::shared_ptr<completion_queue>> direct_queue(
        const std::shared_ptr<fabric::completion_queue>& other, std::uint32_t entries) const;

    std::shared_ptr<verbs::device> beneath_;
    const library* direct_;
    fabric::fast_path path_;
};

}  // namespace rvget::fabric::mlx5
