#pragma once
// One end of a probe: a queue pair, a buffer on each side of the rights, and READs with a deadline.
// For trying out what a device or a path really does; blocking, so never on a reactor.

#include <chrono>
#include <memory>
#include <optional>
#include <span>

#include "fabric/fabric.hpp"

namespace rvget::fabric {

class probe_end {
public:
    /// 4.096 us x 2^12 x (3 + 1) = 67 ms: finite, and short enough for a matrix of probes.
    static constexpr retry_parameters short_retry{
        .timeout_exponent = 12, .retry_count = 3, .rnr_retry_count = 3, .min_rnr_timer = 12};

    /// Registers `bytes` to serve, with `rights`, and as many to read into. Blocking
    /// (milliseconds).
    static result<std::unique_ptr<probe_end>> make(device& device, std::uint8_t port,
                                                   std::size_t bytes,
                                                   access rights = access::remote_read);
    /// Takes the queue pair to error and waits until the NIC is done with the buffers; where it
    /// does not get done, they are leaked on purpose: the NIC may still write them.
    ~probe_end();
    probe_end(const probe_end&) = delete;
    probe_end& operator=(const probe_end&) = delete;

    [[nodiscard]] std::uint32_t queue_pair_number() const { return queue_pair_->number(); }
    [[nodiscard]] std::uint64_t address() const;
    [[nodiscard]] std::uint32_t remote_key() const { return served_region_->remote_key(); }
    [[nodiscard]] std::span<std::byte> served() noexcept { return {served_.get(), bytes_}; }
    /// Fills what is served with the pattern of `seed`, which differs from probe to probe, so that
    /// bytes left over from another one are noticed.
    void fill(std::uint32_t seed);

    /// To RTS towards `peer`; may block for a second in the kernel.
    result<void> connect(const receive_parameters& receive, std::uint32_t starting_psn,
                         const retry_parameters& retry = short_retry);

    /// Binds a memory window over all that is served, which was registered for that, and gives its
    /// key; and takes it away. Precondition: connected.
    result<std::uint32_t> bind_window(device& device, std::chrono::milliseconds limit);
    result<void> invalidate_window(std::chrono::milliseconds limit);

    struct outcome {
        bool posted = true;
        std::optional<completion_status> status;  ///< none: no completion in time
        std::uint32_t vendor_error = 0;
        std::size_t wrong_bytes = 0;
        std::size_t first_wrong = 0;
        std::size_t written = 0;  ///< bytes that are as the peer serves them
        std::size_t touched = 0;  ///< bytes that are not as they were before
        std::chrono::microseconds took{};
        [[nodiscard]] bool ok() const {
            return status == completion_status::success && wrong_bytes == 0;
        }
    };
    /// READs `bytes` of the peer's, expects the pattern of `seed`, and looks at every byte.
    outcome read(std::uint64_t address, std::uint32_t key, std::uint32_t bytes, std::uint32_t seed,
                 std::chrono::milliseconds limit);
    [[nodiscard]] result<queue_pair_state> state() const { return queue_pair_->state(); }
    /// Whether a READ's completion raises an event within `limit`; the READ itself must succeed.
    bool raises_event(std::uint64_t address, std::uint32_t key, std::chrono::milliseconds limit);

private:
    probe_end() = default;
    bool drain();
    /// The completion of `id`; none in time. Others are dropped.
    result<std::optional<completion>> await(std::uint64_t id,
                                            std::chrono::steady_clock::time_point until);
    result<void> succeeds(std::uint64_t id, const char* step, std::chrono::milliseconds limit);

    std::unique_ptr<std::byte[]> served_;
    std::unique_ptr<std::byte[]> sink_;
    std::size_t bytes_ = 0;  ///< of each
    std::unique_ptr<memory_region> served_region_;
    std::unique_ptr<memory_region> sink_region_;
    std::shared_ptr<completion_queue> completions_;
    std::unique_ptr<queue_pair> queue_pair_;
    std::unique_ptr<memory_window> window_;
    std::uint64_t next_id_ = 1;
    unsigned outstanding_ = 0;
    bool drained_by_destruction_ = false;
};

}  // namespace rvget::fabric
