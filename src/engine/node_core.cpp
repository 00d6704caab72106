#include "engine/node_core.hpp"

#include <utility>
#include <vector>

#include "base/log.hpp"
#include "engine/planted.hpp"
#include "engine/secret_network.hpp"

namespace rvget::engine {
namespace {

using namespace std::chrono_literals;

/// Strangers decide how often they are refused, so not each refusal gets a line of the log.
constexpr auto refusals_said_every = 10s;

}  // namespace

node_core::node_core(environment& env, control_network& net, const node_options& options,
                     std::shared_ptr<rdma_context> rdma)
    : options_(options),
      rdma_(std::move(rdma)),
      self_(node_id{env.random()}),
      secret_net_(options.secret.empty() ? nullptr
                                         : make_secret_network(env, net, self_, options.secret)),
      reading_stock_(
          env, *rdma_, stats_,
          rdma_->usable() ? queue_pair_recipe::reading(*rdma_, options) : queue_pair_recipe{},
          options.spare_queue_pairs),
      serving_stock_(env, *rdma_, stats_,
                     rdma_->usable() ? queue_pair_recipe::serving(*rdma_) : queue_pair_recipe{},
                     options.spare_queue_pairs),
      desk_(env, *rdma_),
      services_{env,
                secret_net_ ? *secret_net_ : net,
                options,
                self_,
                *rdma_,
                stats_,
                reading_stock_,
                serving_stock_,
                desk_},
      owner_(services_),
      consumer_(services_) {
    if (rdma_->usable()) env.watch(rdma_);
}

node_core::~node_core() = default;

result<std::optional<endpoint_address>> node_core::start() {
    if (rdma_->usable() && options_.arena_idle_time.count() > 0)
        services_.env.post([this] { trim_later(); });
    // An owner that also gets has spares for that from its first connection to an owner on.
    services_.env.post([this] {
        if (options_.listen)
            serving_stock_.fill();
        else if (options_.policy != path_policy::never)
            reading_stock_.fill();
    });
    if (!options_.listen) return std::optional<endpoint_address>{};
    auto at = services_.net.listen(*options_.listen, [this](std::shared_ptr<control_link> link) {
        accepted(std::move(link));
    });
    if (!at) return at.error();
    return std::optional(at.value());
}

/// Unmapping takes milliseconds: not on the strand, nor where the end of a queue pair, which
/// somebody may wait for, would stand behind it.
void node_core::trim_later() {
    if (owner_.draining()) return;
    trim_timer_ = services_.env.at(services_.env.now() + options_.arena_idle_time, [this] {
        trim_timer_ = 0;
        services_.env.offload(
            blocking_work::make,
            [rdma = rdma_, floor = options_.warm_floor_bytes] { rdma->memory().trim(floor); },
            [this] { trim_later(); });
    });
}

void node_core::accepted(std::shared_ptr<control_link> link) {
    if (owner_.draining()) {
        link->close();
        return;
    }
    // The oldest goes, not the newest: who means it has greeted long before, and who only holds a
    // place keeps nobody out.
    if (strangers_.size() >= options_.max_handshakes) {
        const auto oldest = connections_.at(strangers_.front());
        strangers_.pop_front();
        oldest->drop({request_errc::busy, "more than " + std::to_string(options_.max_handshakes) +
                                              " connections that have not greeted"});
    }
    auto connection = std::make_shared<owner_connection>(
        services_, owner_, std::move(link),
        owner_connection::handlers{
            [this](const owner_connection& c) { return greeted(c); },
            [this](const owner_connection& c, const failure& why) { closed(c, why); }});
    strangers_.push_back(connection.get());
    connections_.emplace(connection.get(), connection);
    connection->start();
}

bool node_core::greeted(const owner_connection& connection) {
    std::erase(strangers_, &connection);
    return ++greeted_ <= options_.max_consumers;
}

void node_core::closed(const owner_connection& connection, const failure& why) {
    if (connection.greeted())
        --greeted_;
    else
        note_refused(connection.peer_name(), why);
    std::erase(strangers_, &connection);
    connections_.erase(&connection);
}

node_core::connection_counts node_core::connections() const {
    return {strangers_.size(), greeted_, consumer_.connecting(), consumer_.connected_count()};
}

void node_core::note_refused(const std::string& peer, const failure& why) {
    ++refused_unsaid_;
    ++stats_.strangers_refused;
    const auto now = services_.env.now();
    if (now < say_refused_from_ || owner_.draining()) return;
    say_refused_from_ = now + refusals_said_every;
    log(log_level::warning,
        "event=stranger_refused peer=" + peer + " cause=" + quoted(why.message()) +
            " since_last_line=" + std::to_string(std::exchange(refused_unsaid_, 0)));
}

void node_core::close_all() {
    std::vector<std::shared_ptr<owner_connection>> open;
    for (auto& [key, connection] : connections_) open.push_back(connection);
    for (auto& connection : open) connection->close("the owner shuts down");
}

void node_core::unregister(const region_table::region& r, time_point deadline,
                           unique_function<void()> timed_out) {
    consumer_.regions().remove(*r);
    owner_.withdraw(*r);
    services_.env.at(deadline,
                     [this, weak = std::weak_ptr(r), timed_out = std::move(timed_out)]() mutable {
                         const auto late = weak.lock();
                         if (!late) return;
                         timed_out();
                         owner_.withdraw(*late);  // what was staged while it began
                         owner_.revoke_in(*late);
                         consumer_.abandon_into(*late);
                     });
}

void node_core::shutdown(time_point deadline, unique_function<void(bool)> done) {
    auto& env = services_.env;
    services_.net.stop_listening();
    services_.env.cancel(std::exchange(trim_timer_, 0));
    owner_.begin_draining();
    if (planted(bug::slots_dropped_at_shutdown)) owner_.drop_slots();
    consumer_.stop();
    reading_stock_.close();
    serving_stock_.close();
    desk_.close();

    // Half of the time for consumers to end their leases, the other half to prove the rest quiet.
    const auto half = env.now() + (deadline - env.now()) / 2;
    auto finish = std::make_shared<unique_function<void(bool)>>(std::move(done));
    auto finished = [this, finish](bool quiet) {
        services_.env.cancel(std::exchange(shutdown_timer_, 0));
        if (auto f = std::exchange(*finish, nullptr)) {
            if (!quiet)
                log(log_level::error,
                    "shutdown=leak cause=\"a queue pair could not be proven quiet in time\"");
            if (rdma_->device()) services_.env.unwatch(*rdma_);
            f(quiet);
        }
    };
    shutdown_timer_ = env.at(half, [this, deadline, finished] {
        shutdown_timer_ = services_.env.at(deadline, [this, finished] {
            shutdown_timer_ = 0;
            finished(false);
        });
        owner_.revoke_all();
    });
    owner_.when_no_leases([this, finished] {
        owner_.drop_slots();
        close_all();
        // Connections that are still here after their close give up their lanes by themselves.
        rdma_->when_no_resources([this, finished] {
            // Through the queue, so that nobody is destroyed from within his own handler.
            services_.env.post([finished] { finished(true); });
        });
    });
}

}  // namespace rvget::engine
