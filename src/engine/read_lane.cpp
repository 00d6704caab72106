#include "engine/read_lane.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/log.hpp"
#include "engine/drain_marker.hpp"
#include "engine/planted.hpp"
#include "wire/connect_data.hpp"

namespace rvget::engine {

/// What is posted completes or fails within a retry window, says the specification. A device whose
/// own port is down may do neither (rxe queues such a packet again for ever): without an end to
/// that its lane would hold up every get until its deadline.
constexpr duration least_patience = std::chrono::seconds(5);
constexpr int patience_in_windows = 4;
/// Nor is a crowded link a dead one: 1 MB/s, the least that a lane may get of one.
constexpr std::uint64_t slowest_bytes_per_millisecond = 1000;

/// Each step of RDMA-CM: address, route, handshake. As much as an address that does not resolve
/// costs an exchange.
constexpr std::chrono::milliseconds connect_step_limit{1000};

struct read_lane::wiring {
    std::string own_address;
    std::string peer_address;
    local_port port;
    initial_queue_pair initial;
    failure error;

    // To connect.
    fabric::queue_pair* queue_pair = nullptr;
    fabric::receive_parameters receive;
    fabric::send_parameters send;
    std::optional<wire::connect_point> point;
    std::unique_ptr<fabric::connection> connection;

