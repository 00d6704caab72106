#pragma once
// The owner's end of a bulk queue pair: wired on the consumer's offer, READ from by the consumer's
// NIC, destroyed to prove that no late READ can reach the bytes.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <rvget/error.hpp>

#include "engine/decision.hpp"
#include "engine/services.hpp"
#include "engine/window_keys.hpp"
#include "wire/frames.hpp"

namespace rvget::engine {

/// Lives on the strand; worker threads hold it while they wire or destroy the queue pair.
class serve_lane final : public completion_sink, public std::enable_shared_from_this<serve_lane> {
public:
    serve_lane(services& s, std::uint32_t generation);
    ~serve_lane();
    serve_lane(const serve_lane&) = delete;
    serve_lane& operator=(const serve_lane&) = delete;

    /// Makes the queue pair and takes it to RTS towards `consumer`, on a worker thread: at once, or
    /// where it connects by RDMA-CM, when it has connected. `on_broken` hears once if it goes to
    /// error later.
    void wire(const std::string& own_address, const wire::queue_pair_facts& consumer, bool by_cm,
              unique_function<void()> on_broken);

    [[nodiscard]] lane_status status() const noexcept { return status_; }
    [[nodiscard]] std::uint32_t generation() const noexcept { return generation_; }
    [[nodiscard]] const wire::queue_pair_facts& facts() const noexcept { return facts_; }
    /// Where its consumer is to connect, while it may.
    [[nodiscard]] const std::optional<wire::connect_point>& connect_to() const noexcept {
        return connect_to_;
    }
    /// Why it failed, where it did.
    [[nodiscard]] const failure& error() const noexcept { return error_; }

    /// Runs `f` when the status is no longer `making` (at once where it is not).
    void when_settled(unique_function<void()> f);
    /// As when_settled(), or when connect_to() is known, whichever comes first.
    void when_answerable(unique_function<void()> f);

    /// Binds a window for one lease. Precondition: ready, and leases have windows.
    void make_key(std::shared_ptr<const slot_memory> memory, std::span<const std::byte> range,
                  lease_key_made done) {
        keys_->make(std::move(memory), range, std::move(done));
    }

    /// Takes the queue pair to error and destroys it; `proven` runs when the kernel says that it is
    /// gone, so that no READ through it can touch memory any more. Repeatable: each caller is told.
    void destroy(unique_function<void()> proven);
    [[nodiscard]] bool is_going() const noexcept { return destroying_; }
    [[nodiscard]] bool is_being_made() const noexcept { return busy_on_worker_ || awaited_; }

    void on_completion(const fabric::completion& c) override;
    void on_lost(const failure& why) override { broken(why); }

private:
    struct wiring;
    void run(const std::shared_ptr<wiring>& w, result<void> (wiring::*step)(rdma_context&),
             void (serve_lane::*then)(const std::shared_ptr<wiring>&, const failure&));
    void await_connection(const std::shared_ptr<wiring>& w, const failure& f);
    std::shared_ptr<wiring> stop_awaiting();
    void wired(const std::shared_ptr<wiring>& w, const failure& f);
    void note_failed(const failure& why);
    void settle(const failure& f);
    void broken(const failure& why);
    void begin_destruction();
    void drained();

    services& s_;
    const std::uint32_t generation_;
    lane_status status_ = lane_status::absent;
    time_point begun_;
    bool busy_on_worker_ = false;
    bool destroying_ = false;
    bool gone_ = false;
    failure error_;
    wire::queue_pair_facts facts_;
    std::unique_ptr<fabric::queue_pair> queue_pair_;
    std::shared_ptr<fabric::connection> connection_;  ///< of a queue pair wired up by RDMA-CM
    std::optional<wire::connect_point> connect_to_;
    std::shared_ptr<wiring> awaited_;  ///< while its connection may come
    environment::timer_id awaited_timer_ = 0;
    std::shared_ptr<window_keys> keys_;  ///< where leases have windows
    std::uint32_t reserved_entries_ = 0;
    bool marker_posted_ = false;
    std::shared_ptr<serve_lane> draining_;  ///< itself, until the marker comes, if it ever does
    unique_function<void()> on_broken_;
    std::vector<unique_function<void()>> settled_;
    std::vector<unique_function<void()>> answerable_;
    std::vector<unique_function<void()>> proven_;
};

}  // namespace rvget::engine
