#pragma once
// Two nodes over real TCP and a simulated NIC that runs in a thread of its own, and what tests do
// with them. Stopping that thread holds every DMA back.

#include <algorithm>
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/test/unit_test.hpp>

#include "api/nodes.hpp"
#include "fabric/fault/fault_provider.hpp"
#include "fabric/sim/network.hpp"

namespace rvget::test {

namespace sim = fabric::sim;
namespace fault = fabric::fault;

inline constexpr std::size_t medium = (std::size_t{1} << 20) + 4097;
inline constexpr std::size_t large = std::size_t{16} << 20;

/// A busy machine makes queue pairs late, and a burst of gets outruns a pool that has to grow;
/// these tests want RDMA.
inline node_options patient(node_options o) {
    o.listen = endpoint_address{"127.0.0.1", 0};
    o.wireup_wait = patience;
    return o;
}

inline constexpr auto short_lease = 400ms;  ///< long enough to be renewed in time on a busy machine
/// Leases share a key: what the tests of held DMA need, because a window would have to be bound.
inline node_options short_lived() {
    node_options o;
    o.lease_keys = lease_key_choice::fence;
    o.retry_window = 50ms;
    o.lease_timeout = short_lease;
    return o;
}

inline node_options with_keys(lease_key_choice keys) {
    node_options o;
    o.lease_keys = keys;
    return o;
}

struct sim_nodes {
    explicit sim_nodes(node_options owner_options = {}, node_options consumer_options = {}) {
        net.run_in_background(true);
        owner.emplace(start_node_on(owner_nic.get(), patient(std::move(owner_options))).value());
        consumer.emplace(
            start_node_on(consumer_nic.get(), patient(std::move(consumer_options))).value());
        BOOST_REQUIRE(owner->rdma().usable || owner->rdma().reason == reason::kill_switch);
    }
    ~sim_nodes() {
        net.run_in_background(true);
        if (consumer) BOOST_TEST(consumer->shutdown(20s));
        if (owner) {
            BOOST_TEST(owner->shutdown(20s));
            check_lease_invariant(*owner);
            BOOST_TEST(owner->statistics().leases_active == 0u);
        }
        consumer.reset();
        owner.reset();
        for (const auto& v : net.violations()) BOOST_ERROR(v);
    }

    [[nodiscard]] url stage(std::size_t bytes) {
        return owner->url_of(owner->stage_pinned(payload(bytes)).value());
    }
    /// Makes the queue pairs, so that what follows is posted at once.
    void warm_up() { BOOST_REQUIRE(consumer->get(stage(medium))->report.path == path::rdma); }
    void hold_dma() { net.run_in_background(false); }
    void release_dma() { net.run_in_background(true); }
    void await_dma(std::span<const std::byte> destination) const {
        const auto end = std::chrono::steady_clock::now() + patience;
        while (!net.dma_pending_into(destination) && std::chrono::steady_clock::now() < end)
            std::this_thread::yield();
        BOOST_REQUIRE(net.dma_pending_into(destination));
    }

    sim::network net{{.piece_bytes = 65536}};
    std::shared_ptr<fault::plan> plan = std::make_shared<fault::plan>();
    std::shared_ptr<fault::plan> owner_plan = std::make_shared<fault::plan>();
    std::unique_ptr<fabric::provider> owner_nic = fault::make_fault_provider(
        net.attach(sim::roce_host("owner", sim::ipv4_gid(10, 0, 0, 1))), owner_plan);
    std::unique_ptr<fabric::provider> consumer_nic = fault::make_fault_provider(
        net.attach(sim::roce_host("consumer", sim::ipv4_gid(10, 0, 0, 2))), plan);
    std::optional<node> owner;
    std::optional<node> consumer;
};

/// The answer of an async_get_into, with its quiet also where it failed.
struct into_answer {
    error_code code;
    get_into_result result;
};
inline std::future<into_answer> get_into(node& n, const url& from, std::span<std::byte> destination,
                                         const get_options& o = {}) {
    auto promise = std::make_shared<std::promise<into_answer>>();
    auto answer = promise->get_future();
    n.async_get_into(from, destination, o, [promise](error_code ec, get_into_result r) {
        promise->set_value({ec, std::move(r)});
    });
    return answer;
}

/// A get into memory that a test cancels once its READ is posted.
struct cancellable_get {
    cancellable_get(sim_nodes& n, const url& from, std::span<std::byte> destination) {
        n.consumer->async_get_into(
            from, destination, {},
            boost::asio::bind_executor(context,
                                       boost::asio::bind_cancellation_slot(
                                           signal.slot(), [this](error_code ec, get_into_result r) {
                                               answer = {ec, std::move(r)};
                                           })));
        n.await_dma(destination);
    }
    [[nodiscard]] quiet cancel() {
        signal.emit(boost::asio::cancellation_type::terminal);
        context.run();
        BOOST_TEST(answer.code == make_error_code(request_errc::cancelled));
        return answer.result.quiet;
    }
    boost::asio::io_context context;
    boost::asio::cancellation_signal signal;
    into_answer answer;
};

}  // namespace rvget::test
