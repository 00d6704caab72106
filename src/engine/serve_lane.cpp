#include "engine/serve_lane.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "engine/drain_marker.hpp"
#include "engine/planted.hpp"

namespace rvget::engine {

/// Beyond the ids of a lane's windows, which count from 1.
constexpr std::uint64_t marker_id = ~std::uint64_t{0};
/// How long a nonce is good.
constexpr std::chrono::milliseconds connect_limit{5000};

serve_lane::serve_lane(services& s, std::uint32_t generation) : s_(s), generation_(generation) {}

// Destruction is asked for by destroy(); a lane that dies otherwise dies with its node, when
// nothing is wired any more.
serve_lane::~serve_lane() = default;

/// What is asked of a worker thread, and what it makes.
struct serve_lane::wiring {
    std::string own_address;
    wire::queue_pair_facts consumer;
    queue_pair_recipe recipe;
    initial_queue_pair initial;
    local_port port;
    wire::queue_pair_facts facts;
    std::uint16_t connect_port = 0;
    connection_desk* desk = nullptr;
    std::shared_ptr<fabric::connection> connection;

    // On a worker thread.
    result<void> make(rdma_context& rdma);
    result<void> exchange(rdma_context& rdma);
    result<void> prepare(rdma_context& rdma);
    result<void> accept(rdma_context& rdma);
    result<void> expire(rdma_context& rdma);
    result<void> ready(rdma_context& rdma, const fabric::receive_parameters& from);
};

result<void> serve_lane::wiring::make(rdma_context& rdma) {
    // The consumer's GID is what the packets will be sent to, so it decides our port.
    auto chosen = rdma.choose_port(own_address, route::gid{consumer.gid}.to_string());
    if (!chosen) return chosen.error();
    port = std::move(*chosen);
    const auto& identity = port.identity;
    facts.gid = identity.gid.bytes;
    facts.lid = identity.lid;
    facts.path_mtu = identity.active_mtu;
    facts.read_depth = rdma.responder_depth();
    if (auto r = recipe.make(rdma, identity.port, initial); !r) return r;
    facts.number = initial.queue_pair->number();
    return {};
}

/// To RTS, with what is the same in both ways.
result<void> serve_lane::wiring::ready(rdma_context& rdma, const fabric::receive_parameters& from) {
    auto rp = from;
    rp.path_mtu = std::min({from.path_mtu, facts.path_mtu, consumer.path_mtu});
    rp.responder_depth = std::min(rdma.responder_depth(), consumer.read_depth);
    rp.min_rnr_timer = rdma.retry().min_rnr_timer;
    fabric::send_parameters sp;
    sp.starting_psn = facts.starting_psn;
    sp.retry = rdma.retry();
    auto& qp = *initial.queue_pair;
    if (auto r = qp.to_ready_to_receive(rp); !r) return r;
    return qp.to_ready_to_send(sp);
}

result<void> serve_lane::wiring::exchange(rdma_context& rdma) {
    if (rdma.needs_cm())
        return failure{request_errc::not_supported,
                       "the owner's device is iWARP, which only RDMA-CM wires up"};
    if (auto r = make(rdma); !r) return r;
    fabric::receive_parameters rp;
    rp.peer = consumer;
    rp.path_mtu = consumer.path_mtu;
    rp.gid_index = port.identity.gid_index;
    return ready(rdma, rp);
}

result<void> serve_lane::wiring::prepare(rdma_context& rdma) {
    if (auto r = make(rdma); !r) return r;
    auto opened = desk->open(port.address);
    if (!opened) return opened.error();
    connect_port = *opened;
    return {};
}

result<void> serve_lane::wiring::accept(rdma_context& rdma) {
    fabric::receive_parameters from;
    from.path_mtu = consumer.path_mtu;
    if (const auto& settled = connection->receive()) {
        from = *settled;
        // Who saw the nonce on its way may be faster than the consumer, and comes from elsewhere.
        if (from.peer.number != consumer.number || from.peer.gid != consumer.gid)
            return failure{connection_errc::connect_failed,
                           "a request with the right nonce came from queue pair " +
                               std::to_string(from.peer.number) + " of GID " +
                               route::gid{from.peer.gid}.to_string() +
                               ", where the consumer's is " + std::to_string(consumer.number) +
                               " of GID " + route::gid{consumer.gid}.to_string()};
    }
    facts.starting_psn = connection->starting_psn();
    if (auto r = ready(rdma, from); !r) return r;
    return connection->establish({.queue_pair_number = facts.number,
                                  .initiator_depth = 1,
                                  .responder_depth = facts.read_depth,
                                  .private_data = {}});
}

result<void> serve_lane::wiring::expire(rdma_context&) {
    return failure{connection_errc::connect_failed,
                   "the consumer did not connect by RDMA-CM within " +
                       std::to_string(connect_limit.count()) +
                       " ms; see whether UDP port 4791 gets here from it"};
}

/// Runs one step on a worker thread, then `then` with its failure, if any. A queue pair that failed
/// goes there.
void serve_lane::run(const std::shared_ptr<wiring>& w, result<void> (wiring::*step)(rdma_context&),
                     void (serve_lane::*then)(const std::shared_ptr<wiring>&, const failure&)) {
    busy_on_worker_ = true;
    auto outcome = std::make_shared<result<void>>();
    s_.env.offload(
        blocking_work::make,
        [w, outcome, step, &rdma = s_.rdma] {
            *outcome = ((*w).*step)(rdma);
            if (*outcome) return;
            w->connection.reset();
            w->initial.destroy();
        },
        [self = shared_from_this(), w, outcome, then] {
            self->busy_on_worker_ = false;
            ((*self).*then)(w, *outcome ? failure{} : outcome->error());
        });
}

void serve_lane::wire(const std::string& own_address, const wire::queue_pair_facts& consumer,
                      bool by_cm, unique_function<void()> on_broken) {
    on_broken_ = std::move(on_broken);
    s_.rdma.resource_born();
    auto w = std::make_shared<wiring>();
    w->own_address = own_address;
    w->consumer = consumer;
    w->desk = &s_.desk;
    w->recipe = s_.serving_stock.recipe();
    w->initial = s_.serving_stock.take();
    if (!w->initial.queue_pair && !s_.rdma.reserve_entries(w->recipe.entries))
        return settle({device_errc::resource,
                       "the owner's completion queue has no room for one more queue pair"});
    reserved_entries_ = w->recipe.entries;
    w->facts.starting_psn = static_cast<std::uint32_t>(s_.env.random()) & 0xffffffU;
    status_ = lane_status::making;
    begun_ = s_.env.now();
    if (by_cm)
        run(w, &wiring::prepare, &serve_lane::await_connection);
    else
        run(w, &wiring::exchange, &serve_lane::wired);
}

/// The consumer is told where to connect, and has a while to do so.
void serve_lane::await_connection(const std::shared_ptr<wiring>& w, const failure& f) {
    if (f.code || destroying_) return wired(w, f);
    facts_ = w->facts;
    awaited_ = w;
    const auto nonce =
        s_.desk.expect([weak = weak_from_this()](std::shared_ptr<fabric::connection> request) {
            const auto self = weak.lock();
            if (!self || !self->awaited_) return;
            const auto accepted = self->stop_awaiting();
            accepted->connection = std::move(request);
            self->run(accepted, &wiring::accept, &serve_lane::wired);
        });
    const auto address = route::parse_gid(w->port.address).value_or(route::gid{});
    connect_to_ = {.address = address.bytes, .port = w->connect_port, .nonce = nonce};
    awaited_timer_ = s_.env.at(s_.env.now() + connect_limit, [self = shared_from_this()] {
        self->run(self->stop_awaiting(), &wiring::expire, &serve_lane::wired);
    });
    for (auto& told : std::exchange(answerable_, {})) told();
}

std::shared_ptr<serve_lane::wiring> serve_lane::stop_awaiting() {
    s_.desk.forget(connect_to_->nonce);
    connect_to_.reset();
    s_.env.cancel(std::exchange(awaited_timer_, 0));
    return std::exchange(awaited_, nullptr);
}

void serve_lane::wired(const std::shared_ptr<wiring>& w, const failure& f) {
    facts_ = w->facts;
    connection_ = std::move(w->connection);
    queue_pair_ = std::move(w->initial.queue_pair);
    if (queue_pair_) s_.serving_stock.note_port(w->initial.port);
    if (queue_pair_ && reserved_entries_ != 0) {
        s_.rdma.attach(queue_pair_->number(), *this);
        keys_ = std::make_shared<window_keys>(s_, *queue_pair_, std::move(w->initial.windows),
                                              [weak = weak_from_this()](const failure& why) {
                                                  if (const auto self = weak.lock())
                                                      self->broken(why);
                                              });
    }
    settle(f);
}

void serve_lane::note_failed(const failure& why) {
    status_ = lane_status::failed;
    error_ = why;
    log(log_level::warning, "serve_lane=" + std::to_string(generation_) +
                                " state=failed cause=" + quoted(why.message()));
}

void serve_lane::settle(const failure& f) {
    if (f.code) {
        ++s_.stats.lanes_failed;
        note_failed(f);
    } else if (destroying_) {
        status_ = lane_status::failed;  // given up meanwhile: offer it to nobody
    } else {
        status_ = lane_status::ready;
        ++s_.stats.lanes_made;
        s_.stats.wireups.record(s_.env.now() - begun_);
    }
    for (auto& told : std::exchange(answerable_, {})) told();
    for (auto& f_settled : std::exchange(settled_, {})) f_settled();
    if (destroying_) begin_destruction();
}

/// A READ was refused, or the device is in trouble: this queue pair serves nobody any more.
void serve_lane::broken(const failure& why) {
    if (destroying_ || status_ == lane_status::failed) return;
    note_failed(why);
    if (auto f = std::exchange(on_broken_, nullptr)) f();
}

void serve_lane::when_settled(unique_function<void()> f) {
    if (status_ == lane_status::making)
        settled_.push_back(std::move(f));
    else
        f();
}

void serve_lane::when_answerable(unique_function<void()> f) {
    if (status_ == lane_status::making && !connect_to_)
        answerable_.push_back(std::move(f));
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
    if (awaited_)
        wired(stop_awaiting(), {});
    else if (!busy_on_worker_)
        begin_destruction();
}

void serve_lane::begin_destruction() {
    status_ = lane_status::failed;
    on_broken_ = nullptr;
    if (keys_) {
        keys_->close(error_);
        // An error of this step changes nothing: the marker, or the destruction, is the proof.
        static_cast<void>(queue_pair_->to_error());
        // Where the device flushes nothing, the destruction is the proof.
        if (keys_->posted() != 0 && !s_.rdma.device()->quirks().drains_by_destruction) {
            // Never destroyed with work posted: what was posted is flushed when the marker is.
            draining_ = shared_from_this();
            marker_posted_ = post_drain_marker(s_, *queue_pair_, marker_id,
                                               "serve_lane=" + std::to_string(generation_));
            return;
        }
    }
    drained();
}

void serve_lane::on_completion(const fabric::completion& c) {
    if (marker_posted_ && c.id == marker_id) {
        s_.rdma.retired(1);
        const auto self = std::exchange(draining_, nullptr);
        return drained();
    }
    keys_->on_completion(c);
}

void serve_lane::drained() {
    window_keys::windows windows;
    if (keys_) {
        s_.rdma.detach(queue_pair_->number());
        windows = keys_->take_windows();
    }
    if (reserved_entries_ != 0) s_.rdma.return_entries(std::exchange(reserved_entries_, 0));
    struct doomed {
        std::unique_ptr<fabric::queue_pair> queue_pair;
        window_keys::windows windows;
        std::shared_ptr<fabric::connection> connection;
    };
    auto d = std::make_shared<doomed>(
        doomed{std::move(queue_pair_), std::move(windows), std::move(connection_)});
    s_.env.offload(
        blocking_work::destroy,
        [d] {
            // Error first, so that the device refuses what arrives while destruction waits. An
            // error of this step changes nothing: the destruction is the proof.
            if (d->queue_pair) static_cast<void>(d->queue_pair->to_error());
            d->connection.reset();
            d->windows.clear();
            d->queue_pair.reset();
        },
        [self = shared_from_this()] {
            self->gone_ = true;
            self->s_.rdma.resource_gone();
            if (self->keys_) self->keys_->gone();
            for (auto& f : std::exchange(self->proven_, {})) f();
        });
}

}  // namespace rvget::engine
