#pragma once
// One control connection over a TCP socket: the frames of wire/frames.hpp, whole and in order.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "engine/byte_stream.hpp"
#include "engine/control_link.hpp"
#include "engine/event_loop.hpp"
#include "engine/tls.hpp"
#include "wire/frames.hpp"

struct iovec;

namespace rvget::engine {

/// What all links of one network share.
struct tcp_link_context {
    std::shared_ptr<event_loop> loop;
    duration peer_timeout{};
    /// Where sockets are read to before frames are told apart: no link keeps bytes there between
    /// two turns, so thousands of idle ones cost nothing.
    std::vector<std::byte> scratch;
    std::shared_ptr<const tls_context> tls{};  ///< null: bytes travel as they are
};

/// Reads into the shared scratch, and payload straight to its destination; writes gathered frames
/// at the end of the turn that queued them. Touches a destination only inside a turn and never
/// after the link ended. Lives until it is closed, once started, even if nobody holds it.
class tcp_link final : public control_link,
                       public readiness_listener,
                       public continuation,
                       public stop_listener,
                       public std::enable_shared_from_this<tcp_link> {
public:
    /// Takes over `fd`, a TCP socket connected to `host`, and sets its options; null where it
    /// cannot be watched.
    static std::shared_ptr<tcp_link> connected(std::shared_ptr<tcp_link_context> context, int fd,
                                               const std::string& host);
    /// The same for an accepted one. `admission` is let go when the connection ends.
    static std::shared_ptr<tcp_link> accepted(std::shared_ptr<tcp_link_context> context, int fd,
                                              std::shared_ptr<const void> admission);
    ~tcp_link() override;
    tcp_link(const tcp_link&) = delete;
    tcp_link& operator=(const tcp_link&) = delete;

    void start(std::shared_ptr<control_link_events> events) override;
    void send(std::vector<std::byte> head, frame_payload payload) override;
    void forget_destination(std::span<std::byte> destination) override;
    std::size_t queued_bytes() const override { return queued_bytes_; }
    void close(bool flush) override;
    std::string peer_name() const override { return peer_.to_string(); }
    std::string peer_address() const override { return peer_.host; }
    std::string own_address() const override { return own_.host; }

    void readable() override;
    void writable() override;
    void resume() override;
    void stopping() override;

private:
    struct outgoing {
        std::array<std::byte, wire::prefix_bytes> prefix;
        std::vector<std::byte> head;
        frame_payload payload;
        [[nodiscard]] std::size_t bytes() const noexcept {
            return prefix.size() + head.size() + payload.bytes.size();
        }
    };
    enum class progress { some, none };
    struct gathered;

    tcp_link(std::shared_ptr<tcp_link_context> context, std::unique_ptr<descriptor> socket,
             std::unique_ptr<byte_stream> stream, std::shared_ptr<const void> admission);
    static std::shared_ptr<tcp_link> make(std::shared_ptr<tcp_link_context> context, int fd,
                                          std::unique_ptr<byte_stream> stream,
                                          std::shared_ptr<const void> admission);

    [[nodiscard]] bool receiving() const noexcept { return socket_ && !closing_; }
    [[nodiscard]] bool overfull() const noexcept;
    void receive_what_is_there();
    void await_readable();
    void await_writable();
    progress receive(std::size_t& budget);
    progress receive_payload(std::size_t& budget);
    progress receive_frames(std::size_t& budget);
    progress discard();
    /// Bytes received; 0 where there are none now or the connection ended.
    std::size_t read(std::span<const iovec> into);
    std::size_t parse(std::span<const std::byte> bytes);
    bool begin_payload(std::span<const std::byte> head, std::size_t payload_bytes);
    void receive_to_own(std::size_t payload_bytes);
    void finish_payload();

    void flush();
    gathered gather() const;
    void written(std::size_t bytes);
    void end(failure why);
    void broken(const failure& why);
    void tell_closed();

    std::shared_ptr<tcp_link_context> context_;
    event_loop& loop_;
    std::unique_ptr<descriptor> socket_;  ///< null once the connection ended
    std::unique_ptr<byte_stream> stream_;
    std::shared_ptr<const void> admission_;
    endpoint_address peer_;
    endpoint_address own_;
    std::shared_ptr<control_link_events> events_;  ///< null before start and after on_closed
    failure closed_;
    bool closing_ = false;  ///< close(flush): what arrives is dropped, what is queued is written
    environment::timer_id linger_ = 0;

    std::deque<outgoing> queue_;
    std::size_t written_of_front_ = 0;
    std::size_t queued_bytes_ = 0;
    bool stalled_ = false;    ///< reads nothing until the queue is written
    bool flush_due_ = false;  ///< at the end of the turn, or when the socket is ready for it
    // TLS may have to write in order to read, and the other way round.
    bool awaits_writable_ = false;
    bool read_awaits_writable_ = false;
    bool flush_awaits_readable_ = false;

    std::vector<std::byte> partial_;  ///< the beginning of a frame whose head is not all here
    bool in_payload_ = false;
    std::vector<std::byte> head_;  ///< of the frame whose payload arrives
    std::unique_ptr<std::byte[]> own_payload_;
    bool tell_payload_ = false;  ///< own_payload_ goes to on_frame: nobody gave a destination
    std::span<std::byte> payload_;
    std::size_t payload_received_ = 0;
};

}  // namespace rvget::engine