    // On a worker thread.
    result<void> exchange(rdma_context& rdma);
    result<void> connect(rdma_context& rdma);
};

read_lane::read_lane(services& s, std::uint32_t generation, bool by_cm, failed_handler on_failed)
    : s_(s), generation_(generation), by_cm_(by_cm), on_failed_(std::move(on_failed)) {}

read_lane::~read_lane() = default;

void read_lane::make(const std::string& own_address, const std::string& peer_address,
                     unique_function<void()> ready) {
    self_ = shared_from_this();
    begun_ = s_.env.now();
    s_.rdma.resource_born();
    const auto& recipe = s_.reading_stock.recipe();
    auto w = std::make_shared<wiring>();
    w->initial = s_.reading_stock.take();
    if (!w->initial.queue_pair && !s_.rdma.reserve_entries(recipe.entries)) {
        fail(reason::no_route, {device_errc::resource,
                                "the completion queue has no room for one more queue pair; lower "
                                "read_depth or the number of owners spoken to at once"});
        return;
    }
    reserved_entries_ = recipe.entries;
    w->own_address = own_address;
    w->peer_address = peer_address;
    busy_on_worker_ = true;
    s_.env.offload(
        blocking_work::make,
        [w, &rdma = s_.rdma, recipe] {
            auto port = rdma.choose_port(w->own_address, w->peer_address);
            if (!port) {
                w->error = port.error();
                return;
            }
            w->port = std::move(port.value());
            if (auto r = recipe.make(rdma, w->port.identity.port, w->initial); !r)
                w->error = r.error();
        },
        [self = self_, w, ready = std::move(ready)]() mutable { self->made(w, std::move(ready)); });
}

void read_lane::made(const std::shared_ptr<wiring>& w, unique_function<void()> ready) {
    busy_on_worker_ = false;
    port_ = w->port;
    queue_pair_ = std::move(w->initial.queue_pair);
    if (queue_pair_) {
        s_.rdma.attach(queue_pair_->number(), *this);
        facts_.number = queue_pair_->number();
        facts_.starting_psn = static_cast<std::uint32_t>(s_.env.random()) & 0xffffffU;
        facts_.gid = port_.identity.gid.bytes;
        facts_.lid = port_.identity.lid;
        facts_.path_mtu = port_.identity.active_mtu;
        facts_.read_depth = s_.rdma.initiator_depth();
    }
    if (state_ == state::draining) {  // given up meanwhile
        start_draining();
        return;
    }
    if (w->error.code) {
        fail(reason::no_route, w->error);
        return;
    }
    ++s_.stats.lanes_made;
    s_.reading_stock.note_port(port_.identity.port);
    spent_making_ = s_.env.now() - begun_;
    state_ = state::offered;
    if (retiring_)
        retire();
    else
        ready();
}

void read_lane::connect(const wire::queue_pair_facts& owner, unique_function<void()> up) {
    if (by_cm_ || !begin_connecting(owner, std::move(up))) return;
    run_connecting(std::make_shared<wiring>());
}

void read_lane::connect(const wire::queue_pair_facts& owner, const wire::connect_point& point,
                        unique_function<void()> up) {
    if (!by_cm_ || !begin_connecting(owner, std::move(up))) return;
    auto w = std::make_shared<wiring>();
    w->point = point;
    run_connecting(w);
}

/// Whether it is to go on.
bool read_lane::begin_connecting(const wire::queue_pair_facts& owner, unique_function<void()> up) {
    if (state_ != state::offered || owner_known_) return false;
    on_up_ = std::move(up);
    owner_known_ = true;
    owner_ = owner;
    path_mtu_ = std::min(facts_.path_mtu, owner.path_mtu);
    const auto depth = std::min(s_.rdma.initiator_depth(), owner.read_depth);
    if (depth == 0) {
        // A READ with depth 0 on either end never completes or is refused; say so before it hangs.
        fail(reason::no_route, {device_errc::transition_failed,
                                "the owner's device answers no READs (READ depth 0)"});
        return false;
    }
    depth_ = std::min<std::uint32_t>(depth, s_.options.read_depth);
    state_ = state::connecting;
    begun_ = s_.env.now();
    return true;
}

void read_lane::run_connecting(const std::shared_ptr<wiring>& w) {
    w->port = port_;
    w->queue_pair = queue_pair_.get();
    w->receive.peer = owner_;
    w->receive.path_mtu = path_mtu_;
    w->receive.min_rnr_timer = s_.rdma.retry().min_rnr_timer;
    w->send.starting_psn = facts_.starting_psn;
    w->send.initiator_depth = static_cast<std::uint8_t>(depth_);
    w->send.retry = s_.rdma.retry();
    busy_on_worker_ = true;
    s_.env.offload(
        blocking_work::make,
        [w, &rdma = s_.rdma] {
            if (auto r = w->point ? w->connect(rdma) : w->exchange(rdma); !r) w->error = r.error();
        },
        [self = shared_from_this(), w] { self->connected(*w); });
}

result<void> read_lane::wiring::exchange(rdma_context& rdma) {
    // The index is where the GID stands now, not where it stood when it was offered.
    auto index = rdma.gid_index_of(port.identity);
    if (!index) return index.error();
    receive.gid_index = *index;
    if (auto r = queue_pair->to_ready_to_receive(receive); !r) return r;
    return queue_pair->to_ready_to_send(send);
}

result<void> read_lane::wiring::connect(rdma_context& rdma) {
    if (port.address.empty())
        return failure{connection_errc::connect_failed,
                       "RDMA-CM needs an address of the netdev that " + port.device +
                           " stands on, and none is known (InfiniBand: no IPoIB)"};
    const auto data = wire::encode_connect_data(point->nonce);
    const fabric::connection_terms terms{.queue_pair_number = queue_pair->number(),
                                         .initiator_depth = send.initiator_depth,
                                         .responder_depth = 1,
                                         .private_data = data};
    auto made = rdma.device()->connect({.own_address = port.address,
                                        .peer_address = port.zoned(route::gid{point->address}),
                                        .port = point->port},
                                       terms, connect_step_limit);
    if (!made) return made.error();
    connection = std::move(*made);
    auto rp = receive;
    if (const auto& settled = connection->receive()) {
        if (settled->peer.number != receive.peer.number || settled->peer.gid != receive.peer.gid)
            return failure{connection_errc::connect_failed,
                           "queue pair " + std::to_string(settled->peer.number) + " of GID " +
                               route::gid{settled->peer.gid}.to_string() +
                               " answered, and not the owner's that was told"};
        // RDMA-CM alone gives both ends the path MTU of who connects.
        rp = *settled;
        rp.path_mtu = std::min(rp.path_mtu, receive.path_mtu);
    }
    rp.responder_depth = 0;
    rp.min_rnr_timer = receive.min_rnr_timer;
    send.starting_psn = connection->starting_psn();
    if (auto r = queue_pair->to_ready_to_receive(rp); !r) return r;
    if (auto r = queue_pair->to_ready_to_send(send); !r) return r;
    return connection->establish(terms);
}

void read_lane::connected(wiring& w) {
    busy_on_worker_ = false;
    connection_ = std::move(w.connection);
    if (state_ == state::draining) {
        start_draining();
        return;
    }
    if (w.error.code) {
        fail(reason::no_route, w.error);
        return;
    }
    state_ = state::up;
    was_up_ = true;
    s_.stats.wireups.record(spent_making_ + (s_.env.now() - begun_));
    pump();
    if (auto up = std::exchange(on_up_, nullptr)) up();
    if (retiring_) retire();
}

void read_lane::submit(std::shared_ptr<read_job> job) {
    if (state_ == state::draining || state_ == state::closed) {
        s_.env.post([self = shared_from_this(), job] {
            self->end(job, self->outcome_of(job), self->failure_);
        });
        return;
    }
    waiting_.push_back(std::move(job));
    if (state_ == state::up) pump();
}

void read_lane::extend(read_job& job, time_point lease_end) {
    job.lease_end = std::max(job.lease_end, lease_end);
    if (state_ == state::up) pump();
}

void read_lane::stop(const std::shared_ptr<read_job>& job) {
    if (job->over) return;
    job->stopping = true;
    std::erase(waiting_, job);
    settle(*job);
    if (job->outstanding == 0 && !job->over)
        s_.env.post(
            [self = shared_from_this(), job] { self->end(job, read_job::outcome::stopped, {}); });
    if (retiring_) retire();
}

void read_lane::pump() {
    while (post_batch()) {
    }
}

/// Posts one piece of each waiting job in turn, up to the READ depth, with one doorbell.
bool read_lane::post_batch() {
    constexpr std::size_t most = 64;
    std::array<fabric::read_request, most> requests;
    std::array<std::shared_ptr<read_job>, most> jobs;
    const auto now = s_.env.now();
    const auto piece_limit =
        std::min<std::uint64_t>(s_.options.read_piece_bytes, port_.max_message_bytes);
    std::size_t n = 0;
    std::size_t skipped = 0;  // consecutive jobs whose lease is too short for one more READ
    while (n < most && posted_.size() + n < depth_ && !waiting_.empty() &&
           skipped < waiting_.size()) {
        auto job = std::move(waiting_.front());
        waiting_.pop_front();
        if (now + s_.rdma.retry_window() > job->lease_end && !planted(bug::read_outlives_lease)) {
            waiting_.push_back(std::move(job));
            ++skipped;
            continue;
        }
        skipped = 0;
        const auto piece = static_cast<std::uint32_t>(
            std::min<std::uint64_t>(job->bytes - job->posted, piece_limit));
        requests[n] = {.id = next_id_ + n,
                       .local = job->local + job->posted,
                       .local_key = job->local_key,
                       .remote_address = job->remote_address + job->posted,
                       .remote_key = job->remote_key,
                       .bytes = piece,
                       .signalled = false};
        job->posted += piece;
        jobs[n] = job;
        ++n;
        if (job->posted < job->bytes) waiting_.push_back(std::move(job));
    }
    if (n == 0) return false;

    // One signalled request in every half depth, so that the queue is refilled before it is empty.
    const std::size_t stride = std::max<std::size_t>(1, depth_ / 2);
    for (std::size_t i = 0; i < n; ++i)
        requests[i].signalled = i + 1 == n || (next_id_ + i) % stride == 0;
    if (auto r = queue_pair_->post_reads(std::span(requests.data(), n)); !r) {
        // None was posted: jobs that were taken off the list go back, to end with the lane.
        for (std::size_t i = 0; i < n; ++i)
            if (std::find(waiting_.begin(), waiting_.end(), jobs[i]) == waiting_.end())
                waiting_.push_back(std::move(jobs[i]));
        fail(reason::get_failed, r.error());
        return false;
    }
    for (std::size_t i = 0; i < n; ++i) {
        ++jobs[i]->outstanding;
        posted_.push_back({next_id_ + i, std::move(jobs[i]), requests[i].bytes});
    }
    next_id_ += n;
    if (posted_.size() == n) progress_ = now;
    if (progress_timer_ == 0) watch_progress();
    s_.rdma.posted(static_cast<std::uint32_t>(n));
    s_.env.expect_completions();
    return true;
}

void read_lane::watch_progress() {
    progress_timer_ = 0;
    if (state_ != state::up || posted_.empty()) return;
    std::uint64_t bytes = 0;
    for (const auto& request : posted_) bytes += request.bytes;
    const auto limit = std::max(least_patience, patience_in_windows * s_.rdma.retry_window()) +
                       std::chrono::milliseconds(bytes / slowest_bytes_per_millisecond);
    if (s_.env.now() < progress_ + limit) {
        progress_timer_ =
            s_.env.at(progress_ + limit, [self = shared_from_this()] { self->watch_progress(); });
        return;
    }
    fail(reason::get_failed,
         {connection_errc::queue_pair,
          "no READ completed for " +
              std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(limit).count()) +
              " ms, and the device reports no error, on " + describe() +
              "; see whether its port is up (`rdma link`), and `rvget check HOST`"});
}

