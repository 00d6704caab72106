#pragma once
// A simulated completion queue.

#include <memory>

#include "fabric/sim/device.hpp"

namespace rvget::fabric::sim {

class sim_completion_queue final : public completion_queue {
public:
    sim_completion_queue(std::shared_ptr<sim_device> device, std::uint32_t entries);
    ~sim_completion_queue() override;

    result<std::size_t> poll(std::span<completion> out) override;
    result<void> arm() override;
    [[nodiscard]] int event_descriptor() const noexcept override;
    void consume_events() noexcept override;

    [[nodiscard]] completion_queue_record& record() noexcept { return record_; }
    [[nodiscard]] const sim_device& device() const noexcept { return *device_; }

private:
    std::shared_ptr<sim_device> device_;
    mutable completion_queue_record record_;
};

}  // namespace rvget::fabric::sim
