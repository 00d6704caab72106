// The rendezvous over a real queue pair, against an owner in another process or on another host.
// Every byte of every get is compared. See owner_host for the other side.

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "api/node_impl.hpp"
#include "fabric/fault/fault_provider.hpp"
#include "softroce/payload_sizes.hpp"
#include "softroce/remote_owner.hpp"
#include "support/pattern.hpp"

namespace rvget {

std::ostream& operator<<(std::ostream& out, path p) { return out << to_string(p); }
std::ostream& operator<<(std::ostream& out, reason r) { return out << to_string(r); }

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

using test::large_payload;
using test::remote_owner;
constexpr std::uint64_t medium = test::payload_sizes.back();

/// What the tests share, and the word to the owner's host that all are over.
struct suite {
    static inline remote_owner owner;
    static inline std::vector<std::byte> memory;  ///< touched once, see remote_owner
    suite() { memory.resize(test::large_payload); }
    ~suite() { owner.exit(); }
};
BOOST_TEST_GLOBAL_FIXTURE(suite);

std::string run(const std::string& command, int* status = nullptr) {
    std::string output;
    auto* pipe = popen(command.c_str(), "r");
    BOOST_REQUIRE(pipe != nullptr);
    std::array<char, 4096> buffer{};
    for (std::size_t n = 0; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
        output.append(buffer.data(), n);
    const int ended = pclose(pipe);
    if (status != nullptr) *status = ended;
    return output;
}

std::string once_program() {
    return fs::read_symlink("/proc/self/exe").parent_path() / "softroce_once";
}

/// A consumer over the real device, whose fabric calls a test may break or watch.
struct consumer_fixture {
    remote_owner& owner = suite::owner;
    std::span<std::byte> memory{suite::memory};
    std::shared_ptr<fabric::fault::plan> plan = std::make_shared<fabric::fault::plan>();
    std::unique_ptr<fabric::provider> provider = fabric::fault::make_fault_provider(
        fabric::make_provider(node_options::from_environment().mlx5), plan);
    std::optional<node> consumer;

    /// Options with which a get of `medium` takes many posts, so that something can happen between.
    static node_options small_pieces() {
        node_options o;
        o.read_piece_bytes = 65536;
        o.read_depth = 4;
        return o;
    }

    /// A guest on a busy machine may leave a packet unanswered for longer than the default.
    static node_options patient() {
        node_options o;
        o.retry_window = 5s;
        return o;
    }

    node& start(node_options o = patient()) {
        o.first_arena_bytes = std::size_t{4} << 20;
        o.wireup = node_options::from_environment().wireup;
        o.wireup_wait = 5s;  // no get goes in chunks because the guest was slow to connect
        consumer.emplace(start_node_on(provider.get(), o).value());
        return *consumer;
    }
    ~consumer_fixture() {
        if (consumer) BOOST_CHECK(consumer->shutdown(10s));
    }

    /// Path that a whole get of `size` takes where everything works.
    static path expected_path(std::uint64_t size) {
        return size <= 4096 ? path::inline_answer : size < 65536 ? path::chunked : path::rdma;
    }
};

void check_bytes(std::span<const std::byte> bytes, std::uint64_t first = 0) {
    BOOST_CHECK_EQUAL(test::pattern_mismatch(bytes, first), bytes.size());
}

BOOST_FIXTURE_TEST_SUITE(softroce_get, consumer_fixture)

BOOST_AUTO_TEST_CASE(get_of_each_size_and_kind_returns_the_bytes_by_the_expected_path) {
    owner.start("--large");
    auto& n = start();
    BOOST_REQUIRE_MESSAGE(n.rdma().usable, n.rdma().detail);
    auto registered = n.register_region(memory).value();
    const get_options patient{.deadline = 120s};  // a guest on a busy machine is slow with 64 MiB
    for (const auto& [size, from] : owner.urls) {
        BOOST_TEST_CONTEXT("size " << size) {
            const auto expected = expected_path(size);
            if (size != large_payload) {  // the pool of a guest is not for that
                const auto before = n.statistics().bytes_copied;
                auto pinned = n.get_pinned(from).value();
                BOOST_CHECK_EQUAL(pinned.data.size(), size);
                BOOST_CHECK_EQUAL(pinned.report.path, expected);
                check_bytes(pinned.data.bytes());
                if (expected == path::rdma) {
                    BOOST_CHECK_EQUAL(pinned.report.reason, reason::ok);
                    BOOST_CHECK(pinned.data.registered());
                    BOOST_CHECK_EQUAL(pinned.report.device, std::getenv("RVGET_RDMA_DEVICE"));
                    BOOST_CHECK_GE(pinned.report.path_mtu, 256U);
                    BOOST_CHECK_EQUAL(n.statistics().bytes_copied, before);  // no copy at all
                }
                std::vector<std::byte> plain(size);
                auto copied = n.get_into(from, plain).value();
                BOOST_CHECK_EQUAL(copied.report.path, expected);
                check_bytes(plain);
            }
            auto owned = n.get(from, patient).value();
            BOOST_CHECK_EQUAL(owned.report.path, expected);
            BOOST_CHECK_LE(owned.report.copied_bytes, size);  // at most one copy
            check_bytes(owned.data.bytes());
            BOOST_CHECK_EQUAL(owned.data.size(), size);
            owned = {};

            std::fill(memory.begin(), memory.end(), std::byte{0xee});
            auto into = n.get_into(from, memory, patient).value();
            BOOST_CHECK_EQUAL(into.bytes, size);
            BOOST_CHECK_EQUAL(into.report.path, expected);
            if (expected == path::rdma) BOOST_CHECK_EQUAL(into.report.copied_bytes, 0U);
            check_bytes(memory.first(size));
            if (size < memory.size()) BOOST_CHECK(memory[size] == std::byte{0xee});
        }
    }
    BOOST_CHECK(registered.unregister().wait_for(10s));
    BOOST_CHECK(n.shutdown(10s));
    const auto s = owner.ask("statistics");
    BOOST_CHECK_EQUAL(s.granted, s.released + s.expired + s.active);
    BOOST_CHECK_EQUAL(s.expired, 0U);
}

BOOST_AUTO_TEST_CASE(get_of_ranges_at_both_ends_and_past_the_end) {
    owner.start();
    auto& n = start();
    const auto& from = owner.urls.at(medium);
    struct range {
        std::uint64_t offset, length, bytes;
    };
    for (const auto& [offset, length, bytes] :
         {range{0, 1, 1}, range{0, 4096, 4096}, range{0, 4097, 4097}, range{0, 65536, 65536},
          range{medium - 1, 1, 1}, range{medium - 1, 100, 1}, range{medium - 70000, 70000, 70000},
          range{medium - 70000, 1U << 30, 70000}, range{1, medium - 2, medium - 2},
          range{medium, 10, 0}, range{12345, 0, 0}}) {
        BOOST_TEST_CONTEXT("offset " << offset << " length " << length) {
            auto got = n.get(from, {.offset = offset, .length = length}).value();
            BOOST_CHECK_EQUAL(got.data.size(), bytes);
            BOOST_CHECK_EQUAL(got.report.slot_bytes, medium);
            BOOST_CHECK_EQUAL(got.report.path, expected_path(bytes));
            check_bytes(got.data.bytes(), offset);
        }
    }
    const auto past = n.get(from, {.offset = medium + 1});
    BOOST_CHECK(past.has_error() && past.error().code == request_errc::out_of_range);
}

BOOST_AUTO_TEST_CASE(contract_1_3_region_of_the_owner_is_read_in_place_by_batches_too) {
    owner.start("--region");
    auto& n = start();
    BOOST_REQUIRE_MESSAGE(n.rdma().usable, n.rdma().detail);
    std::vector<get_item> items;
    for (const auto& [size, from] : owner.urls) items.push_back({from});
    const auto owned = n.get_batch(items, {.deadline = 60s});
    const auto pinned = n.get_pinned_batch(items, {.deadline = 60s});
    auto at = owned.begin();
    auto pinned_at = pinned.begin();
    for (const auto& [size, from] : owner.urls) {
        BOOST_TEST_CONTEXT("size " << size) {
            BOOST_REQUIRE_MESSAGE(!at->error.code, at->error.message());
            BOOST_REQUIRE_MESSAGE(!pinned_at->error.code, pinned_at->error.message());
            BOOST_CHECK_EQUAL(at->value.report.path, expected_path(size));
            BOOST_CHECK_EQUAL(at->value.data.size(), size);
            check_bytes((at++)->value.data.bytes());
            check_bytes((pinned_at++)->value.data.bytes());
        }
    }
    // Many ranges of one handle, each into its place in a region.
    constexpr std::uint64_t part = 70'000;
    auto registered = n.register_region(memory).value();
    std::vector<get_into_item> ranges;
    for (std::uint64_t offset = 0; offset < medium; offset += part)
        ranges.push_back({owner.urls.at(medium),
                          memory.subspan(offset, std::min(part, medium - offset)),
                          {offset, part}});
    std::fill(memory.begin(), memory.end(), std::byte{0xee});
    for (const auto& e : n.get_into_batch(ranges, {.deadline = 60s})) {
        BOOST_REQUIRE_MESSAGE(!e.error.code, e.error.message());
        if (e.value.bytes == part) BOOST_CHECK_EQUAL(e.value.report.path, path::rdma);
    }
    check_bytes(memory.first(medium));
    const auto over = registered.unregister();
    BOOST_CHECK(over.wait_for(10s));
    BOOST_CHECK(over.outcome() == unregister_outcome::drained);
}

BOOST_AUTO_TEST_CASE(contract_5_3_dmabuf_is_not_supported_by_soft_roce) {
    auto& n = start();
    BOOST_REQUIRE_MESSAGE(n.rdma().usable, n.rdma().detail);
    const int file = ::memfd_create("rvget", MFD_CLOEXEC);
    BOOST_REQUIRE(file >= 0 && ::ftruncate(file, 65536) == 0);
    const auto refused = n.register_dmabuf(file, 0, 65536);
    ::close(file);
    BOOST_REQUIRE(!refused);
    BOOST_CHECK_MESSAGE(refused.error().code == request_errc::not_supported,
                        refused.error().message());
}

BOOST_AUTO_TEST_CASE(read_of_64_mib_while_the_owner_is_stopped_after_its_reply_completes) {
    owner.start("--large");
    auto& n = start();
    std::fill(memory.begin(), memory.end(), std::byte{0xee});
    auto registered = n.register_region(memory).value();
    bool stopped = false;
    plan->before(fabric::fault::call::post_reads, 1, [&] {
        owner.signal("STOP");
        stopped = true;
    });
    auto got = n.get_into(owner.urls.at(large_payload), memory, {.deadline = 120s});
    BOOST_CHECK(stopped);
    BOOST_REQUIRE_MESSAGE(got, got.error().message());
    BOOST_CHECK_EQUAL(got.value().report.path, path::rdma);
    BOOST_CHECK_EQUAL(got.value().bytes, large_payload);
    check_bytes(memory);
    owner.signal("CONT");
    BOOST_CHECK(registered.unregister().wait_for(10s));
}

BOOST_AUTO_TEST_CASE(owner_killed_in_the_middle_of_a_get_ends_it_with_a_typed_error) {
    owner.start();
    auto& n = start(small_pieces());
    plan->before(fabric::fault::call::post_reads, 2, [&] { owner.signal("KILL"); });
    // The deadline is what "no hang" means here: the answer comes before it and is not it.
    const auto got = n.get(owner.urls.at(medium), {.deadline = 5s});
    BOOST_REQUIRE(got.has_error());
    BOOST_CHECK_MESSAGE(got.error().code != request_errc::deadline_exceeded, got.error().message());
    BOOST_CHECK_EQUAL(got.error().code.category().name(), connection_category().name());
}

BOOST_AUTO_TEST_CASE(
    contract_4_2_consumer_killed_in_the_middle_of_a_get_loses_its_lease_and_frees_the_slot) {
    owner.start("--lease-timeout 2000");
    int status = 0;
    run(once_program() + " " + owner.urls.at(medium).to_string() + " --die-at-post 2", &status);
    BOOST_CHECK_NE(status, 0);
    BOOST_CHECK_EQUAL(owner.ask("statistics").active, 1U);
    BOOST_CHECK_EQUAL(owner.ask("release").slots, 1U);  // the leased one outlives its reference
    const auto s = owner.settled();
    BOOST_CHECK_EQUAL(s.granted, 1U);
    BOOST_CHECK_EQUAL(s.expired, 1U);
    BOOST_CHECK_EQUAL(s.active, 0U);
    BOOST_CHECK_EQUAL(s.slots, 0U);
}

BOOST_AUTO_TEST_CASE(contract_3_5_kill_switch_on_either_side_makes_gets_chunked_and_says_so) {
    owner.start();
    start({.rdma_disabled = true});
    for (const bool owners : {false, true}) {
        if (owners) {
            owner.start("--rdma-disabled");
            start();
        }
        auto got = consumer->get(owner.urls.at(medium)).value();
        BOOST_CHECK_EQUAL(got.report.path, path::chunked);
        BOOST_CHECK_EQUAL(got.report.reason, reason::kill_switch);
        check_bytes(got.data.bytes());
        const auto required =
            consumer->get(owner.urls.at(medium), {.policy = path_policy::require});
        BOOST_REQUIRE(required.has_error());
        BOOST_CHECK(required.error().code == request_errc::path_not_available);
        BOOST_CHECK(consumer->shutdown(10s));
    }
}

BOOST_AUTO_TEST_CASE(
    contract_3_3_memlock_too_small_falls_back_with_reason_registration_and_says_memlock) {
    owner.start();
    const auto line =
        run("setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock prlimit --memlock=65536 " +
            once_program() + " " + owner.urls.at(medium).to_string());
    BOOST_CHECK_MESSAGE(line.starts_with("chunked registration right"), line);
    BOOST_CHECK_MESSAGE(line.find("memlock") != std::string::npos, line);
}

BOOST_AUTO_TEST_SUITE_END()

// What needs a wire: on one host rxe hands packets over without the network stack.
BOOST_FIXTURE_TEST_SUITE(softroce_wire, consumer_fixture)

BOOST_AUTO_TEST_CASE(udp_4791_dropped_at_the_receiver_falls_back_inside_the_deadline) {
    owner.start();
    auto& n = start();
    run("nft add table inet rvget_drop");
    run("nft add chain inet rvget_drop in '{ type filter hook prerouting priority -300; }'");
    run("nft add rule inet rvget_drop in udp dport 4791 drop");
    auto got = n.get(owner.urls.at(medium), {.deadline = 10s});
    run("nft delete table inet rvget_drop");
    BOOST_REQUIRE_MESSAGE(got, got.error().message());
    BOOST_CHECK_EQUAL(got.value().report.path, path::chunked);
    // RDMA-CM's packets are dropped as well: there it does not come to a READ.
    const bool by_cm = node_options::from_environment().wireup == wireup_choice::cm;
    BOOST_CHECK_EQUAL(got.value().report.reason, by_cm ? reason::no_route : reason::get_failed);
    BOOST_CHECK_MESSAGE(got.value().report.detail.find(by_cm ? "connect: no event in" : "retry") !=
                            std::string::npos,
                        got.value().report.detail);
    check_bytes(got.value().data.bytes());

    // The path is whole again: a new queue pair is tried after its backoff.
    path last = path::chunked;
    for (const auto end = std::chrono::steady_clock::now() + 20s;
         last != path::rdma && std::chrono::steady_clock::now() < end;)
        last = n.get(owner.urls.at(65536)).value().report.path;
    BOOST_CHECK_EQUAL(last, path::rdma);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace rvget
