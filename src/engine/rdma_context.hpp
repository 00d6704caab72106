#pragma once
// The node's RDMA side: one opened device, its completion queues and its registered pool, or the
// reason why there is none. Shared by everything that wires or uses queue pairs.

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <rvget/config.hpp>
#include <rvget/error.hpp>
#include <rvget/path.hpp>

#include "engine/environment.hpp"
#include "engine/memory.hpp"
#include "fabric/fabric.hpp"
#include "route/choose.hpp"
#include "wire/descriptor.hpp"

namespace rvget::engine {

/// Takes the completions of one queue pair; on the strand.
class completion_sink {
public:
    virtual void on_completion(const fabric::completion& c) = 0;
    /// The completion queue is lost: nothing will be heard of what is posted.
    virtual void on_lost(const failure& why) = 0;

protected:
    ~completion_sink() = default;
};

/// A local port and GID picked for one peer, with what the report shows of it.
struct local_port {
    fabric::port_identity identity;
    std::uint32_t max_message_bytes = 0;
    std::string device;
    std::string gid;
    std::string address;  ///< for RDMA-CM, a link-local one with its zone
    std::string netdev;

    /// As `address`, of a peer that is reached from this port.
    [[nodiscard]] std::string zoned(const route::gid& peer) const;
};

/// Memory registered beside the arenas, and its share of the budget.
struct registration {
    byte_budget::claim claim;
    std::unique_ptr<fabric::memory_region> region;  ///< goes first

    /// Deregisters, which may block in the kernel, and then gives its room in the budget back.
    void end() noexcept {
        region.reset();
        claim = {};
    }
};

class rdma_context final : public completion_source {
public:
    /// Opens the device and registers the first arena. Blocking; before the node starts.
    /// Never fails: without a device (or with RDMA switched off) the context says why.
    /// `unproven` takes these lease keys without trying them out, for devices on which nothing
    /// moves yet.
    static std::shared_ptr<rdma_context> open(fabric::provider* provider,
                                              const node_options& options,
                                              std::optional<wire::lease_mode> unproven = {});
    explicit rdma_context(const node_options& options);

    [[nodiscard]] bool usable() const noexcept { return device_ != nullptr && !lost_; }
    /// Valid where not usable: `not_configured`, `kill_switch`, `registration`, or `no_route` once
    /// the device is lost; and the sentence. The strand, once the node runs.
    [[nodiscard]] reason why_not() const noexcept { return why_not_; }
    [[nodiscard]] const std::string& why_not_detail() const noexcept { return why_not_detail_; }

    [[nodiscard]] const std::shared_ptr<fabric::device>& device() const noexcept { return device_; }
    [[nodiscard]] pool& memory() noexcept { return *pool_; }
    /// Registers memory of others' beside the pool, inside the budget. Precondition: usable.
    /// Blocking; any thread.
    [[nodiscard]] result<registration> register_memory(std::span<std::byte> memory,
                                                       fabric::access rights);
    [[nodiscard]] result<registration> register_dmabuf(int descriptor, std::uint64_t offset,
                                                       std::span<std::byte> mapped,
                                                       fabric::access rights);

    /// The device is one that only RDMA-CM wires up. Precondition: usable.
    [[nodiscard]] bool needs_cm() const noexcept { return needs_cm_; }

    /// Every port and GID, with what speaks for or against it towards a peer. As choose_port().
    [[nodiscard]] result<route::choice> choose(const route::control_path& control) const;
    /// The port and GID to speak to a peer from, by the addresses of the control connection.
    /// Queries the device's tables anew: they change without an event. Blocking (milliseconds).
    [[nodiscard]] result<local_port> choose_port(const std::string& own_address,
                                                 const std::string& peer_address) const;

    /// A port and GID that reach this node itself. Blocking (milliseconds).
    [[nodiscard]] result<local_port> own_port() const;

    /// Any thread; may wait for a refresh of the table.
    [[nodiscard]] result<std::uint8_t> first_active_port() const;

    /// A Reliable Connection queue pair on that port. Blocking (milliseconds).
    [[nodiscard]] result<std::unique_ptr<fabric::queue_pair>> create_queue_pair(
        std::shared_ptr<fabric::completion_queue> completions, std::uint8_t port,
        const fabric::queue_pair_options& options) const;
    /// Where that GID stands in the port's table at this moment. Blocking (milliseconds).
    [[nodiscard]] result<std::uint32_t> gid_index_of(const fabric::port_identity& identity) const;

