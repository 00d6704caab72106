#include "engine/serve_lane.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "engine/planted.hpp"

namespace rvget::engine {

serve_lane::serve_lane(services& s, std::uint32_t generation) : s_(s), generation_(generation) {}

// Destruction is asked for by destroy(); a lane that dies otherwise dies with its node, when
// nothing is wired any more.
serve_lane::~serve_lane() = default;

void serve_lane::wire(const std::string& own_address, const wire::queue_pair_facts& consumer) {
    struct work {
        wire::queue_pair_facts facts;
        std::unique_ptr<fabric::queue_pair> queue_pair;
        failure error;
    };
    auto w = std::make_shared<work>();
    w->facts.starting_psn = static_cast<std::uint32_t>(s_.env.random()) & 0xffffffU;
    status_ = lane_status::making;
    s_.rdma.lane_born();
    busy_on_worker_ = true;
    s_.env.offload(
        blocking_work::make,
        [w, own_address, consumer, &rdma = s_.rdma] {
            // The consumer's GID is what the packets will be sent to, so it decides our port.
            auto port = rdma.choose_port(own_address, route::gid{consumer.gid}.to_string());
            if (!port) {
                w->error = port.error();
                return;
            }
            const auto& identity = port.value().identity;
            w->facts.gid = identity.gid.bytes;
            w->facts.lid = identity.lid;
            w->facts.path_mtu = identity.active_mtu;
            w->facts.read_depth = rdma.responder_depth();
            auto made = rdma.create_queue_pair(rdma.serving_queue(), identity.port, 1);
            if (!made) {
                w->error = made.error();
                return;
            }
            auto& qp = *made.value();
            w->facts.number = qp.number();
            fabric::receive_parameters rp;
            rp.peer = consumer;
            rp.path_mtu = std::min(identity.active_mtu, consumer.path_mtu);
            rp.responder_depth = std::min(rdma.responder_depth(), consumer.read_depth);
            rp.gid_index = identity.gid_index;
            rp.min_rnr_timer = rdma.retry().min_rnr_timer;
            fabric::send_parameters sp;
            sp.starting_psn = w->facts.starting_psn;
            sp.retry = rdma.retry();
            if (auto r = qp.to_init(fabric::access::remote_read); !r)
                w->error = r.error();
            else if (auto t = qp.to_ready_to_receive(rp); !t)
                w->error = t.error();
            else if (auto u = qp.to_ready_to_send(sp); !u)
                w->error = u.error();
            else
                w->queue_pair = std::move(made.value());
        },
        [self = shared_from_this(), w] {
            self->facts_ = w->facts;
            self->queue_pair_ = std::move(w->queue_pair);
            self->wired(w->error);
        });
}

void serve_lane::wired(const failure& f) {
    busy_on_worker_ = false;
    error_ = f;
    if (f.code) {
        status_ = lane_status::failed;
        ++s_.stats.lanes_failed;
        log(log_level::warning, "serve_lane=" + std::to_string(generation_) +
                                    " state=failed cause=\"" + f.message() + "\"");
    } else {
        status_ = lane_status::ready;
        ++s_.stats.lanes_made;
    }
    if (destroying_) status_ = lane_status::failed;  // given up meanwhile: offer it to nobody
    for (auto& f_settled : std::exchange(settled_, {})) f_settled();
    if (destroying_) begin_destruction();
}

void serve_lane::when_settled(unique_function<void()> f) {
    if (status_ == lane_status::making)
        settled_.push_back(std::move(f));
    else
        f();
}

void serve_lane::destroy(unique_function<void()> proven) {
    if (gone_) {
        proven();
        return;
    }
    if (planted(bug::fence_proven_early))
        s_.env.post(std::move(proven));
    else
        proven_.push_back(std::move(proven));
    if (std::exchange(destroying_, true)) return;
    if (!busy_on_worker_) begin_destruction();
}

void serve_lane::begin_destruction() {
    status_ = lane_status::failed;
    auto doomed = std::make_shared<std::unique_ptr<fabric::queue_pair>>(std::move(queue_pair_));
    s_.env.offload(
        blocking_work::destroy,
        [doomed] {
            // Error first, so that the device refuses what arrives while destruction waits. An
            // error of this step changes nothing: the destruction is the proof.
            if (*doomed) static_cast<void>((*doomed)->to_error());
            doomed->reset();
        },
        [self = shared_from_this()] {
            self->gone_ = true;
            self->s_.rdma.lane_gone();
            for (auto& f : std::exchange(self->proven_, {})) f();
        });
}

}  // namespace rvget::engine