void read_lane::on_completion(const fabric::completion& c) {
    if (marker_posted_ && c.id == marker_id_) {
        // Everything before the marker is done with its memory; nothing more is delivered.
        s_.rdma.retired(1);
        drained();
        return;
    }
    note_refused(c);
    if (state_ == state::draining) return;  // the marker settles the rest
    if (c.status == fabric::completion_status::success) {
        progress_ = s_.env.now();
        credit_through(c.id);
        if (state_ == state::up) pump();
        if (retiring_) retire();
        return;
    }
    if (planted(bug::error_credits_unsignalled)) credit_through(c.id);
    s_.stats.completion_failed(c.status);
    fail(reason::get_failed,
         {connection_errc::queue_pair, "READ ended with \"" + std::string(to_string(c.status)) +
                                           "\" (vendor error " + std::to_string(c.vendor_error) +
                                           ") on " + describe() +
                                           "; `rvget check HOST` finds out why"},
         refused_ ? scope::read : scope::path);
}

void read_lane::note_refused(const fabric::completion& c) {
    if (c.status != fabric::completion_status::remote_access) return;
    for (const auto& request : posted_)
        if (request.id == c.id) refused_ = request.job;
}

read_job::outcome read_lane::outcome_of(const std::shared_ptr<read_job>& job) const {
    return scope_ == scope::read && job != refused_ ? read_job::outcome::bystander
                                                    : read_job::outcome::failed;
}

