#include "fabric/cm/cm_probe.hpp"

#include <cerrno>
#include <cstring>

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

namespace rvget::fabric {

namespace {

using clock = std::chrono::steady_clock;

result<sockaddr_storage> address_of(const std::string& text, std::uint16_t port) {
    sockaddr_storage storage{};
    auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
    if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        return storage;
    }
    storage = {};
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
    if (::inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        return storage;
    }
    return failure{request_errc::invalid_argument, text + " is no numeric address"};
}

sockaddr* generic(sockaddr_storage& storage) { return reinterpret_cast<sockaddr*>(&storage); }

failure failed(const std::string& step, const std::string& why) {
    return {connection_errc::connect_failed, step + ": " + why};
}
failure failed(const std::string& step, int error) {
    return failed(step, std::string(::strerrorname_np(error)) + " (" + std::strerror(error) + ")");
}

rdma_conn_param parameters_of(std::uint32_t queue_pair) {
    rdma_conn_param p{};
    p.responder_resources = p.initiator_depth = 1;
    p.retry_count = 6;  // not 7, which is for ever with rxe
    p.rnr_retry_count = 6;
    p.qp_num = queue_pair;
    return p;
}

}  // namespace

result<std::unique_ptr<cm_end>> cm_end::make() {
    std::unique_ptr<cm_end> made(new cm_end);
    made->channel_ = ::rdma_create_event_channel();
    if (made->channel_ == nullptr) return failed(cm_unavailable, errno);
    const int flags = ::fcntl(made->channel_->fd, F_GETFL);
    if (::fcntl(made->channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        ::rdma_create_id(made->channel_, &made->id_, nullptr, RDMA_PS_TCP) != 0)
        return failed("create an identifier", errno);
    return made;
}

result<std::unique_ptr<cm_end>> cm_end::listen(const std::string& address) {
    auto made = make();
    if (!made) return made;
    auto where = address_of(address, 0);
    if (!where) return where.error();
    if (::rdma_bind_addr((*made)->id_, generic(*where)) != 0)
        return failed("bind " + address, errno);
    if (::rdma_listen((*made)->id_, 1) != 0) return failed("listen at " + address, errno);
    return made;
}

cm_end::~cm_end() {
    if (accepted_ != nullptr) ::rdma_destroy_id(accepted_);
    if (id_ != nullptr) ::rdma_destroy_id(id_);
    if (channel_ != nullptr) ::rdma_destroy_event_channel(channel_);
}

std::uint16_t cm_end::port() const { return ntohs(::rdma_get_src_port(id_)); }

result<void> cm_end::await(int wanted, const char* step, std::chrono::milliseconds limit,
                           rdma_cm_id** of) {
    const auto until = clock::now() + limit;
    for (;;) {
        rdma_cm_event* event = nullptr;
        if (::rdma_get_cm_event(channel_, &event) == 0) {
            const auto kind = event->event;
            const int status = event->status;
            auto* const id = event->id;
            ::rdma_ack_cm_event(event);
            if (static_cast<int>(kind) == wanted) {
                if (of != nullptr) *of = id;
                return {};
            }
            // One more request, in the middle of the first: its identifier is nobody else's.
            if (kind == RDMA_CM_EVENT_CONNECT_REQUEST) ::rdma_destroy_id(id);
            return failed(
                step, std::string(::rdma_event_str(kind)) + ", status " + std::to_string(status));
        }
        if (errno != EAGAIN) return failed(step, errno);
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(until - clock::now());
        if (left.count() <= 0)
            return failed(step, "no event in " + std::to_string(limit.count()) + " ms");
        pollfd readable{channel_->fd, POLLIN, 0};
        ::poll(&readable, 1, static_cast<int>(left.count()));
    }
}

result<void> cm_end::accept(std::uint32_t queue_pair, std::chrono::milliseconds limit) {
    if (auto asked = await(RDMA_CM_EVENT_CONNECT_REQUEST, "wait for a request", limit, &accepted_);
        !asked)
        return asked;
    auto parameters = parameters_of(queue_pair);
    if (::rdma_accept(accepted_, &parameters) != 0) return failed("accept", errno);
    return await(RDMA_CM_EVENT_ESTABLISHED, "accept", limit);
}

result<std::uint32_t> cm_end::resolve(const std::string& own, const std::string& peer,
                                      std::uint16_t port, std::chrono::milliseconds limit) {
    auto from = address_of(own, 0);
    auto to = address_of(peer, port);
    if (!from) return from.error();
    if (!to) return to.error();
    const int patience = static_cast<int>(limit.count());
    if (::rdma_resolve_addr(id_, generic(*from), generic(*to), patience) != 0)
        return failed("resolve the address", errno);
    if (auto done = await(RDMA_CM_EVENT_ADDR_RESOLVED, "resolve the address", limit); !done)
        return done.error();
    if (::rdma_resolve_route(id_, patience) != 0) return failed("resolve the route", errno);
    if (auto done = await(RDMA_CM_EVENT_ROUTE_RESOLVED, "resolve the route", limit); !done)
        return done.error();
    return id_->route.num_paths > 0 ? 128U << id_->route.path_rec[0].mtu : 0U;
}

result<cm_end::connected> cm_end::connect(const std::string& own, const std::string& peer,
                                          std::uint16_t port, std::uint32_t queue_pair,
                                          std::chrono::milliseconds limit) {
    const auto begun = clock::now();
    const auto path_mtu = resolve(own, peer, port, limit);
    if (!path_mtu) return path_mtu.error();
    auto parameters = parameters_of(queue_pair);
    if (::rdma_connect(id_, &parameters) != 0) return failed("connect", errno);
    // The identifier has no queue pair of its own, so that the last step is the caller's.
    if (auto done = await(RDMA_CM_EVENT_CONNECT_RESPONSE, "connect", limit); !done)
        return done.error();
    if (::rdma_establish(id_) != 0) return failed("establish", errno);
    return connected{
        .path_mtu_bytes = *path_mtu,
        .took = std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - begun)};
}

}  // namespace rvget::fabric
