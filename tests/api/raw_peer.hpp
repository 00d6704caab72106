#pragma once
// The other end of a control connection, spoken by hand: a blocking socket and frames.

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <rvget/handle.hpp>

#include "wire/frames.hpp"

namespace rvget::test {

using bytes = std::vector<std::byte>;

inline sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons(port);
    return a;
}

/// A frame as it travels. `payload_bytes` announces another length than `payload` has.
inline bytes on_the_wire(const wire::frame& f, std::span<const std::byte> payload = {},
                         std::optional<std::size_t> payload_bytes = {}) {
    const auto head = wire::encode(f);
    const auto prefix =
        wire::encode_prefix({static_cast<std::uint32_t>(head.size()),
                             static_cast<std::uint32_t>(payload_bytes.value_or(payload.size()))});
    bytes out(prefix.begin(), prefix.end());
    out.insert(out.end(), head.begin(), head.end());
    out.insert(out.end(), payload.begin(), payload.end());
    return out;
}

/// Owns a blocking socket whose reads end after 20 s at the latest.
class raw_socket {
public:
    explicit raw_socket(int fd) : fd_(fd) {
        if (fd < 0) throw std::runtime_error("raw peer: no socket");
        const timeval limit{20, 0};
        ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    }
    raw_socket() : raw_socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
    raw_socket(raw_socket&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
    raw_socket& operator=(raw_socket&&) = delete;
    ~raw_socket() { close(); }

    [[nodiscard]] int get() const { return fd_; }
    void close() {
        if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    }
    /// Ends what this side says, and reads that wait, also of other threads.
    void shutdown(int how = SHUT_RDWR) const { ::shutdown(fd_, how); }

    /// False where the peer has gone.
    bool write(std::span<const std::byte> what) const {
        while (!what.empty()) {
            const ssize_t n = ::send(fd_, what.data(), what.size(), MSG_NOSIGNAL);
            if (n <= 0) return false;
            what = what.subspan(static_cast<std::size_t>(n));
        }
        return true;
    }
    bool write(const wire::frame& f, std::span<const std::byte> payload = {}) const {
        return write(on_the_wire(f, payload));
    }
    /// Exactly `count` bytes, or nothing where the stream ends (or is silent) before.
    [[nodiscard]] std::optional<bytes> read(std::size_t count) const {
        bytes out(count);
        for (std::size_t have = 0; have < count;) {
            const ssize_t n = ::recv(fd_, out.data() + have, count - have, 0);
            if (n <= 0) return std::nullopt;
            have += static_cast<std::size_t>(n);
        }
        return out;
    }
    struct received {
        wire::frame frame;
        bytes payload;
    };
    [[nodiscard]] std::optional<received> read_frame() const {
        const auto prefix = read(wire::prefix_bytes);
        if (!prefix) return std::nullopt;
        const auto lengths =
            wire::decode_prefix(std::span(*prefix).first<wire::prefix_bytes>()).value();
        const auto head = read(lengths.head_bytes);
        auto rest = read(lengths.payload_bytes);
        if (!head || !rest) return std::nullopt;
        return received{wire::decode_frame(*head).value(), std::move(*rest)};
    }
    /// Reads until the peer ends the stream; false where it does not within 20 s.
    [[nodiscard]] bool read_to_end() const {
        std::array<std::byte, 4096> sink{};
        for (;;) {
            const ssize_t n = ::recv(fd_, sink.data(), sink.size(), 0);
            if (n == 0) return true;
            if (n < 0) return errno == ECONNRESET;
        }
    }

private:
    int fd_;
};

/// A socket on a free loopback port. Not listening, so that a connect is refused.
class raw_port {
public:
    raw_port() {
        auto a = loopback(0);
        socklen_t length = sizeof a;
        if (::bind(socket_.get(), reinterpret_cast<sockaddr*>(&a), sizeof a) != 0 ||
            ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&a), &length) != 0)
            throw std::runtime_error("raw peer: no loopback port");
        address_ = {"127.0.0.1", ntohs(a.sin_port)};
    }
    void listen() const {
        if (::listen(socket_.get(), 16) != 0) throw std::runtime_error("raw peer: cannot listen");
    }
    [[nodiscard]] raw_socket accept() const {
        return raw_socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    }
    void shutdown() const { socket_.shutdown(); }
    [[nodiscard]] const endpoint_address& address() const { return address_; }

private:
    raw_socket socket_;
    endpoint_address address_;
};

inline raw_socket connect_raw(const endpoint_address& to) {
    raw_socket s;
    const auto a = loopback(to.port);
    if (::connect(s.get(), reinterpret_cast<const sockaddr*>(&a), sizeof a) != 0)
        throw std::runtime_error("raw peer: cannot connect");
    return s;
}

}  // namespace rvget::test
