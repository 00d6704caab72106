#pragma once
// A completion queue read directly. Used from one thread. Knows entries of requests only: receives
// complete elsewhere.

#include <array>
#include <cstring>

#include "fabric/fabric.hpp"
#include "fabric/mlx5/layout.hpp"
#include "fabric/mlx5/platform.hpp"
#include "fabric/mlx5/send_queue.hpp"

namespace rvget::fabric::mlx5 {

struct completion_ring_memory {
    const std::byte* ring = nullptr;
    std::uint32_t entries = 0;      ///< a power of two
    std::uint32_t entry_bytes = 0;  ///< 64 or 128
    std::uint32_t* record = nullptr;
    std::byte* registers = nullptr;  ///< the page whose arm register belongs to it
    std::uint32_t number = 0;
};

/// One entry, decoded.
struct ring_completion {
    completion_status status = completion_status::success;
    std::uint8_t operation = 0;  ///< as posted
    std::uint16_t counter = 0;
    std::uint32_t queue_pair = 0;
    std::uint32_t bytes = 0;
    std::uint8_t syndrome = 0;
    std::uint8_t vendor = 0;
};

completion_status status_of_syndrome(std::uint8_t syndrome) noexcept;

/// Decodes the 64 bytes of an entry. False for one that must not occur: a receive, a code that the
/// device is not known to write, or an answer inside the entry, which was switched off, since the
/// caller's memory would then lack it.
bool decode_entry(std::span<const std::byte, layout::entry> from, ring_completion& out) noexcept;

enum class ring_poll : std::uint8_t { empty, taken, broken };

template <class Platform = hardware>
class completion_ring {
public:
    explicit completion_ring(const completion_ring_memory& m) : memory_(m) {}

    /// Takes the next entry. After `broken` nothing of this queue can be trusted.
    ring_poll poll(ring_completion& out) noexcept {
        const auto* entry = entry_at(next_);
        const auto owner = Platform::load_owner(entry + layout::entry_owner);
        const bool lap = (next_ & memory_.entries) != 0;
        if (owner >> 4 == layout::code_invalid || ((owner & 1) != 0) != lap) {
            return ring_poll::empty;
        }
        Platform::after_owner();
        ++next_;
        return decode_entry(std::span<const std::byte, layout::entry>(entry, layout::entry), out)
                   ? ring_poll::taken
                   : ring_poll::broken;
    }
    /// The bytes of the entry taken last.
    [[nodiscard]] std::span<const std::byte, layout::entry> latest() const noexcept {
        return std::span<const std::byte, layout::entry>(entry_at(next_ - 1), layout::entry);
    }
    /// Tells the device which entries it may overwrite; once after several polls is enough.
    void publish() noexcept {
        Platform::before_consumer();
        Platform::store_record(memory_.record + layout::consumer_record_word,
                               big_endian(next_ & layout::counter_mask));
    }
    /// Asks for an event at the next completion that has had none. Poll once more afterwards.
    void arm() noexcept {
        const auto request =
            (event_ & 3) << layout::arm_sequence_shift | (next_ & layout::counter_mask);
        Platform::store_record(memory_.record + layout::arm_record_word, big_endian(request));
        Platform::before_register();
        Platform::store_register(memory_.registers + layout::arm_register,
                                 big_endian(std::uint64_t{request} << 32 | memory_.number));
        Platform::after_register();
    }
    /// An event of this queue was read: the next request has the next number.
    void event_taken() noexcept { ++event_; }

private:
    [[nodiscard]] const std::byte* entry_at(std::uint32_t index) const noexcept {
        return memory_.ring + std::size_t{index & (memory_.entries - 1)} * memory_.entry_bytes +
               (memory_.entry_bytes - layout::entry);
    }

    completion_ring_memory memory_;
    std::uint32_t next_ = 0;
    std::uint32_t event_ = 0;
};

}  // namespace rvget::fabric::mlx5
