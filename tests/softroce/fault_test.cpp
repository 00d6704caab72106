// What breaks between two hosts while gets run (docs/faults.md): the owner's process is on the
// other host (see owner_host), and each case breaks one thing with at least 16 gets in flight. Each
// of them ends with the right bytes or a typed error inside its deadline, the fault leaves its line
// in the log, and where the peer lives gets run by RDMA again.

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>
#include <rvget/log.hpp>

#include "api/node_impl.hpp"
#include "fabric/fault/fault_provider.hpp"
#include "softroce/load.hpp"
#include "softroce/remote_owner.hpp"

namespace rvget {

std::ostream& operator<<(std::ostream& out, path p) { return out << to_string(p); }
std::ostream& operator<<(std::ostream& out, reason r) { return out << to_string(r); }

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using fabric::fault::call;
using test::load;

constexpr std::uint64_t payload = 128U << 10;
constexpr std::size_t enough_in_flight = 16;
/// Long after every fault below: a get that it ends was not ended by what the library noticed.
constexpr auto deadline = 30s;
/// A guest shares two cores with all that runs beside it.
constexpr auto slack = 5s;
/// Twice peer_timeout, and slack.
constexpr auto soon_enough_for_a_death = 11s;
constexpr auto recovery_limit = 40s;
constexpr std::uint16_t port = 7471;

/// The lines of this process but those of debugging.
class log_lines {
public:
    log_lines() {
        set_log_sink([this](log_level level, std::string_view line) {
            if (level < log_level::info) return;
            const std::lock_guard lock(mutex_);
            const auto at = std::chrono::duration_cast<std::chrono::milliseconds>(
                load::clock::now() - cleared_);
            lines_.push_back(std::to_string(at.count()) + " ms: " + std::string(line));
        });
    }
    ~log_lines() { set_log_sink({}); }

