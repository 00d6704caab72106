#pragma once
// One node on its strand: the owner and the consumer side by side, and the orderly end of both.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>

#include "engine/consumer.hpp"
#include "engine/owner.hpp"
#include "engine/owner_connection.hpp"
#include "engine/services.hpp"

namespace rvget::engine {

class node_core {
public:
    node_core(environment& env, control_network& net, const node_options& options,
              std::shared_ptr<rdma_context> rdma);
    ~node_core();
    node_core(const node_core&) = delete;
    node_core& operator=(const node_core&) = delete;

    /// Listens where the options say. Returns the address in use, none for a mere consumer.
    result<std::optional<endpoint_address>> start();

    [[nodiscard]] node_id id() const noexcept { return services_.self; }
    [[nodiscard]] engine::owner& owner() noexcept { return owner_; }
    [[nodiscard]] engine::consumer& consumer() noexcept { return consumer_; }
    [[nodiscard]] rdma_context& rdma() noexcept { return *rdma_; }
    [[nodiscard]] const counters& stats() const noexcept { return stats_; }
    [[nodiscard]] std::size_t spare_queue_pairs() const noexcept {
        return reading_stock_.size() + serving_stock_.size();
    }

    /// Control connections by side and state.
    struct connection_counts {
        std::size_t accepted_handshaking = 0;
        std::size_t accepted_up = 0;
        std::size_t made_connecting = 0;
        std::size_t made_up = 0;
    };
    [[nodiscard]] connection_counts connections() const;

    /// Gates new use of a region at once: no get finds it, and its slots are gone for all but those
    /// who hold leases. What still uses it at `deadline` is told by `timed_out` and made to end:
    /// leases are revoked, gets abandoned. Whoever holds it last hears when that is over.
    void unregister(const region_table::region& r, time_point deadline,
                    unique_function<void()> timed_out);

    /// Gate, let leases end until `deadline`, revoke the rest, drain and destroy queue pairs,
    /// close. `done` hears whether everything was proven quiet; if not, the caller leaks what is
    /// left rather than free it under a NIC. Called once.
    void shutdown(time_point deadline, unique_function<void(bool proven_quiet)> done);

    /// After a shutdown that was not proven quiet, once the environment has stopped: the last
    /// threads that would use it end. What is left of the node is then kept for ever.
    void abandon() { desk_.end(); }

private:
    void accepted(std::shared_ptr<control_link> link);
    [[nodiscard]] bool greeted(const owner_connection& connection);
    void closed(const owner_connection& connection, const failure& why);
    void trim_later();
    void note_refused(const std::string& peer, const failure& why);
    void close_all();

    const node_options& options_;
    std::shared_ptr<rdma_context> rdma_;
    counters stats_;
    const node_id self_;
    std::unique_ptr<control_network> secret_net_;  ///< null where no secret is set
    queue_pair_stock reading_stock_;
    queue_pair_stock serving_stock_;
    connection_desk desk_;
    services services_;
    engine::owner owner_;
    engine::consumer consumer_;
    std::unordered_map<const owner_connection*, std::shared_ptr<owner_connection>> connections_;
    std::deque<const owner_connection*> strangers_;  ///< of these, not greeted yet; oldest first
    std::size_t greeted_ = 0;                        ///< of these
    time_point say_refused_from_{};
    std::uint64_t refused_unsaid_ = 0;
    environment::timer_id shutdown_timer_ = 0;
    environment::timer_id trim_timer_ = 0;
};

}  // namespace rvget::engine
