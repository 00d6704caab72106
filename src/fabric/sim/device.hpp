#pragma once
// The simulated NIC's provider, device, memory regions and windows.

#include <memory>
#include <string>
#include <string_view>

#include "fabric/sim/world.hpp"

namespace rvget::fabric::sim {

/// "sim host/device: call: strerror (errno N)", as the failures of a real provider read.
[[nodiscard]] failure os_failure(device_errc code, const std::string& who, std::string_view call,
                                 int error_number);

class sim_provider final : public provider {
public:
    sim_provider(std::shared_ptr<world> w, std::size_t host) : world_(std::move(w)), host_(host) {}

    [[nodiscard]] std::string_view name() const noexcept override { return "sim"; }
    [[nodiscard]] result<std::vector<route::device_facts>> list() override;
    result<std::shared_ptr<fabric::device>> open(std::string_view device_name) override;

private:
    std::shared_ptr<world> world_;
    std::size_t host_;
};

class sim_device final : public fabric::device, public std::enable_shared_from_this<sim_device> {
public:
    /// The caller holds the world's mutex.
    sim_device(std::shared_ptr<world> w, sim::nic& nic);
    ~sim_device() override;

    [[nodiscard]] const route::device_facts& facts() const noexcept override { return facts_; }
    [[nodiscard]] const fabric::quirks& quirks() const noexcept override { return quirks_; }
    result<void> refresh() override;
    result<std::unique_ptr<memory_region>> register_memory(std::span<std::byte> memory,
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
    [[nodiscard]] int event_descriptor() const noexcept override;
    std::optional<async_event> next_event() override;

    [[nodiscard]] world& in() const noexcept { return *world_; }
    [[nodiscard]] sim::nic& nic() const noexcept { return nic_; }
    [[nodiscard]] domain_id domain() const noexcept { return domain_; }
    [[nodiscard]] const std::string& who() const noexcept { return who_; }

private:
    std::shared_ptr<world> world_;
    sim::nic& nic_;
    domain_id domain_;
    std::string who_;
    route::device_facts facts_;
    fabric::quirks quirks_;
    mutable event_queue events_;
};

class sim_region final : public memory_region {
public:
    /// The caller holds the world's mutex.
    sim_region(std::shared_ptr<sim_device> device, std::span<std::byte> bytes, access rights);
    ~sim_region() override;

    [[nodiscard]] std::uint32_t local_key() const noexcept override { return record_.local_key; }
    [[nodiscard]] std::uint32_t remote_key() const noexcept override { return record_.remote_key; }
    [[nodiscard]] std::span<std::byte> bytes() const noexcept override { return record_.bytes; }

private:
    std::shared_ptr<sim_device> device_;
    region_record record_;
};

class sim_window final : public memory_window {
public:
    /// The caller holds the world's mutex.
    explicit sim_window(std::shared_ptr<sim_device> device);
    ~sim_window() override;

    [[nodiscard]] std::uint32_t remote_key() const noexcept override { return record_.latest_key; }
    [[nodiscard]] window_record& record() noexcept { return record_; }

private:
    std::shared_ptr<sim_device> device_;
    window_record record_;
};

}  // namespace rvget::fabric::sim
