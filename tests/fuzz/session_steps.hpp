#pragma once
// The steps of a fuzzed session as bytes: what make_seeds writes and fuzz_session reads.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rvget::test {

/// Which node the input speaks to: the first byte, modulo.
enum class session_side : std::uint8_t { owner, consumer, count };

enum class session_step : std::uint8_t {
    frame,       ///< u16 head length, head, u16 payload length: the peer says that
    wait,        ///< u8: tens of milliseconds go by
    nic,         ///< u8: so many steps of the NIC
    hang_up,     ///< the peer closes
    call_again,  ///< owner: the peer connects anew; consumer: one more get, of kind u8
    cancel,      ///< consumer: the latest get
    count,       ///< values are taken modulo this
};

/// Reads operands off an input; zeros beyond its end.
class session_reader {
public:
    explicit session_reader(std::span<const std::byte> in) : rest_(in) {}
    [[nodiscard]] bool empty() const { return rest_.empty(); }
    std::uint8_t u8() {
        if (rest_.empty()) return 0;
        const auto v = std::to_integer<std::uint8_t>(rest_.front());
        rest_ = rest_.subspan(1);
        return v;
    }
    std::uint16_t u16() {
        const auto low = u8();
        return static_cast<std::uint16_t>(low | u8() << 8);
    }
    std::span<const std::byte> take(std::size_t bytes) {
        const auto taken = rest_.first(bytes < rest_.size() ? bytes : rest_.size());
        rest_ = rest_.subspan(taken.size());
        return taken;
    }

private:
    std::span<const std::byte> rest_;
};

class session_writer {
public:
    explicit session_writer(session_side side) { u8(static_cast<std::uint8_t>(side)); }
    session_writer& step(session_step s) { return u8(static_cast<std::uint8_t>(s)); }
    session_writer& u8(std::uint8_t v) {
        bytes.push_back(static_cast<std::byte>(v));
        return *this;
    }
    session_writer& frame(std::span<const std::byte> head, std::uint16_t payload_bytes = 0) {
        step(session_step::frame).u16(static_cast<std::uint16_t>(head.size()));
        bytes.insert(bytes.end(), head.begin(), head.end());
        return u16(payload_bytes);
    }

    std::vector<std::byte> bytes;

private:
    session_writer& u16(std::uint16_t v) {
        return u8(static_cast<std::uint8_t>(v)).u8(static_cast<std::uint8_t>(v >> 8));
    }
};

}  // namespace rvget::test
