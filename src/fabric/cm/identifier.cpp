#include "fabric/cm/identifier.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>

#include "fabric/connection.hpp"

namespace rvget::fabric::cm {

namespace {

using clock = std::chrono::steady_clock;

failure failed(const std::string& step, const std::string& why) {
    return {connection_errc::connect_failed, step + ": " + why};
}

/// With the zone of a link-local address ("fe80::1%eth0").
result<sockaddr_storage> address_of(const std::string& text, std::uint16_t port) {
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(text.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
        return failure{request_errc::invalid_argument, text + " is no numeric address"};
    sockaddr_storage storage{};
    std::memcpy(&storage, found->ai_addr, found->ai_addrlen);
    ::freeaddrinfo(found);
    return storage;
}

sockaddr* generic(sockaddr_storage& storage) { return reinterpret_cast<sockaddr*>(&storage); }

}  // namespace

failure failed(const std::string& step, int error) {
    return failed(step, std::string(::strerrorname_np(error)) + " (" + std::strerror(error) + ")");
}

result<void> identifier::open_channel(const char* step) {
    channel_ = ::rdma_create_event_channel();
    if (channel_ == nullptr) return failed(step, errno);
    const int flags = ::fcntl(channel_->fd, F_GETFL);
    if (flags < 0 || ::fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return failed(step, errno);
    return {};
}

result<std::unique_ptr<identifier>> identifier::make() {
    std::unique_ptr<identifier> made(new identifier);
    if (auto open = made->open_channel(cm_unavailable); !open) return open.error();
    if (::rdma_create_id(made->channel_, &made->id_, nullptr, RDMA_PS_TCP) != 0)
        return failed("create an identifier", errno);
    return made;
}

result<std::unique_ptr<identifier>> identifier::adopt(rdma_cm_id* requested) {
    std::unique_ptr<identifier> made(new identifier);
    made->id_ = requested;
    if (auto open = made->open_channel("a channel for a request"); !open) return open.error();
    if (::rdma_migrate_id(requested, made->channel_) != 0)
        return failed("a channel for a request", errno);
    return made;
}

identifier::~identifier() {
    if (id_ != nullptr) ::rdma_destroy_id(id_);
    if (channel_ != nullptr) ::rdma_destroy_event_channel(channel_);
}

result<void> identifier::listen(const std::string& address, int backlog) {
    auto where = address_of(address, 0);
    if (!where) return where.error();
    if (::rdma_bind_addr(id_, generic(*where)) != 0) return failed("bind " + address, errno);
    if (::rdma_listen(id_, backlog) != 0) return failed("listen at " + address, errno);
    return {};
}

std::uint16_t identifier::port() const noexcept { return ntohs(::rdma_get_src_port(id_)); }

result<void> identifier::resolve(const std::string& own, const std::string& peer,
                                 std::uint16_t port, std::chrono::milliseconds limit) {
    auto from = address_of(own, 0);
    auto to = address_of(peer, port);
    if (!from) return from.error();
    if (!to) return to.error();
    const int patience = static_cast<int>(limit.count());
    if (::rdma_resolve_addr(id_, generic(*from), generic(*to), patience) != 0)
        return failed("resolve the address", errno);
    if (auto done = await({RDMA_CM_EVENT_ADDR_RESOLVED}, "resolve the address", limit); !done)
        return done.error();
    if (::rdma_resolve_route(id_, patience) != 0) return failed("resolve the route", errno);
    if (auto done = await({RDMA_CM_EVENT_ROUTE_RESOLVED}, "resolve the route", limit); !done)
        return done.error();
    return {};
}

result<identifier::event> identifier::next(const std::string& step,
                                           std::chrono::milliseconds limit) {
    const auto until = clock::now() + limit;
    for (;;) {
        rdma_cm_event* raw = nullptr;
        if (::rdma_get_cm_event(channel_, &raw) == 0) {
            event e{.kind = raw->event, .status = raw->status, .id = raw->id, .private_data = {}};
            const auto& conn = raw->param.conn;
            const auto* data = static_cast<const std::byte*>(conn.private_data);
            if (data != nullptr) e.private_data.assign(data, data + conn.private_data_len);
            ::rdma_ack_cm_event(raw);
            return e;
        }
        if (errno != EAGAIN && errno != EINTR) return failed(step, errno);
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(until - clock::now());
        if (left.count() <= 0)
            return failed(step, "no event in " + std::to_string(limit.count()) + " ms");
        pollfd readable{channel_->fd, POLLIN, 0};
        ::poll(&readable, 1, static_cast<int>(left.count()));
    }
}

result<identifier::event> identifier::await(std::initializer_list<rdma_cm_event_type> wanted,
                                            const std::string& step,
                                            std::chrono::milliseconds limit) {
    auto got = next(step, limit);
    if (!got || std::ranges::find(wanted, got->kind) != wanted.end()) return got;
    // One more request, in the middle of the first: its identifier is nobody else's.
    if (got->kind == RDMA_CM_EVENT_CONNECT_REQUEST) ::rdma_destroy_id(got->id);
    return failed(
        step, std::string(::rdma_event_str(got->kind)) + ", status " + std::to_string(got->status));
}

}  // namespace rvget::fabric::cm