wire::lane_offer read_lane::offer() const {
    wire::lane_offer o{.generation = generation_,
                       .backends = by_cm_ ? wire::backend_cm : wire::backend_exchange};
    if (!owner_known_) o.facts = facts_;
    return o;
}

void read_lane::on_lost(const failure& why) { fail(reason::no_route, why); }

/// RC completes a send queue in order: what stands before a success is done as well.
void read_lane::credit_through(std::uint64_t id) {
    while (!posted_.empty() && posted_.front().id <= id) {
        auto request = std::move(posted_.front());
        posted_.pop_front();
        s_.rdma.retired(1);
        --request.job->outstanding;
        request.job->arrived += request.bytes;
        settle(*request.job);
        if (!request.job->over && request.job->outstanding == 0) {
            if (request.job->arrived == request.job->bytes)
                end(request.job, read_job::outcome::done, {});
            else if (request.job->stopping)
                end(request.job, read_job::outcome::stopped, {});
        }
    }
}

void read_lane::settle(read_job& job) {
    // All bytes are here although the job was told to stop: they are good.
    if (job.arrived == job.bytes) job.stopping = false;
}

void read_lane::end(const std::shared_ptr<read_job>& job, read_job::outcome o, const failure& f) {
    if (std::exchange(job->over, true)) return;
    auto finished = std::move(job->finished);
    finished(o, f);
}

