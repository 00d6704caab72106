#include "fabric/cm/connection.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fabric/cm/identifier.hpp"
#include "fabric/fabric.hpp"

namespace rvget::fabric::cm {

namespace {

/// Requests that the kernel keeps until they are taken; more are refused.
constexpr int backlog = 1024;

/// The kernel's own retries are those of the handshake and of a queue pair that it would move; the
/// user's queue pair gets its own.
rdma_conn_param parameters_of(const connection_terms& t) {
    rdma_conn_param p{};
    p.private_data = t.private_data.data();
    p.private_data_len = static_cast<std::uint8_t>(t.private_data.size());
    p.initiator_depth = t.initiator_depth;
    p.responder_resources = t.responder_depth;
    p.retry_count = 6;  // not 7, which is for ever with rxe
    p.rnr_retry_count = 6;
    p.qp_num = t.queue_pair_number;
    return p;
}

bool is_iwarp(const rdma_cm_id* id) {
    return id->verbs != nullptr && id->verbs->device->node_type == IBV_NODE_RNIC;
}

failure wrong_device(const rdma_cm_id* id, const std::string& device) {
    return {
        connection_errc::connect_failed,
        "the address belongs to RDMA device " +
            std::string(id->verbs != nullptr ? ibv_get_device_name(id->verbs->device) : "(none)") +
            " and not to " + device};
}

bool is_of(const rdma_cm_id* id, const std::string& device) {
    return id->verbs != nullptr && device == ibv_get_device_name(id->verbs->device);
}

class cm_connection final : public connection {
public:
    /// What the kernel settled is asked for at once: it is there from the request, or from the
    /// response on.
    static result<std::unique_ptr<connection>> make(std::unique_ptr<identifier> id,
                                                    std::vector<std::byte> private_data,
                                                    bool requested, bool established) {
        std::unique_ptr<cm_connection> made(new cm_connection);
        made->id_ = std::move(id);
        made->private_data_ = std::move(private_data);
        made->requested_ = requested;
        made->established_ = established;
        if (auto asked = made->ask(); !asked) return asked.error();
        return std::unique_ptr<connection>(std::move(made));
    }

    [[nodiscard]] std::span<const std::byte> private_data() const noexcept override {
        return private_data_;
    }
    [[nodiscard]] const std::optional<receive_parameters>& receive() const noexcept override {
        return receive_;
    }
    [[nodiscard]] std::uint32_t starting_psn() const noexcept override { return psn_; }

    result<void> establish(const connection_terms& terms) override {
        if (established_) return {};
        if (requested_) {
            auto p = parameters_of(terms);
            if (::rdma_accept(id_->get(), &p) != 0) return failed("accept", errno);
        } else if (::rdma_establish(id_->get()) != 0) {
            return failed("establish", errno);
        }
        established_ = true;
        return {};
    }
    void reject(std::span<const std::byte> data) noexcept override {
        if (!requested_ || std::exchange(established_, true)) return;
        // Where the kernel refuses even that, the peer's own limit is what is left to it.
        static_cast<void>(::rdma_reject(id_->get(), data.empty() ? nullptr : data.data(),
                                        static_cast<std::uint8_t>(data.size())));
    }

private:
    result<void> ask() {
        if (is_iwarp(id_->get())) return {};
        ibv_qp_attr a{};
        int mask = 0;
        a.qp_state = IBV_QPS_RTR;
        if (::rdma_init_qp_attr(id_->get(), &a, &mask) != 0)
            return failed("the attributes to receive with", errno);
        receive_parameters r;
        r.peer.number = a.dest_qp_num;
        r.peer.starting_psn = a.rq_psn & 0xffffffU;
        std::memcpy(r.peer.gid.data(), a.ah_attr.grh.dgid.raw, r.peer.gid.size());
        r.peer.lid = a.ah_attr.dlid;
        r.path_mtu = 128U << a.path_mtu;
        r.responder_depth = a.max_dest_rd_atomic;
        r.gid_index = a.ah_attr.grh.sgid_index;
        r.hop_limit = a.ah_attr.grh.hop_limit;
        r.traffic_class = a.ah_attr.grh.traffic_class;
        r.min_rnr_timer = a.min_rnr_timer;
        receive_ = r;
        a = {};
        a.qp_state = IBV_QPS_RTS;
        if (::rdma_init_qp_attr(id_->get(), &a, &mask) != 0)
            return failed("the attributes to send with", errno);
        psn_ = a.sq_psn & 0xffffffU;
        return {};
    }

