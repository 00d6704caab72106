#pragma once
// The owner's end of a bulk queue pair: wired on the consumer's offer, READ from by the consumer's
// NIC, destroyed to prove that no late READ can reach the bytes.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <rvget/error.hpp>

#include "engine/decision.hpp"
#include "engine/services.hpp"
#include "wire/queue_pair_facts.hpp"

namespace rvget::engine {

/// Lives on the strand; worker threads hold it while they wire or destroy the queue pair.
class serve_lane final : public std::enable_shared_from_this<serve_lane> {
public:
    serve_lane(services& s, std::uint32_t generation);
    ~serve_lane();
    serve_lane(const serve_lane&) = delete;
    serve_lane& operator=(const serve_lane&) = delete;

    /// Makes the queue pair and takes it to RTS towards `consumer`, on a worker thread.
    void wire(const std::string& own_address, const wire::queue_pair_facts& consumer);

    [[nodiscard]] lane_status status() const noexcept { return status_; }
    [[nodiscard]] std::uint32_t generation() const noexcept { return generation_; }
    [[nodiscard]] const wire::queue_pair_facts& facts() const noexcept { return facts_; }
    /// Why it failed, where it did.
    [[nodiscard]] const failure& error() const noexcept { return error_; }

    /// Runs `f` when the status is no longer `making` (at once where it is not).
    void when_settled(unique_function<void()> f);

    /// Takes the queue pair to error and destroys it; `proven` runs when the kernel says that it is
    /// gone, so that no READ through it can touch memory any more. Repeatable: each caller is told.
    void destroy(unique_function<void()> proven);
    [[nodiscard]] bool gone() const noexcept { return gone_; }
    [[nodiscard]] bool is_being_made() const noexcept { return busy_on_worker_; }

private:
    void wired(const failure& f);
    void begin_destruction();

    services& s_;
    const std::uint32_t generation_;
    lane_status status_ = lane_status::absent;
    bool busy_on_worker_ = false;
    bool destroying_ = false;
    bool gone_ = false;
    failure error_;
    wire::queue_pair_facts facts_;
    std::unique_ptr<fabric::queue_pair> queue_pair_;
    std::vector<unique_function<void()>> settled_;
    std::vector<unique_function<void()>> proven_;
};

}  // namespace rvget::engine