void read_lane::fail(reason why, const failure& f, scope s) {
    if (state_ == state::draining || state_ == state::closed) return;
    state_ = state::draining;
    s_.env.cancel(std::exchange(progress_timer_, 0));
    failure_ = f;
    scope_ = s;
    on_up_ = nullptr;
    // That a lane nobody needs any more is taken down is no news, unless something still ran on it.
    if (!retiring_ || !posted_.empty() || !waiting_.empty()) {
        ++s_.stats.lanes_failed;
        log(log_level::warning, "lane=" + std::to_string(generation_) + " state=failed reason=" +
                                    std::string(to_string(why)) + " cause=" + quoted(f.message()));
    }
    if (on_failed_) std::exchange(on_failed_, nullptr)(why, failure_);
    if (planted(bug::jobs_end_before_drain))
        for (const auto& request : posted_) end(request.job, read_job::outcome::failed, failure_);
    if (!busy_on_worker_) start_draining();
}

void read_lane::start_draining() {
    if (!queue_pair_) {
        drained();
        return;
    }
    if (auto r = queue_pair_->to_error(); !r)
        log(log_level::warning, "lane=" + std::to_string(generation_) +
                                    " action=to_error cause=" + quoted(r.error().message()));
    if (posted_.empty() || planted(bug::drained_without_marker)) {
        drained();
        return;
    }
    if (s_.rdma.device()->quirks().drains_by_destruction)
        return end_queue_pair([self = shared_from_this()] { self->drained(); });
    marker_id_ = next_id_++;
    marker_posted_ =
        post_drain_marker(s_, *queue_pair_, marker_id_, "lane=" + std::to_string(generation_));
    if (marker_posted_) return;
    // The destinations of what is posted stay parked.
    for (auto it = waiting_.begin(); it != waiting_.end();) {
        const auto job = *it;
        it = job->outstanding == 0 ? waiting_.erase(it) : std::next(it);
        if (job->outstanding == 0) end(job, read_job::outcome::failed, failure_);
    }
}

void read_lane::drained() {
    state_ = state::closed;
    s_.rdma.retired(static_cast<std::uint32_t>(posted_.size()));
    auto posted = std::exchange(posted_, {});
    auto waiting = std::exchange(waiting_, {});
    for (auto& request : posted) request.job->outstanding = 0;
    for (auto& request : posted) end(request.job, outcome_of(request.job), failure_);
    for (auto& job : waiting) end(job, outcome_of(job), failure_);
    destroy();
}

void read_lane::destroy() {
    if (reserved_entries_ != 0) s_.rdma.return_entries(std::exchange(reserved_entries_, 0));
    if (!queue_pair_) {
        s_.env.post([self = std::exchange(self_, nullptr)] { self->s_.rdma.resource_gone(); });
        return;
    }
    end_queue_pair([self = std::exchange(self_, nullptr)] { self->s_.rdma.resource_gone(); });
}

/// On a worker thread, because it may block in the kernel.
void read_lane::end_queue_pair(environment::task then) {
    s_.rdma.detach(queue_pair_->number());
    struct doomed {
        std::unique_ptr<fabric::queue_pair> queue_pair;
        std::unique_ptr<fabric::connection> connection;  ///< goes first
    };
    auto d = std::make_shared<doomed>(doomed{std::move(queue_pair_), std::move(connection_)});
    s_.env.offload(
        blocking_work::destroy,
        [d] {
            d->connection.reset();
            d->queue_pair.reset();
        },
        std::move(then));
}

void read_lane::retire() {
    retiring_ = true;
    if (state_ == state::draining || state_ == state::closed) return;
    if (busy_on_worker_ || !waiting_.empty() || !posted_.empty()) return;
    fail(reason::get_failed, {connection_errc::lost, "the connection to the owner was closed"});
}

std::string read_lane::describe() const {
    return "device " + port_.device + " port " + std::to_string(port_.identity.port) + " GID " +
           port_.gid + " to GID " + route::gid{owner_.gid}.to_string() + ", path MTU " +
           std::to_string(path_mtu_) + " (here " + std::to_string(facts_.path_mtu) + ", owner " +
           std::to_string(owner_.path_mtu) + "), queue pairs " + std::to_string(facts_.number) +
           " and " + std::to_string(owner_.number);
}

}  // namespace rvget::engine