    void clear() {
        const std::lock_guard lock(mutex_);
        lines_.clear();
        cleared_ = load::clock::now();
    }
    [[nodiscard]] std::size_t count(std::initializer_list<std::string_view> parts) const {
        const std::lock_guard lock(mutex_);
        return static_cast<std::size_t>(std::ranges::count_if(lines_, [&](const std::string& line) {
            return std::ranges::all_of(
                parts, [&](auto part) { return line.find(part) != std::string::npos; });
        }));
    }
    [[nodiscard]] std::string all() const {
        const std::lock_guard lock(mutex_);
        std::string text;
        for (const auto& line : lines_) text += "\n    " + line;
        return text;
    }

private:
    mutable std::mutex mutex_;
    load::clock::time_point cleared_ = load::clock::now();
    std::vector<std::string> lines_;
};

/// What the cases share, and the word to the owner's host that all are over.
struct suite {
    static inline test::remote_owner owner;
    static inline log_lines log;
    static inline std::vector<std::byte> memory;  ///< touched once: that is slow in a guest
    suite() { memory.resize(load::getters * payload); }
    ~suite() { owner.exit(); }
};
BOOST_TEST_GLOBAL_FIXTURE(suite);

std::string run(const std::string& command) {
    std::string output;
    auto* pipe = popen((command + " 2>&1").c_str(), "r");
    BOOST_REQUIRE(pipe != nullptr);
    std::array<char, 4096> buffer{};
    for (std::size_t n = 0; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
        output.append(buffer.data(), n);
    BOOST_REQUIRE_MESSAGE(pclose(pipe) == 0, command << ": " << output);
    return output;
}

/// Polls, for what no one tells.
template <class Condition>
bool becomes_true(Condition condition, std::chrono::seconds limit) {
    const auto end = load::clock::now() + limit;
    while (!condition()) {
        if (load::clock::now() > end) return false;
        std::this_thread::sleep_for(5ms);
    }
    return true;
}

/// One of the two hosts, as the commands of a fault see it.
struct host {
    const char* name;
    bool is_owners;
    [[nodiscard]] std::string address() const {
        return std::getenv(is_owners ? "RVGET_PEER_ADDR" : "RVGET_ADDR");
    }
    std::string operator()(const std::string& command) const {
        return is_owners ? suite::owner.run(command) : run(command);
    }
};
constexpr host here{"the consumer's host", false};
constexpr host there{"the owner's host", true};

/// Packets that this host's own stack and device never see.
void drop(const host& at, const std::string& what) {
    at("nft 'add table inet fault; add chain inet fault in { type filter hook prerouting priority "
       "-300; }; add rule inet fault in " +
       what + " counter drop'");
}
/// Ends that; there must have been such packets.
void drop_no_more(const host& at) {
    const auto counted = at("nft list table inet fault");
    at("nft delete table inet fault");
    BOOST_CHECK_MESSAGE(counted.find("packets 0 ") == std::string::npos, counted);
}

struct fault_fixture {
    test::remote_owner& owner = suite::owner;
    log_lines& log = suite::log;
    std::shared_ptr<fabric::fault::plan> plan = std::make_shared<fabric::fault::plan>();
    std::unique_ptr<fabric::provider> provider = fabric::fault::make_fault_provider(
        fabric::make_provider(node_options::from_environment().mlx5), plan);
    std::optional<node> consumer;
    region registered;
    std::optional<load> gets;
    std::vector<load::answer> answers;
    load::clock::time_point struck;
    std::uint64_t failed_before = 0;

    fault_fixture() {
        owner.start("--size " + std::to_string(payload) + " --port " + std::to_string(port) +
                    " --peer-timeout 3000");
        node_options o;
        o.first_arena_bytes = std::size_t{16} << 20;
        o.peer_timeout = 3s;  // only how long these tests take
        // A READ that is repeated only because the guests are slow may come after its lease's end;
        // it is refused then, and takes the queue pair with it.
        o.retry_window = 2s;
        o.read_depth = 2;
        consumer.emplace(start_node_on(provider.get(), o).value());
        const auto status = consumer->rdma();
        BOOST_REQUIRE_MESSAGE(status.usable, status.detail);
        registered = consumer->register_region(suite::memory).value();
        gets.emplace(*consumer, url(), payload, suite::memory, deadline);
        BOOST_REQUIRE(gets->comes(&load::answer::rdma, recovery_limit));
        log.clear();
        failed_before = consumer->statistics().queue_pairs_failed;
        static_cast<void>(owner.log());
    }
    ~fault_fixture() {
        gets.reset();
        const auto over = registered.unregister(5s);
        BOOST_CHECK(over.wait_for(30s));
        BOOST_CHECK(consumer->shutdown(20s));
        if (!answers.empty()) print_summary();
    }

    [[nodiscard]] rvget::url url() const { return owner.urls.at(payload); }

    [[nodiscard]] std::uint64_t gets_running() const {
        const auto text = consumer->metrics();
        const std::string name = "\nrvget_gets_running ";
        const auto at = text.find(name);
        BOOST_REQUIRE(at != std::string::npos);
        return std::strtoull(text.c_str() + at + name.size(), nullptr, 10);
    }
    [[nodiscard]] std::uint64_t queue_pairs_failed() const {
        return consumer->statistics().queue_pairs_failed - failed_before;
    }

    template <class Fault>
    void strike(Fault fault) {
        BOOST_REQUIRE(becomes_true([&] { return gets_running() >= enough_in_flight; }, 10s));
        struck = load::clock::now();
        fault();
    }
    bool a_queue_pair_fails() {
        return becomes_true([&] { return queue_pairs_failed() > 0; }, recovery_limit);
    }
    bool is_logged(std::initializer_list<std::string_view> parts) {
        return becomes_true([&] { return log.count(parts) > 0; }, recovery_limit);
    }

    /// A get that begins from now on runs by RDMA again, without anybody's help.
    void check_recovery() {
        const auto mended = load::clock::now();
        BOOST_CHECK(gets->comes(
            [&](const load::answer& a) { return a.begun > mended && a.rdma() && a.right; },
            recovery_limit));
    }

    /// The answers of all gets, of which those in flight at the strike are what this is about.
    void check_answers(const std::set<error_code>& errors, const std::set<reason>& reasons) {
        answers = gets->stop();
        std::size_t in_flight = 0;
        for (const auto& a : answers) {
            if (a.was_running_at(struck)) ++in_flight;
            const auto what = a.code.message() + ", " + std::string(to_string(a.ran)) + " " +
                              std::string(to_string(a.why)) + ": " + a.detail;
            BOOST_CHECK_MESSAGE(a.code ? errors.contains(a.code) : a.right, what);
            BOOST_CHECK_MESSAGE(a.ended - a.begun < deadline + slack, what);
            if (!a.code && a.ran != path::rdma) BOOST_CHECK_MESSAGE(reasons.contains(a.why), what);
        }
        BOOST_CHECK_GE(in_flight, enough_in_flight);
    }

    /// One line for each queue pair that failed; each says what happened, over what, and what to
    /// do.
    void check_lines_of_queue_pairs(std::string_view cause) {
        BOOST_CHECK_GE(queue_pairs_failed(), 1U);
        BOOST_CHECK_MESSAGE(log.count({"lane=", "state=failed"}) == queue_pairs_failed(),
                            log.all());
        BOOST_CHECK_MESSAGE(log.count({"state=failed", cause, "`rvget check HOST`"}) >= 1,
                            log.all());
    }
    void check_line_of_connection(std::size_t lines = 1) {
        BOOST_CHECK_MESSAGE(
            log.count({"event=connection_lost", "cause=", "next=", "connects again"}) == lines,
            log.all());
    }

    void print_summary() {
        std::size_t rdma = 0, other = 0, errors = 0;
        load::clock::duration longest{0};
        for (const auto& a : answers) {
            ++(a.code ? errors : a.rdma() ? rdma : other);
            longest = std::max(longest, a.ended - a.begun);
        }
        BOOST_TEST_MESSAGE(boost::unit_test::framework::current_test_case().p_name.get()
                           << ": rdma " << rdma << ", chunked " << other << ", errors " << errors
                           << ", longest "
                           << std::chrono::duration_cast<std::chrono::milliseconds>(longest).count()
                           << " ms" << log.all());
    }
};

/// What a queue pair in error makes of the gets that it carried, and of those until the next one.
const std::set<reason> broken_path{reason::get_failed, reason::no_lane, reason::no_route,
                                   reason::lease_lost};
/// How a get ends whose control connection broke, and how one that finds nobody.
const std::set<error_code> broken_connection{connection_errc::lost,
                                             connection_errc::connect_failed};
const std::set<error_code> no_errors;

BOOST_FIXTURE_TEST_SUITE(softroce_fault, fault_fixture)

/// See fabric/verbs/completion_queue.hpp: it can take the owner's kernel down.
BOOST_AUTO_TEST_CASE(read_of_no_bytes_is_never_sent) {
    // BTH's opcode 0x0c is RDMA READ Request; the DMA length ends the RETH behind it.
    const std::string reads = "udp dport 4791 @th,64,8 0x0c ";
    there(
        "nft 'add table inet count; add chain inet count in { type filter hook prerouting "
        "priority -300; }; add rule inet count in " +
        reads + "counter; add rule inet count in " + reads + "@th,256,32 0 counter'");
    const auto from = load::clock::now();
    BOOST_CHECK(gets->comes([&](const load::answer& a) { return a.begun > from && a.rdma(); },
                            recovery_limit));
    gets->stop();
    const auto counted = there("nft list table inet count | grep -o 'packets [0-9]*' | xargs");
    there("nft delete table inet count");
    BOOST_CHECK_MESSAGE(!counted.starts_with("packets 0 ") && counted.ends_with(" packets 0\n"),
                        counted);
}

BOOST_AUTO_TEST_CASE(contract_7_3_queue_pair_error_of_the_consumer_falls_back_and_is_mended) {
    strike([&] { plan->break_queue_pair(call::post_reads, plan->count(call::post_reads) + 1); });
    BOOST_CHECK(a_queue_pair_fails());
    check_recovery();
    check_answers(no_errors, broken_path);
    // Flushed, or a success that rxe gives with the queue pair in error already.
    check_lines_of_queue_pairs("the queue pair went to error: READ ended with");
}

BOOST_AUTO_TEST_CASE(contract_7_3_queue_pair_error_of_the_owner_falls_back_and_is_mended) {
    strike([&] { owner.ask("break"); });
    BOOST_CHECK(a_queue_pair_fails());
    check_recovery();
    check_answers(no_errors, broken_path);
    BOOST_CHECK_MESSAGE(log.count({"state=failed"}) == queue_pairs_failed(), log.all());
    const auto at_owner = owner.log();
    BOOST_CHECK_MESSAGE(at_owner.find("serve_lane=") != std::string::npos, at_owner);
}

void port_down_and_up(fault_fixture& f, const host& at) {
    const std::string device = std::getenv("RVGET_NETDEV");  // of the same name on both
    f.strike([&] { at("ip link set " + device + " down"); });
    // rxe may say nothing of a READ whose packets its own port refuses. Then the control connection
    // can be the first to end, and takes the queue pair with it, which never failed.
    BOOST_CHECK(becomes_true(
        [&] { return f.queue_pairs_failed() > 0 || f.log.count({"event=connection_lost"}) > 0; },
        recovery_limit));
    at("ip link set " + device + " up");
    f.check_recovery();
    f.check_answers(broken_connection, broken_path);
    if (f.queue_pairs_failed() == 0) return f.check_line_of_connection();
    f.check_lines_of_queue_pairs(f.log.count({"no READ completed"}) > 0 ? "no READ completed"
                                                                        : "READ ended with");
}

BOOST_AUTO_TEST_CASE(contract_7_3_port_of_the_consumer_down_and_up_is_survived) {
    port_down_and_up(*this, here);
}

BOOST_AUTO_TEST_CASE(contract_7_3_port_of_the_owner_down_and_up_is_survived) {
    port_down_and_up(*this, there);
}

/// Where the address's GID stands in the table of the host's device.
std::string gid_index(const host& at) {
    std::array<unsigned, 4> a{};
    BOOST_REQUIRE_EQUAL(
        std::sscanf(at.address().c_str(), "%u.%u.%u.%u", &a[0], &a[1], &a[2], &a[3]), 4);
    std::array<char, 64> gid{};
    std::snprintf(gid.data(), gid.size(), "0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x", a[0],
                  a[1], a[2], a[3]);
    return at("cd /sys/class/infiniband/$RVGET_RDMA_DEVICE/ports/1/gids; grep -ls " +
              std::string(gid.data()) + " 0 1 2 3 4 5 6 7 8 9 || :");
}

void gid_moved(fault_fixture& f, const host& at) {
    const std::string device = std::getenv("RVGET_NETDEV");
    const auto address = at.address() + "/24 dev " + device;
    const auto before = gid_index(at);
    BOOST_REQUIRE(!before.empty());
    // Another address takes the place that becomes free, which the kernel sees to a little later.
    f.strike([&] {
        at("ip addr del " + address + "; ip addr add 198.18.77.1/24 dev " + device +
           "; for i in $(seq 2000); do grep -qs ffff:c612:4d01"
           " /sys/class/infiniband/$RVGET_RDMA_DEVICE/ports/1/gids/[0-9] && break; done"
           "; ip addr add " +
           address);
    });
    BOOST_CHECK(f.a_queue_pair_fails());
    BOOST_CHECK_NE(gid_index(at), before);
    f.check_recovery();
    at("ip addr del 198.18.77.1/24 dev " + device);
    f.check_answers(broken_connection, broken_path);
    // rxe may find out at the next packet, or send for ever into the void and report nothing.
    const bool told = f.log.count({"state=failed", "READ ended with"}) != 0;
    f.check_lines_of_queue_pairs(told ? "READ ended with" : "no READ completed for");
}

BOOST_AUTO_TEST_CASE(contract_7_3_gid_of_the_consumer_moved_to_another_index_is_found_there) {
    gid_moved(*this, here);
}

BOOST_AUTO_TEST_CASE(contract_7_3_gid_of_the_owner_moved_to_another_index_is_found_there) {
    gid_moved(*this, there);
}

/// The control connection lives on: no get fails, all are chunked with the cause.
void roce_dropped(fault_fixture& f, const host& at) {
    f.strike([&] { drop(at, "udp dport 4791"); });
    BOOST_CHECK(f.gets->comes(
        [&](const load::answer& a) {
            return a.begun > f.struck && !a.code && a.ran == path::chunked &&
                   a.why == reason::get_failed && a.detail.find("retry") != std::string::npos;
        },
        recovery_limit));
    drop_no_more(at);
    f.check_recovery();
    f.check_answers(no_errors, broken_path);
    f.check_lines_of_queue_pairs("retry");
    BOOST_CHECK_EQUAL(f.log.count({"connection_lost"}), 0U);
}

BOOST_AUTO_TEST_CASE(contract_7_3_roce_dropped_at_the_consumer_only_is_chunked_until_it_passes) {
    roce_dropped(*this, here);
}

BOOST_AUTO_TEST_CASE(contract_7_3_roce_dropped_at_the_owner_only_is_chunked_until_it_passes) {
    roce_dropped(*this, there);
}

/// Neither end is told anything; READs under way go on.
void half_open(fault_fixture& f, const host& at, const std::string& what) {
    f.strike([&] { drop(at, what); });
    BOOST_CHECK(f.is_logged({"event=connection_lost"}));
    BOOST_CHECK_LT((load::clock::now() - f.struck) / 1ms, soon_enough_for_a_death / 1ms);
    f.check_line_of_connection();
    drop_no_more(at);
    f.check_recovery();
    f.check_answers(broken_connection, broken_path);
}

BOOST_AUTO_TEST_CASE(contract_7_4_control_connection_deaf_at_the_consumer_ends_within_seconds) {
    half_open(*this, here, "tcp sport " + std::to_string(port));
}

BOOST_AUTO_TEST_CASE(contract_7_4_control_connection_deaf_at_the_owner_ends_within_seconds) {
    half_open(*this, there, "tcp dport " + std::to_string(port));
}

BOOST_AUTO_TEST_CASE(contract_7_4_owner_stopped_and_continued_is_told_and_costs_no_get) {
    strike([&] { owner.signal("STOP"); });
    BOOST_CHECK(is_logged({"event=owner_silent", "cause=", "the process is stopped", "next="}));
    owner.signal("CONT");
    check_recovery();
    check_answers(no_errors, broken_path);
    BOOST_CHECK_MESSAGE(log.count({"event=owner_silent"}) == 1, log.all());
    BOOST_CHECK_EQUAL(log.count({"connection_lost"}), 0U);
}

BOOST_AUTO_TEST_CASE(contract_7_4_restarted_owner_is_another_one_and_no_old_key_is_used) {
    const auto old = url();
    strike([&] { owner.restart(); });
    BOOST_CHECK(
        gets->comes([](const load::answer& a) { return a.code == connection_errc::wrong_owner; },
                    recovery_limit));
    auto errors = broken_connection;
    errors.insert(connection_errc::wrong_owner);
    check_answers(errors, broken_path);
    check_line_of_connection();

    const auto reads = plan->reads();
    const auto refused = consumer->get(old, {.deadline = deadline});
    BOOST_REQUIRE(refused.has_error());
    BOOST_CHECK_MESSAGE(refused.error().code == connection_errc::wrong_owner,
                        refused.error().message());
    BOOST_CHECK_EQUAL(plan->reads(), reads);
    const auto got = consumer->get(url(), {.deadline = deadline});
    BOOST_REQUIRE_MESSAGE(got, got.error().message());
    BOOST_CHECK_EQUAL(got.value().report.path, path::rdma);
    BOOST_CHECK_EQUAL(test::pattern_mismatch(got.value().data.bytes()), payload);
}

BOOST_AUTO_TEST_CASE(contract_7_4_owner_killed_ends_every_get_with_a_typed_error_at_once) {
    strike([&] { owner.signal("KILL"); });
    BOOST_CHECK(
        gets->comes([](const load::answer& a) { return a.code == connection_errc::connect_failed; },
                    recovery_limit));
    check_answers(broken_connection, broken_path);
    for (const auto& a : answers)
        if (a.was_running_at(struck))
            BOOST_CHECK_LT((a.ended - struck) / 1ms, soon_enough_for_a_death / 1ms);
    check_line_of_connection();
}

/// The last one: there is no other host afterwards.
BOOST_AUTO_TEST_CASE(contract_7_4_owner_machine_without_power_shows_within_seconds) {
    strike([&] { owner.cut_power(); });
    BOOST_CHECK(is_logged({"event=connection_lost"}));
    BOOST_CHECK(
        gets->comes([](const load::answer& a) { return a.code == connection_errc::connect_failed; },
                    recovery_limit));
    check_answers(broken_connection, broken_path);
    for (const auto& a : answers)
        if (a.was_running_at(struck))
            BOOST_CHECK_LT((a.ended - struck) / 1ms, soon_enough_for_a_death / 1ms);
    check_line_of_connection();
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace rvget
