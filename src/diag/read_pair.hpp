#pragma once
// One end of a probe: a queue pair, a buffer on each side of the rights, and READs with a deadline.

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "fabric/fabric.hpp"

namespace rvget::diag {

/// The byte at `offset` of what a probe serves; `seed` differs from probe to probe, so that bytes
/// left over from another one are noticed.
[[nodiscard]] std::byte pattern_byte(std::uint32_t seed, std::size_t offset) noexcept;

class probe_end {
public:
    /// Registers `bytes` to serve and as many to read into. Blocking (milliseconds).
    static result<std::unique_ptr<probe_end>> make(fabric::device& device, std::uint8_t port,
                                                   std::size_t bytes);
    /// Takes the queue pair to error and waits until the NIC is done with the buffers; where it
    /// does not get done, they are leaked on purpose: the NIC may still write them.
    ~probe_end();
    probe_end(const probe_end&) = delete;
    probe_end& operator=(const probe_end&) = delete;

    [[nodiscard]] std::uint32_t queue_pair_number() const { return queue_pair_->number(); }
    [[nodiscard]] std::uint64_t address() const;
    [[nodiscard]] std::uint32_t remote_key() const { return served_region_->remote_key(); }
    [[nodiscard]] std::size_t size() const { return served_.size(); }
    void fill(std::uint32_t seed);

    /// To RTS towards `peer`; may block for a second in the kernel.
    result<void> connect(const fabric::receive_parameters& receive, std::uint32_t starting_psn);

    struct outcome {
        std::optional<fabric::completion_status> status;  ///< none: no completion in time
        std::uint32_t vendor_error = 0;
        std::size_t wrong_bytes = 0;
        std::size_t first_wrong = 0;
        std::size_t written = 0;  ///< bytes that are as the peer serves them
        std::chrono::microseconds took{};
        [[nodiscard]] bool ok() const {
            return status == fabric::completion_status::success && wrong_bytes == 0;
        }
    };
    /// READs `bytes` of the peer's, expects the pattern of `seed`, and looks at every byte.
    outcome read(std::uint64_t address, std::uint32_t key, std::uint32_t bytes, std::uint32_t seed,
                 std::chrono::milliseconds limit);
    [[nodiscard]] result<fabric::queue_pair_state> state() const { return queue_pair_->state(); }
    /// Whether a READ's completion raises an event within `limit`; the READ itself must succeed.
    bool raises_event(std::uint64_t address, std::uint32_t key, std::chrono::milliseconds limit);

private:
    probe_end() = default;
    bool drain();

    std::vector<std::byte> served_;
    std::vector<std::byte> sink_;
    std::unique_ptr<fabric::memory_region> served_region_;
    std::unique_ptr<fabric::memory_region> sink_region_;
    std::shared_ptr<fabric::completion_queue> completions_;
    std::unique_ptr<fabric::queue_pair> queue_pair_;
    std::uint64_t next_id_ = 1;
    unsigned outstanding_ = 0;
};

}  // namespace rvget::diag
