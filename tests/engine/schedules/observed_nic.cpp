#include "engine/schedules/observed_nic.hpp"

#include <utility>

namespace rvget::test {
namespace {

using namespace rvget::fabric;

class observed_queue_pair final : public queue_pair {
public:
    observed_queue_pair(std::unique_ptr<queue_pair> beneath, nic_observer& o, std::size_t node)
        : beneath_(std::move(beneath)), observer_(o), node_(node), number_(beneath_->number()) {
        observer_.queue_pair_made(node_, number_);
    }
    ~observed_queue_pair() override {
        beneath_.reset();
        observer_.queue_pair_gone(node_, number_);
    }
    [[nodiscard]] std::uint32_t number() const noexcept override { return number_; }
    result<void> to_init(access rights) override {
        observer_.queue_pair_opened(node_, number_, rights);
        return beneath_->to_init(rights);
    }
    result<void> to_ready_to_receive(const receive_parameters& p) override {
        return beneath_->to_ready_to_receive(p);
    }
    result<void> to_ready_to_send(const send_parameters& p) override {
        return beneath_->to_ready_to_send(p);
    }
    result<void> to_error() override { return beneath_->to_error(); }
    [[nodiscard]] result<queue_pair_state> state() const override { return beneath_->state(); }
    result<void> post_reads(std::span<const read_request> requests) override {
        observer_.reads_posted(node_, number_, requests);
        return beneath_->post_reads(requests);
    }
    result<void> post_send(const send_request& request) override {
        return beneath_->post_send(request);
    }
    result<void> post_receive(const receive_request& request) override {
        return beneath_->post_receive(request);
    }
    result<void> post_marker(std::uint64_t id) override { return beneath_->post_marker(id); }
    result<void> post_bind(std::uint64_t id, memory_window& window, const memory_region& region,
                           std::span<const std::byte> range, access rights,
                           bool signalled) override {
        return beneath_->post_bind(id, window, region, range, rights, signalled);
    }
    result<void> post_invalidate(std::uint64_t id, memory_window& window, bool signalled) override {
        return beneath_->post_invalidate(id, window, signalled);
    }

private:
    std::unique_ptr<queue_pair> beneath_;
    nic_observer& observer_;
    const std::size_t node_;
    const std::uint32_t number_;
};

class observed_device final : public device {
public:
    observed_device(std::shared_ptr<device> beneath, nic_observer& o, std::size_t node)
        : beneath_(std::move(beneath)), observer_(o), node_(node) {}
    [[nodiscard]] const route::device_facts& facts() const noexcept override {
        return beneath_->facts();
    }
    [[nodiscard]] const fabric::quirks& quirks() const noexcept override {
        return beneath_->quirks();
    }
    result<void> refresh() override { return beneath_->refresh(); }
    result<std::unique_ptr<memory_region>> register_memory(std::span<std::byte> memory,
                                                           access rights) override {
        observer_.memory_registered(node_, rights);
        return beneath_->register_memory(memory, rights);
    }
    result<std::shared_ptr<completion_queue>> create_completion_queue(
        std::uint32_t entries) override {
        return beneath_->create_completion_queue(entries);
    }
    result<std::unique_ptr<queue_pair>> create_queue_pair(
        std::shared_ptr<completion_queue> completions, std::uint8_t port,
        const queue_pair_options& options) override {
        auto made = beneath_->create_queue_pair(std::move(completions), port, options);
        if (!made) return made;
        return std::unique_ptr<queue_pair>(
            std::make_unique<observed_queue_pair>(std::move(made.value()), observer_, node_));
    }
    result<std::unique_ptr<memory_window>> allocate_window() override {
        return beneath_->allocate_window();
    }
    [[nodiscard]] int event_descriptor() const noexcept override {
        return beneath_->event_descriptor();
    }
    std::optional<async_event> next_event() override { return beneath_->next_event(); }

private:
    std::shared_ptr<device> beneath_;
    nic_observer& observer_;
    const std::size_t node_;
};

class observed_provider final : public provider {
public:
    observed_provider(std::unique_ptr<provider> beneath, nic_observer& o, std::size_t node)
        : beneath_(std::move(beneath)), observer_(o), node_(node) {}
    [[nodiscard]] std::string_view name() const noexcept override { return beneath_->name(); }
    [[nodiscard]] result<std::vector<route::device_facts>> list() override {
        return beneath_->list();
    }
    result<std::shared_ptr<device>> open(std::string_view device_name) override {
        auto opened = beneath_->open(device_name);
        if (!opened) return opened;
        return std::shared_ptr<device>(
            std::make_shared<observed_device>(std::move(opened.value()), observer_, node_));
    }

private:
    std::unique_ptr<provider> beneath_;
    nic_observer& observer_;
    const std::size_t node_;
};

}  // namespace

std::unique_ptr<provider> observe(std::unique_ptr<provider> beneath, nic_observer& observer,
                                  std::size_t node) {
    return std::make_unique<observed_provider>(std::move(beneath), observer, node);
}

}  // namespace rvget::test
