#pragma once
// What RDMA-CM makes of a path: it resolves an address and a route and shakes hands, each step with
// a deadline of its own, because some never end by themselves (a listener that does not answer, CM
// packets that are dropped). No data flows. For trying out a path; blocking, so never on a reactor.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include <rvget/error.hpp>

#include "fabric/connection.hpp"

namespace rvget::fabric {

namespace cm {
class identifier;
}

/// An identifier of RDMA-CM and the channel of its events.
class cm_end {
public:
    /// Listens at a numeric address, on a port of the kernel's choice.
    static result<std::unique_ptr<cm_end>> listen(const std::string& address);
    static result<std::unique_ptr<cm_end>> make();
    ~cm_end();
    cm_end(const cm_end&) = delete;
    cm_end& operator=(const cm_end&) = delete;

    [[nodiscard]] std::uint16_t port() const;
    /// Accepts one connection for the queue pair of that number, and waits until it is established;
    /// each step takes at most `limit`.
    result<void> accept(std::uint32_t queue_pair, std::chrono::milliseconds limit);

    struct connected {
        std::uint32_t path_mtu_bytes = 0;  ///< that RDMA-CM would give both queue pairs
        std::chrono::milliseconds took{};
    };
    /// The steps before the handshake: address and route. The path MTU that RDMA-CM would give; 0
    /// where it has none.
    result<std::uint32_t> resolve(const std::string& own, const std::string& peer,
                                  std::uint16_t port, std::chrono::milliseconds limit);
    /// From `own` to `peer`, numeric addresses. A failure names the step, and the event that ended
    /// it.
    result<connected> connect(const std::string& own, const std::string& peer, std::uint16_t port,
                              std::uint32_t queue_pair, std::chrono::milliseconds limit);

private:
    explicit cm_end(std::unique_ptr<cm::identifier> id);

    std::unique_ptr<cm::identifier> id_;
    std::unique_ptr<cm::identifier> accepted_;
};

}  // namespace rvget::fabric
