#include "softmlx5/front/wire.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

namespace softmlx5::front {

namespace {

struct header {
    std::uint32_t bytes = 0;  ///< of the payload
    std::uint8_t kind = 0;
    std::uint8_t flags = 0;
    std::uint8_t code = 0;
    std::uint8_t unused = 0;
    std::uint32_t source = 0;
    std::uint32_t destination = 0;
    std::uint32_t sequence = 0;
    std::uint32_t outstanding = 0;
    std::uint32_t immediate = 0;
    std::uint32_t key = 0;
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    std::uint64_t swap_or_add = 0;
    std::uint64_t compare = 0;
};

std::vector<std::byte> encode(const packet& p) {
    const header h{
        .bytes = static_cast<std::uint32_t>(p.payload.size()),
        .kind = static_cast<std::uint8_t>(p.kind),
        .flags = static_cast<std::uint8_t>((p.has_immediate ? 1 : 0) | (p.solicited ? 2 : 0)),
        .code = p.code,
        .source = p.source,
        .destination = p.destination,
        .sequence = p.sequence,
        .outstanding = p.outstanding,
        .immediate = p.immediate,
        .key = p.key,
        .address = p.address,
        .length = p.length,
        .swap_or_add = p.swap_or_add,
        .compare = p.compare};
    std::vector<std::byte> bytes(sizeof h + p.payload.size());
    std::memcpy(bytes.data(), &h, sizeof h);
    if (!p.payload.empty()) std::memcpy(&bytes[sizeof h], p.payload.data(), p.payload.size());
    return bytes;
}

packet decode(const header& h, const std::byte* payload) {
    packet p;
    p.kind = static_cast<packet_kind>(h.kind);
    p.has_immediate = (h.flags & 1) != 0;
    p.solicited = (h.flags & 2) != 0;
    p.code = h.code;
    p.source = h.source;
    p.destination = h.destination;
    p.sequence = h.sequence;
    p.outstanding = h.outstanding;
    p.immediate = h.immediate;
    p.key = h.key;
    p.address = h.address;
    p.length = h.length;
    p.swap_or_add = h.swap_or_add;
    p.compare = h.compare;
    p.payload.assign(payload, payload + h.bytes);
    return p;
}

struct socket_address {
    sockaddr_un at{};
    socklen_t size = 0;

    explicit socket_address(const std::string& name) {
        at.sun_family = AF_UNIX;
        // A leading zero byte: in no file system, gone with its process.
        std::memcpy(at.sun_path + 1, name.data(), name.size());
        size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    }
};

// The system call itself: socket() and close() are interposed.
int stream_socket() {
    return static_cast<int>(
        ::syscall(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}
void close_socket(int socket) { ::syscall(SYS_close, socket); }

}  // namespace

wire::wire() {
    const char* name = std::getenv("SOFTMLX5_NET");
    network_ = name != nullptr ? name : std::to_string(::getuid());
    if (network_.size() > 64) network_.resize(64);
    for (unsigned slot = 1; slot < 256; ++slot) {
        const int socket = stream_socket();
        const socket_address address(name_of(slot));
        if (::bind(socket, reinterpret_cast<const sockaddr*>(&address.at), address.size) == 0 &&
            ::listen(socket, 64) == 0) {
            listener_ = socket;
            slot_ = static_cast<std::uint8_t>(slot);
            return;
        }
        close_socket(socket);
    }
    std::fputs("softmlx5: no slot is free\n", stderr);
    std::abort();
}

wire::~wire() {
    close_socket(listener_);
    for (const auto& [slot, one] : outgoing_) close_socket(one.socket);
    for (const auto& one : incoming_) close_socket(one.socket);
}

std::string wire::name_of(unsigned slot) const {
    return "softmlx5/" + network_ + "/" + std::to_string(slot);
}

void wire::send(packet&& p) {
    auto& to = outgoing_[p.destination >> 16];
    if (to.socket < 0) {
        const int socket = stream_socket();
        const socket_address address(name_of(p.destination >> 16));
        if (::connect(socket, reinterpret_cast<const sockaddr*>(&address.at), address.size) != 0) {
            close_socket(socket);
            return;
        }
        // Room for whole messages: each time that a full socket must wait for the other process
        // costs a turn of the scheduler. Forced where that is allowed, else what is granted.
        const int room = 16 << 20;
        if (::setsockopt(socket, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room) != 0) {
            ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
        }
        to.socket = socket;
    }
    to.waiting.push_back(encode(p));
    push(to);
}

void wire::push(outgoing& to) {
    while (!to.waiting.empty()) {
        auto& first = to.waiting.front();
        const auto done = ::send(to.socket, first.data() + to.sent, first.size() - to.sent,
                                 MSG_NOSIGNAL | MSG_DONTWAIT);
        if (done < 0) {
            if (errno == EAGAIN || errno == EINTR) return;
            close_socket(to.socket);
            to = {};
            return;
        }
        to.sent += static_cast<std::size_t>(done);
        if (to.sent == first.size()) {
            to.waiting.pop_front();
            to.sent = 0;
        }
    }
}

std::vector<packet> wire::receive() {
    std::vector<packet> arrived;
    for (auto& [slot, to] : outgoing_) {
        if (to.socket >= 0) push(to);
    }
    for (;;) {
        const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (socket < 0) break;
        incoming_.push_back({.socket = socket, .bytes = {}});
    }
    for (auto& from : incoming_) {
        std::byte block[65536];
        ssize_t count = 0;
        // Some of it, then answers: on a busy machine a peer repeats its requests faster than this
        // end could read on to their end, and would never hear of the first.
        for (int blocks = 0; blocks < 4; ++blocks) {
            count = ::recv(from.socket, block, sizeof block, MSG_DONTWAIT);
            if (count <= 0) break;
            from.bytes.insert(from.bytes.end(), block, block + count);
        }
        std::size_t at = 0;
        header h;
        while (from.bytes.size() - at >= sizeof h) {
            std::memcpy(&h, &from.bytes[at], sizeof h);
            if (from.bytes.size() - at - sizeof h < h.bytes) break;
            arrived.push_back(decode(h, from.bytes.data() + at + sizeof h));
            at += sizeof h + h.bytes;
        }
        from.bytes.erase(from.bytes.begin(), from.bytes.begin() + static_cast<std::ptrdiff_t>(at));
        if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) {
            close_socket(from.socket);
            from.socket = -1;
        }
    }
    std::erase_if(incoming_, [](const incoming& from) { return from.socket < 0; });
    return arrived;
}

}  // namespace softmlx5::front
