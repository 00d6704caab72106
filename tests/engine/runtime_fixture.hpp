#pragma once
// What the tests of the runtime share: a runtime on an io_context that the test itself runs, raw
// sockets as the other side, and a recorder of what a link says.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <future>
#include <initializer_list>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>

#include "engine/runtime.hpp"
#include "wire/frames.hpp"

namespace rvget::test {

using namespace std::chrono_literals;
using bytes = std::vector<std::byte>;

inline constexpr auto patience = 20s;  ///< for what must happen; nothing waits that long

inline bytes random_bytes(std::size_t count, std::uint32_t seed) {
    std::minstd_rand generator(seed + 1);
    bytes out(count);
    for (std::byte& b : out) b = static_cast<std::byte>(generator() >> 7);
    return out;
}

/// Owns a file descriptor.
class socket_owner {
public:
    explicit socket_owner(int fd = -1) : fd_(fd) {}
    socket_owner(socket_owner&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
    socket_owner& operator=(socket_owner&& o) noexcept {
        std::swap(fd_, o.fd_);
        return *this;
    }
    ~socket_owner() { close(); }
    [[nodiscard]] int get() const { return fd_; }
    void close() {
        if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    }
    /// Closes with a reset instead of a farewell.
    void reset() {
        const linger now{1, 0};
        ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        close();
    }
    void write(std::span<const std::byte> what) const {
        while (!what.empty()) {
            const ssize_t n = ::send(fd_, what.data(), what.size(), MSG_NOSIGNAL);
            if (n <= 0) throw std::runtime_error("raw peer cannot write");
            what = what.subspan(static_cast<std::size_t>(n));
        }
    }
    /// Exactly `count` bytes, or fewer where the stream ends before.
    [[nodiscard]] bytes read(std::size_t count) const {
        bytes out(count);
        std::size_t have = 0;
        while (have < count) {
            const ssize_t n = ::recv(fd_, out.data() + have, count - have, 0);
            if (n <= 0) break;
            have += static_cast<std::size_t>(n);
        }
        out.resize(have);
        return out;
    }

private:
    int fd_;
};

inline sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons(port);
    return a;
}

/// A TCP socket bound to a free loopback port.
inline std::pair<socket_owner, std::uint16_t> bound_socket() {
    socket_owner s(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in a = loopback(0);
    socklen_t length = sizeof a;
    if (::bind(s.get(), reinterpret_cast<sockaddr*>(&a), sizeof a) != 0 ||
        ::getsockname(s.get(), reinterpret_cast<sockaddr*>(&a), &length) != 0) {
        throw std::runtime_error("no loopback port");
    }
    return {std::move(s), ntohs(a.sin_port)};
}

inline socket_owner connect_raw(std::uint16_t port) {
    socket_owner s(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in a = loopback(port);
    if (::connect(s.get(), reinterpret_cast<const sockaddr*>(&a), sizeof a) != 0) {
        throw std::runtime_error("raw peer cannot connect");
    }
    return s;
}

struct frame_bytes {
    bytes head;
    bytes payload;
    bool to_destination = false;
    friend bool operator==(const frame_bytes&, const frame_bytes&) = default;
};

/// Each head with each payload, in no order; the first byte of the head decides who provides the
/// payload's memory.
inline std::vector<frame_bytes> frames_of_sizes(std::initializer_list<std::size_t> heads,
                                                std::initializer_list<std::size_t> payloads) {
    std::vector<frame_bytes> out;
    std::uint32_t seed = 0;
    for (const auto head : heads)
        for (const auto payload : payloads)
            for (const bool destination : {false, true}) {
                frame_bytes f{random_bytes(head, ++seed), random_bytes(payload, ++seed),
                              destination && payload > 0};
                f.head.front() = std::byte{destination ? std::uint8_t{1} : std::uint8_t{0}};
                out.push_back(std::move(f));
            }
    std::shuffle(out.begin(), out.end(), std::minstd_rand(7));
    return out;
}

inline bytes on_the_wire(const frame_bytes& f) {
    const auto prefix = wire::encode_prefix(
        {static_cast<std::uint32_t>(f.head.size()), static_cast<std::uint32_t>(f.payload.size())});
    bytes out(prefix.begin(), prefix.end());
    out.insert(out.end(), f.head.begin(), f.head.end());
    out.insert(out.end(), f.payload.begin(), f.payload.end());
    return out;
}

/// Records what a link says. Heads whose first byte is odd get a destination.
struct recorder : engine::control_link_events {
    void on_frame(std::span<const std::byte> head, std::span<const std::byte> payload) override {
        frame_bytes f{{head.begin(), head.end()}, {payload.begin(), payload.end()}, false};
        if (!destination.empty()) {
            f.to_destination = true;
            payload_beside_destination |= !payload.empty();
            f.payload = std::exchange(destination, {});
        }
        frames.push_back(std::move(f));
        if (on_each) on_each();
    }
    std::span<std::byte> payload_destination(std::span<const std::byte> head,
                                             std::size_t payload_bytes) override {
        if ((std::to_integer<unsigned>(head.front()) & 1) == 0) return {};
        destination.resize(payload_bytes + misfit);
        return destination;
    }
    void on_closed(const failure& why) override {
        ++closed;
        closed_why = why;
    }

    std::vector<frame_bytes> frames;
    bytes destination;
    std::size_t misfit = 0;  ///< added to the size of a destination, against the contract
    bool payload_beside_destination = false;
    std::function<void()> on_each;
    int closed = 0;
    failure closed_why;
};

/// A runtime embedded in an io_context that the test runs by hand, so that all is on one thread.
struct embedded {
    explicit embedded(const engine::runtime_options& options = {}) : rt(context, options) {}

    /// Runs handlers until `holds`; false when it does not come true in time.
    template <class P>
    bool until(P holds) {
        const auto end = std::chrono::steady_clock::now() + patience;
        while (!holds()) {
            context.restart();
            context.run_one_until(end);
            if (std::chrono::steady_clock::now() >= end) return false;
        }
        return true;
    }
    /// Runs `f` on the strand and waits for its end.
    template <class F>
    void on_strand(F f) {
        bool ran = false;
        rt.post([&] {
            f();
            ran = true;
        });
        if (!until([&] { return ran; })) throw std::runtime_error("the strand does not run");
    }

    /// Listens on a free loopback port; what connects is in `accepted`.
    std::uint16_t listen() {
        std::uint16_t port = 0;
        on_strand([&] {
            port = rt.network()
                       .listen({"127.0.0.1", 0}, [this](auto link) { accepted.push_back(link); })
                       .value()
                       .port;
        });
        return port;
    }
    /// A started link and the raw socket at its other end.
    socket_owner raw_peer(const std::shared_ptr<recorder>& events,
                          std::shared_ptr<engine::control_link>& link) {
        const std::uint16_t port = listen();
        socket_owner peer = connect_raw(port);
        if (!until([&] { return !accepted.empty(); })) throw std::runtime_error("not accepted");
        link = accepted.front();
        accepted.clear();
        on_strand([&] {
            rt.network().stop_listening();
            link->start(events);
        });
        return peer;
    }

    boost::asio::io_context context;
    std::vector<std::shared_ptr<engine::control_link>> accepted;
    engine::runtime rt;
};

}  // namespace rvget::test