    std::unique_ptr<identifier> id_;
    std::vector<std::byte> private_data_;
    std::optional<receive_parameters> receive_;
    std::uint32_t psn_ = 0;
    bool requested_ = false;
    bool established_ = false;
};

class cm_listener final : public connection_listener {
public:
    static result<std::unique_ptr<connection_listener>> make(const std::string& device,
                                                             const std::string& address) {
        std::unique_ptr<cm_listener> made(new cm_listener);
        made->stop_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (made->stop_ < 0) return failed("an event descriptor", errno);
        auto id = identifier::make();
        if (!id) return id.error();
        if (auto bound = (*id)->listen(address, backlog); !bound) return bound.error();
        if (!is_of((*id)->get(), device)) return wrong_device((*id)->get(), device);
        made->id_ = std::move(*id);
        return std::unique_ptr<connection_listener>(std::move(made));
    }
    ~cm_listener() override {
        if (stop_ >= 0) ::close(stop_);
    }

    [[nodiscard]] std::uint16_t port() const noexcept override { return id_->port(); }

    result<std::unique_ptr<connection>> next() override {
        for (;;) {
            std::array<pollfd, 2> wait{pollfd{id_->descriptor(), POLLIN, 0},
                                       pollfd{stop_, POLLIN, 0}};
            if (::poll(wait.data(), wait.size(), -1) < 0 && errno != EINTR)
                return failed("wait for requests", errno);
            if (wait[1].revents != 0) return std::unique_ptr<connection>();
            if (wait[0].revents == 0) continue;
            auto event = id_->next("wait for requests", std::chrono::milliseconds(0));
            if (!event) continue;
            if (event->kind == RDMA_CM_EVENT_DEVICE_REMOVAL)
                return failed("wait for requests", ENODEV);
            if (event->kind != RDMA_CM_EVENT_CONNECT_REQUEST) continue;
            // A request that cannot be taken costs the listener nothing.
            auto own = identifier::adopt(event->id);
            if (!own) continue;
            auto made =
                cm_connection::make(std::move(*own), std::move(event->private_data), true, false);
            if (made) return made;
        }
    }
    void stop() noexcept override {
        const std::uint64_t one = 1;
        static_cast<void>(::write(stop_, &one, sizeof one));
    }

private:
    cm_listener() = default;

    std::unique_ptr<identifier> id_;
    int stop_ = -1;
};

/// The peer's own word, where it gave one.
failure refusal(const identifier::event& e) {
    const auto end = std::ranges::find(e.private_data, std::byte{0});
    std::string said(reinterpret_cast<const char*>(e.private_data.data()),
                     static_cast<std::size_t>(end - e.private_data.begin()));
    const bool text = !said.empty() && std::ranges::all_of(said, [](unsigned char c) {
        return c >= 0x20 && c < 0x7f && c != '"';
    });
    return {connection_errc::connect_failed,
            "connect: rejected by the peer" +
                (text ? ", which says \"" + said + "\"" : ", status " + std::to_string(e.status))};
}

}  // namespace

result<std::unique_ptr<connection_listener>> listen(const std::string& device,
                                                    const std::string& address) {
    return cm_listener::make(device, address);
}

result<std::unique_ptr<connection>> connect(const std::string& device,
                                            const connection_target& target,
                                            const connection_terms& terms,
                                            std::chrono::milliseconds limit) {
    auto id = identifier::make();
    if (!id) return id.error();
    if (auto done = (*id)->resolve(target.own_address, target.peer_address, target.port, limit);
        !done)
        return done.error();
    if (!is_of((*id)->get(), device)) return wrong_device((*id)->get(), device);
    auto p = parameters_of(terms);
    if (::rdma_connect((*id)->get(), &p) != 0) return failed("connect", errno);
    // The identifier has no queue pair of its own, so that the last step is the caller's; on iWARP
    // the kernel takes it.
    auto answer = (*id)->await(
        {RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED},
        "connect", limit);
    if (!answer) return answer.error();
    if (answer->kind == RDMA_CM_EVENT_REJECTED) return refusal(*answer);
    return cm_connection::make(std::move(*id), std::move(answer->private_data), false,
                               answer->kind == RDMA_CM_EVENT_ESTABLISHED);
}

}  // namespace rvget::fabric::cm
