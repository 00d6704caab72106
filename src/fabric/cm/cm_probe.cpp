#include "fabric/cm/cm_probe.hpp"

#include <cerrno>

#include "fabric/cm/identifier.hpp"

namespace rvget::fabric {

namespace {

using clock = std::chrono::steady_clock;

rdma_conn_param parameters_of(std::uint32_t queue_pair) {
    rdma_conn_param p{};
    p.responder_resources = p.initiator_depth = 1;
    p.retry_count = 6;  // not 7, which is for ever with rxe
    p.rnr_retry_count = 6;
    p.qp_num = queue_pair;
    return p;
}

}  // namespace

cm_end::cm_end(std::unique_ptr<cm::identifier> id) : id_(std::move(id)) {}
cm_end::~cm_end() = default;

result<std::unique_ptr<cm_end>> cm_end::make() {
    auto id = cm::identifier::make();
    if (!id) return id.error();
    return std::unique_ptr<cm_end>(new cm_end(std::move(*id)));
}

result<std::unique_ptr<cm_end>> cm_end::listen(const std::string& address) {
    auto made = make();
    if (!made) return made;
    if (auto listening = (*made)->id_->listen(address, 1); !listening) return listening.error();
    return made;
}

std::uint16_t cm_end::port() const { return id_->port(); }

result<void> cm_end::accept(std::uint32_t queue_pair, std::chrono::milliseconds limit) {
    auto asked = id_->await({RDMA_CM_EVENT_CONNECT_REQUEST}, "wait for a request", limit);
    if (!asked) return asked.error();
    auto adopted = cm::identifier::adopt(asked->id);
    if (!adopted) return adopted.error();
    accepted_ = std::move(*adopted);
    auto parameters = parameters_of(queue_pair);
    if (::rdma_accept(accepted_->get(), &parameters) != 0) return cm::failed("accept", errno);
    auto done = accepted_->await({RDMA_CM_EVENT_ESTABLISHED}, "accept", limit);
    if (!done) return done.error();
    return {};
}

result<std::uint32_t> cm_end::resolve(const std::string& own, const std::string& peer,
                                      std::uint16_t port, std::chrono::milliseconds limit) {
    if (auto done = id_->resolve(own, peer, port, limit); !done) return done.error();
    const auto& route = id_->get()->route;
    return route.num_paths > 0 ? 128U << route.path_rec[0].mtu : 0U;
}

result<cm_end::connected> cm_end::connect(const std::string& own, const std::string& peer,
                                          std::uint16_t port, std::uint32_t queue_pair,
                                          std::chrono::milliseconds limit) {
    const auto begun = clock::now();
    const auto path_mtu = resolve(own, peer, port, limit);
    if (!path_mtu) return path_mtu.error();
    auto parameters = parameters_of(queue_pair);
    if (::rdma_connect(id_->get(), &parameters) != 0) return cm::failed("connect", errno);
    // The identifier has no queue pair of its own, so that the last step is the caller's.
    if (auto done = id_->await({RDMA_CM_EVENT_CONNECT_RESPONSE}, "connect", limit); !done)
        return done.error();
    if (::rdma_establish(id_->get()) != 0) return cm::failed("establish", errno);
    return connected{
        .path_mtu_bytes = *path_mtu,
        .took = std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - begun)};
}

}  // namespace rvget::fabric
