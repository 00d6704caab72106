#pragma once
// A simulated Reliable Connection queue pair.

#include <memory>
#include <string_view>

#include "fabric/sim/completion_queue.hpp"
#include "fabric/sim/device.hpp"

namespace rvget::fabric::sim {

class sim_queue_pair final : public queue_pair {
public:
    /// The caller holds the world's mutex.
    sim_queue_pair(std::shared_ptr<sim_device> device,
                   std::shared_ptr<sim_completion_queue> completions, const route::port_facts& port,
                   const queue_pair_options& options);
    ~sim_queue_pair() override;

    [[nodiscard]] std::uint32_t number() const noexcept override { return record_.number; }
    result<void> to_init(access remote_rights) override;
    result<void> to_ready_to_receive(const receive_parameters& p) override;
    result<void> to_ready_to_send(const send_parameters& p) override;
    result<void> to_error() override;
    [[nodiscard]] result<queue_pair_state> state() const override;

    result<void> post_reads(std::span<const read_request> requests) override;
    result<void> post_send(const send_request& request) override;
    result<void> post_receive(const receive_request& request) override;
    result<void> post_marker(std::uint64_t id) override;
    result<void> post_bind(std::uint64_t id, memory_window& window, const memory_region& region,
                           std::span<const std::byte> range, access rights,
                           bool signalled) override;
    result<void> post_invalidate(std::uint64_t id, memory_window& window, bool signalled) override;

private:
    [[nodiscard]] failure refusal(device_errc code, std::string_view call, int error_number) const;
    [[nodiscard]] int ready_to_receive_error(const receive_parameters& p);
    result<void> room_for(std::size_t requests, std::string_view call) const;
    result<void> post(const work_request& request, std::string_view call);

    std::shared_ptr<sim_device> device_;
    std::shared_ptr<sim_completion_queue> completions_;
    queue_pair_record record_;
};

}  // namespace rvget::fabric::sim