    /// What keys this node's leases have.
    [[nodiscard]] wire::lease_mode lease_keys() const noexcept { return lease_keys_; }
    /// Why no stronger ones, where it was tried.
    [[nodiscard]] const std::string& lease_keys_detail() const noexcept {
        return lease_keys_detail_;
    }

    /// What memory is registered with that shall be read into, and lent by leases with keys of
    /// their own: nothing for a remote side. The exception is a node on iWARP that does not serve:
    /// the peer of a READ writes its response with the right of a remote write there (RFC 5040,
    /// 5.1). One that serves keeps what it has staged closed, and does not READ.
    [[nodiscard]] fabric::access local_rights() const noexcept;

    [[nodiscard]] std::uint8_t initiator_depth() const noexcept { return initiator_depth_; }
    [[nodiscard]] std::uint8_t responder_depth() const noexcept { return responder_depth_; }
    [[nodiscard]] const fabric::retry_parameters& retry() const noexcept { return retry_; }
    /// What the retry parameters amount to; no READ is posted that could outlive its lease by it.
    [[nodiscard]] duration retry_window() const noexcept { return retry_window_; }

    /// Reading ends share one completion queue. Room in it is counted: every work request that may
    /// be posted has its entry. False where it is full.
    bool reserve_entries(std::uint32_t entries) noexcept;
    void return_entries(std::uint32_t entries) noexcept;
    /// The same for queue pairs that nobody needs yet: they leave half of the queue to others.
    bool reserve_spare_entries(std::uint32_t entries) noexcept;
    [[nodiscard]] const std::shared_ptr<fabric::completion_queue>& reading_queue() const noexcept {
        return reading_queue_;
    }
    /// The owner's ends post nothing but windows; without, they share a small queue that stays
    /// empty.
    [[nodiscard]] const std::shared_ptr<fabric::completion_queue>& serving_queue() const noexcept {
        return serving_queue_;
    }
    void attach(std::uint32_t queue_pair_number, completion_sink& sink);
    void detach(std::uint32_t queue_pair_number);
    /// Queue pairs and registrations of single leases that exist or are being made, for an orderly
    /// end.
    void resource_born() noexcept { ++resources_; }
    void resource_gone();
    void when_no_resources(unique_function<void()> f);
    /// Work requests outstanding on attached queue pairs (kept by those who post).
    void posted(std::uint32_t requests) noexcept { outstanding_ += requests; }
    void retired(std::uint32_t requests) noexcept { outstanding_ -= requests; }

    // completion_source
    std::size_t poll() override;
    void arm() override;
    [[nodiscard]] int event_descriptor() const override;
    void consume_events() override;
    [[nodiscard]] bool expects_completions() const override { return outstanding_ > 0 && !lost_; }

private:
    result<void> open_device(fabric::provider& provider, std::optional<wire::lease_mode> unproven);
    result<void> settle_lease_keys(std::optional<wire::lease_mode> unproven);
    void lose(const failure& why);
    [[nodiscard]] const route::port_facts* port_to_use(const route::device_facts& d) const;
    template <class Register>
    result<registration> register_in_budget(std::span<std::byte> memory, Register&& how);

    const node_options& options_;
    route::pins pins_;
    mutable std::mutex facts_mutex_;  ///< refresh() and facts(), which workers share
    reason why_not_ = reason::not_configured;
    std::string why_not_detail_;
    std::shared_ptr<fabric::device> device_;
    std::atomic<bool> lost_{false};  ///< read by any thread that stages
    std::unique_ptr<pool> pool_;
    bool needs_cm_ = false;
    wire::lease_mode lease_keys_ = wire::lease_mode::fence;
    std::string lease_keys_detail_;
    std::shared_ptr<fabric::completion_queue> reading_queue_;
    std::shared_ptr<fabric::completion_queue> serving_queue_;
    fabric::retry_parameters retry_;
    duration retry_window_{0};
    std::uint8_t initiator_depth_ = 0;
    std::uint8_t responder_depth_ = 0;
    std::uint32_t free_entries_ = 0;
    std::uint32_t all_entries_ = 0;
    std::uint64_t outstanding_ = 0;
    std::size_t resources_ = 0;
    std::vector<unique_function<void()>> no_resources_;
    std::unordered_map<std::uint32_t, completion_sink*> sinks_;
    std::array<fabric::completion, 64> batch_;
};

}  // namespace rvget::engine
