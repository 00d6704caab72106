#pragma once
// An identifier of RDMA-CM and the channel of its events, each step with a deadline of its own,
// because some never end by themselves: a listener that does not answer, CM packets (UDP port 4791)
// that are dropped, raise no event at all. Two calls block in the kernel without one: siw connects
// its TCP connection within rdma_connect(), and an iWARP identifier is destroyed only when its
// handshake has ended (5 s with siw).

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include <rdma/rdma_cma.h>

#include <rvget/error.hpp>

namespace rvget::fabric::cm {

/// "step: ENODEV (No such device)", as a failure to connect.
[[nodiscard]] failure failed(const std::string& step, int error);

class identifier {
public:
    struct event {
        rdma_cm_event_type kind{};
        int status = 0;
        rdma_cm_id* id = nullptr;  ///< of a request: a new one, which is the taker's
        std::vector<std::byte> private_data;
    };

    static result<std::unique_ptr<identifier>> make();
    /// Takes over the identifier of a request, with a channel of its own; destroys it on failure.
    static result<std::unique_ptr<identifier>> adopt(rdma_cm_id* requested);
    ~identifier();
    identifier(const identifier&) = delete;
    identifier& operator=(const identifier&) = delete;

    [[nodiscard]] rdma_cm_id* get() const noexcept { return id_; }
    /// Readable when an event is pending.
    [[nodiscard]] int descriptor() const noexcept { return channel_->fd; }

    /// Listens at a numeric address, on a port of the kernel's choice.
    result<void> listen(const std::string& address, int backlog);
    [[nodiscard]] std::uint16_t port() const noexcept;
    /// The steps before the handshake, from `own` to `peer`, numeric addresses: binds to the device
    /// that has `own`, and finds the way.
    result<void> resolve(const std::string& own, const std::string& peer, std::uint16_t port,
                         std::chrono::milliseconds limit);

    /// The next event; a failure of `step` where there is none in time.
    result<event> next(const std::string& step, std::chrono::milliseconds limit);
    /// Waits for one of `wanted`; another event, or none in time, is a failure of `step`.
    result<event> await(std::initializer_list<rdma_cm_event_type> wanted, const std::string& step,
                        std::chrono::milliseconds limit);

private:
    identifier() = default;
    result<void> open_channel(const char* step);

    rdma_event_channel* channel_ = nullptr;
    rdma_cm_id* id_ = nullptr;
};

}  // namespace rvget::fabric::cm
