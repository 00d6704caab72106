#pragma once
// How the bytes of one connected socket travel: as they are, or through TLS (tls.hpp).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <rvget/error.hpp>

struct iovec;

namespace rvget::engine {

/// Borrows a non-blocking socket and never blocks. All calls on the strand.
class byte_stream {
public:
    virtual ~byte_stream() = default;

    enum class state : std::uint8_t {
        flowing,         ///< try again, though there may be nothing more now
        await_readable,  ///< nothing more moves before the socket is readable
        await_writable,  ///< nothing more moves before the socket is writable
        ended,           ///< the peer says nothing more
        broken,          ///< no byte moves any more, for `why`
    };
    struct outcome {
        std::size_t bytes = 0;  ///< that moved; the state is that after them
        byte_stream::state state = state::flowing;
        failure why{};
    };
    /// Fills `into` in order as far as there are bytes. Fewer than there is room for: there are no
    /// more now.
    virtual outcome read(std::span<const iovec> into) = 0;
    /// Writes what it can of `from`, in order. What did not move is offered again first.
    virtual outcome write(std::span<const iovec> from) = 0;
    /// Nothing more will be written: tells the peer.
    virtual void finish() = 0;
    /// There is something to read although the socket may never be readable again.
    [[nodiscard]] virtual bool holds_bytes() const = 0;
};

/// The bytes as they are.
std::unique_ptr<byte_stream> make_plain_stream(int fd);

}  // namespace rvget::engine
