// Leases against a consumer that ignores the protocol, over a real queue pair: no byte after the
// end.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <latch>
#include <thread>

#include <boost/test/unit_test.hpp>

#include <rvget/node.hpp>

#include "api/node_impl.hpp"
#include "fabric/fault/fault_provider.hpp"
#include "support/pattern.hpp"
#include "support/rogue_consumer.hpp"

namespace rvget::test {
namespace {

using namespace std::chrono_literals;
constexpr std::size_t payload_bytes = 64 << 10;

unsigned rounds() {
    const char* const wished = std::getenv("RVGET_LATE_READS");
    return wished != nullptr ? static_cast<unsigned>(std::atoi(wished)) : 100U;
}

node start(lease_key_choice keys) {
    node_options o;
    o.listen = endpoint_address{"127.0.0.1", 0};
    o.first_arena_bytes = std::size_t{1} << 20;
    o.retry_window = 25ms;
    o.lease_timeout = 300ms;
    o.wireup_wait = 10s;
    o.lease_keys = keys;
    return node::start(o).value();
}

handle stage(node& n) {
    auto s = n.make_staging(payload_bytes).value();
    BOOST_REQUIRE(s.pinned());
    fill_pattern(s.bytes());
    return n.stage(std::move(s)).value();
}

/// All leases at once, all past their end at once, then a READ with each key, over the queue pair
/// that they were granted on, over new ones, and with keys beside them. How many were refused and
/// brought no byte.
unsigned late_reads_refused(node& owner, rogue_consumer& rogue, unsigned count) {
    const auto slot = stage(owner).slot;
    const auto other = stage(owner).slot;
    const auto expired = owner.statistics().leases_expired;
    std::vector<wire::descriptor> leases;
    leases.push_back(rogue.lease(slot));
    BOOST_TEST((rogue.read(leases[0].address, leases[0].keys.front().remote_key, payload_bytes) ==
                fabric::completion_status::success));
    BOOST_TEST(pattern_mismatch(rogue.sink()) == payload_bytes);
    while (leases.size() < count) leases.push_back(rogue.lease(slot));
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (rogue.metadata(slot).leases != 0 && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(5ms);  // for the owner's clock, which is a real one here
    BOOST_TEST(owner.statistics().leases_expired >= expired + count);
    unsigned refused = 0;
    for (const auto& lease : leases) {
        for (const std::uint32_t guess : {0U, 1U}) {
            const auto status = rogue.read(
                lease.address, lease.keys.front().remote_key + guess * 0x100U, payload_bytes);
            if (status != fabric::completion_status::success && rogue.sink_untouched()) ++refused;
            rogue.drop_lane();
            static_cast<void>(rogue.lease(other));
        }
    }
    return refused;
}

/// A hundred leases at once: a lane has windows for some hundreds.
void late_reads_are_refused(lease_key_choice keys) {
    auto owner = start(keys);
    const auto provider = fabric::make_provider(node_options::from_environment().mlx5);
    rogue_consumer rogue(*provider, connect_raw(*owner.address()), payload_bytes);
    for (unsigned left = rounds(); left != 0;) {
        const auto count = std::min(left, 100U);
        left -= count;
        BOOST_TEST(late_reads_refused(owner, rogue, count) == 2 * count);
    }
}

/// Gets side by side over one queue pair; the owner's NIC refuses the READ of one.
void gets_beside_a_refused_read(lease_key_choice keys) {
    constexpr std::size_t gets = 51;
    constexpr std::size_t bytes = std::size_t{1} << 20;
    node_options o;
    o.listen = endpoint_address{"127.0.0.1", 0};
    o.wireup_wait = 10s;
    o.lease_keys = keys;
    auto owner = node::start(o).value();
    auto staging = owner.make_staging(bytes).value();
    fill_pattern(staging.bytes());
    const auto from = owner.url_of(owner.stage(std::move(staging)).value());

    const auto plan = std::make_shared<fabric::fault::plan>();
    const auto nic = fabric::fault::make_fault_provider(
        fabric::make_provider(node_options::from_environment().mlx5), plan);
    auto consumer =
        start_node_on(nic.get(), {.registered_budget_bytes = std::size_t{128} << 20}).value();
    BOOST_REQUIRE((consumer.get(from)->report.path == path::rdma));
    plan->refuse_read(plan->reads() + 10);
    std::atomic<std::size_t> by_rdma{0};
    std::atomic<std::size_t> by_chunks{0};
    std::latch answered(gets);
    for (std::size_t i = 0; i < gets; ++i)
        consumer.async_get(from, {}, [&](error_code ec, const get_result& r) {
            if (!ec && pattern_mismatch(r.data.bytes()) == bytes)
                ++(r.report.path == path::rdma ? by_rdma : by_chunks);
            answered.count_down();
        });
    answered.wait();
    BOOST_TEST(by_rdma == gets - 1);
    BOOST_TEST(by_chunks == 1u);
    BOOST_TEST(consumer.statistics().gets_rekeyed >= 1u);
    BOOST_TEST(consumer.statistics().queue_pairs_failed == 1u);
    BOOST_TEST(owner.statistics().leases_expired == 0u);
    BOOST_TEST(consumer.shutdown(20s));
    BOOST_TEST(owner.shutdown(20s));
}

BOOST_AUTO_TEST_CASE(contract_4_4_fifty_gets_beside_a_refused_read_go_on_with_windows) {
    gets_beside_a_refused_read(lease_key_choice::window);
}
BOOST_AUTO_TEST_CASE(contract_4_4_fifty_gets_beside_a_refused_read_go_on_with_exact_keys) {
    gets_beside_a_refused_read(lease_key_choice::exact);
}
BOOST_AUTO_TEST_CASE(contract_4_4_fifty_gets_beside_a_refused_read_go_on_with_shared_keys) {
    gets_beside_a_refused_read(lease_key_choice::fence);
}

BOOST_AUTO_TEST_CASE(contract_5_2_device_proves_windows_and_uses_them_by_default) {
    const auto owner = start(lease_key_choice::strongest);
    BOOST_TEST((owner.rdma().lease_keys == lease_key_choice::window),
               owner.rdma().detail + owner.rdma().lease_keys_detail);
}

BOOST_AUTO_TEST_CASE(contract_4_3_late_reads_with_windows_bring_no_byte) {
    late_reads_are_refused(lease_key_choice::window);
}

BOOST_AUTO_TEST_CASE(contract_4_3_late_reads_with_exact_keys_bring_no_byte) {
    late_reads_are_refused(lease_key_choice::exact);
}

}  // namespace
}  // namespace rvget::test
