#include "engine/node_core.hpp"

#include <utility>
#include <vector>

#include "base/log.hpp"
#include "engine/planted.hpp"

namespace rvget::engine {

node_core::node_core(environment& env, control_network& net, const node_options& options,
                     std::shared_ptr<rdma_context> rdma)
    : options_(options),
      rdma_(std::move(rdma)),
      services_{env, net, options, node_id{env.random()}, *rdma_, stats_},
      owner_(services_),
      consumer_(services_) {
    if (rdma_->usable()) env.watch(rdma_);
}

node_core::~node_core() = default;

result<std::optional<endpoint_address>> node_core::start() {
    if (!options_.listen) return std::optional<endpoint_address>{};
    auto at = services_.net.listen(*options_.listen, [this](std::shared_ptr<control_link> link) {
        accepted(std::move(link));
    });
    if (!at) return at.error();
    return std::optional(at.value());
}

void node_core::accepted(std::shared_ptr<control_link> link) {
    if (owner_.draining() || connections_.size() >= options_.max_consumers) {
        link->close();
        return;
    }
    auto connection = std::make_shared<owner_connection>(
        services_, owner_, std::move(link),
        [this](const owner_connection& closed) { connections_.erase(&closed); });
    connections_.emplace(connection.get(), connection);
    connection->start();
}

void node_core::close_all() {
    std::vector<std::shared_ptr<owner_connection>> open;
    for (auto& [key, connection] : connections_) open.push_back(connection);
    for (auto& connection : open) connection->close("the owner shuts down");
}

void node_core::shutdown(time_point deadline, unique_function<void(bool)> done) {
    auto& env = services_.env;
    services_.net.stop_listening();
    owner_.begin_draining();
    if (planted(bug::slots_dropped_at_shutdown)) owner_.drop_slots();
    consumer_.stop();

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
