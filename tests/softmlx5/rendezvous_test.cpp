// Gets from an owner in another process, by libibverbs and by the direct path: the bytes, the
// report, the counters of both nodes and the calls to the device must be the same. See
// tests/softroce/owner_host for the other side.

#include <algorithm>
#include <future>
#include <sstream>
#include <string>
#include <vector>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/test/unit_test.hpp>

#include "api/node_impl.hpp"
#include "fabric/fault/fault_provider.hpp"
#include "softroce/remote_owner.hpp"
#include "support/pattern.hpp"

namespace rvget::test {
namespace {

using namespace std::chrono_literals;
using fabric::fault::call;

constexpr std::uint64_t largest = (1U << 20) + 1;

std::vector<std::uint64_t> sizes() {
    std::vector<std::uint64_t> all{0, 1, 4095, 4096, 4097, (1U << 20) - 1, 1U << 20, largest};
    for (std::uint64_t n = 31; n <= 65; ++n) all.push_back(n);
    return all;
}

std::string owner_arguments() {
    std::string text = "--all-by-rdma";
    for (const auto size : sizes()) text += " --size " + std::to_string(size);
    return text;
}

remote_owner the_owner;
struct owner_end {
    ~owner_end() { the_owner.exit(); }
};
BOOST_TEST_GLOBAL_FIXTURE(owner_end);

/// All of a report that is no time.
std::string text_of(const transfer_report& r) {
    std::ostringstream out;
    out << to_string(r.path) << ' ' << to_string(r.reason) << ' ' << r.bytes << ' ' << r.slot_bytes
        << ' ' << r.device << ' ' << int{r.port} << ' ' << r.gid << ' ' << r.path_mtu << ' '
        << r.copied_bytes << ' ' << r.crc32c.value_or(0);
    return out.str();
}
std::string text_of(const node_statistics& s) {
    std::ostringstream out;
    out << "answered " << s.gets_answered << " failed " << s.gets_failed << " rekeyed "
        << s.gets_rekeyed << " copied " << s.bytes_copied << " registered " << s.registered_bytes
        << " made " << s.queue_pairs_made << " lost " << s.queue_pairs_failed;
    return out.str();
}

struct consumer {
    explicit consumer(mlx5_choice choice, node_options o = {})
        : nic(fabric::fault::make_fault_provider(fabric::make_provider(choice), plan)) {
        o.inline_max = 0;
        o.rdma_min_bytes = 1;
        o.spare_queue_pairs = 0;  // when they are made is a matter of time
        o.first_arena_bytes = std::size_t{4} << 20;
        n.emplace(start_node_on(nic.get(), o).value());
        const bool direct = n->rdma().fast_path == "mlx5";
        BOOST_REQUIRE_MESSAGE(direct == (choice == mlx5_choice::verbs_qp),
                              n->rdma().fast_path_detail);
        memory.resize(largest + 1);
        into.emplace(n->register_region(memory).value());
        before = the_owner.settled();
    }
    ~consumer() {
        BOOST_TEST(into->unregister().wait_for(10s));
        BOOST_TEST(n->shutdown(10s));
    }
    /// A get of that size into registered memory, whose every byte is compared.
    std::string get(std::uint64_t size, get_options o = {}) {
        std::ranges::fill(memory, std::byte{0xee});
        o.checksum = true;
        const auto got = n->get_into(the_owner.urls.at(size), memory, o);
        if (!got) return got.error().code.message();
        BOOST_TEST(got->bytes == size);
        BOOST_TEST(pattern_mismatch(std::span(memory).first(size)) == size);
        BOOST_TEST((memory[size] == std::byte{0xee}));
        return text_of(got->report);
    }
    /// What is left of it all: counters of this node, of the owner since the start, calls.
    std::vector<std::string> counters() {
        const auto now = the_owner.settled();
        std::vector<std::string> all{
            text_of(n->statistics()),
            "granted " + std::to_string(now.granted - before.granted) + " released " +
                std::to_string(now.released - before.released) + " expired " +
                std::to_string(now.expired - before.expired) + " active " +
                std::to_string(now.active)};
        // How often it polls, and arms in between, is a matter of time.
        for (const auto kind :
             {call::register_memory, call::create_completion_queue, call::create_queue_pair,
              call::allocate_window, call::to_init, call::to_ready_to_receive,
              call::to_ready_to_send, call::to_error, call::post_reads, call::post_send,
              call::post_receive, call::post_bind, call::post_invalidate}) {
            all.push_back(std::string(to_string(kind)) + ' ' + std::to_string(plan->count(kind)));
        }
        all.push_back("reads " + std::to_string(plan->reads()));
        return all;
    }

    std::shared_ptr<fabric::fault::plan> plan = std::make_shared<fabric::fault::plan>();
    std::unique_ptr<fabric::provider> nic;
    std::optional<node> n;
    std::vector<std::byte> memory;
    std::optional<region> into;
    remote_owner::statistics before;
};

/// Runs `f` over both and compares the lines that it returns.
template <class F>
void compare(F&& f, const node_options& o = {}) {
    the_owner.start(owner_arguments());
    std::vector<std::string> lines[2];
    for (const auto choice : {mlx5_choice::off, mlx5_choice::verbs_qp}) {
        consumer c(choice, o);
        lines[choice == mlx5_choice::off ? 0 : 1] = f(c);
    }
    BOOST_TEST(!lines[0].empty());
    BOOST_TEST(lines[0] == lines[1], boost::test_tools::per_element());
}

/// With these a get of the largest takes many posts, so that something can happen between.
node_options small_pieces() {
    node_options o;
    o.read_piece_bytes = 65536;
    o.read_depth = 4;
    return o;
}

}  // namespace

BOOST_AUTO_TEST_CASE(get_of_each_size_is_the_same_by_both_paths) {
    compare([](consumer& c) {
        std::vector<std::string> lines;
        for (const auto size : sizes()) lines.push_back(c.get(size));
        for (const auto& line : lines)
            BOOST_TEST((line.starts_with("rdma ok") || line == lines[0]));
        for (auto& line : c.counters()) lines.push_back(std::move(line));
        return lines;
    });
}

BOOST_AUTO_TEST_CASE(get_of_ranges_in_pieces_is_the_same_by_both_paths) {
    compare(
        [](consumer& c) {
            std::vector<std::string> lines;
            for (const auto& [offset, length] : {std::pair{0U, 1U},
                                                 {1U, 65536U},
                                                 {1U, 65537U},
                                                 {largest - 1, 1U},
                                                 {largest - 131073, 1U << 30},
                                                 {largest, 10U},
                                                 {largest + 1, 1U}}) {
                const auto got = c.n->get_into(the_owner.urls.at(largest), c.memory,
                                               {.offset = offset, .length = length});
                lines.push_back(got ? text_of(got->report) : got.error().code.message());
                if (!got) continue;
                const auto bytes = std::span(c.memory).first(got->bytes);
                BOOST_TEST(pattern_mismatch(bytes, offset) == got->bytes);
            }
            for (auto& line : c.counters()) lines.push_back(std::move(line));
            return lines;
        },
        small_pieces());
}

BOOST_AUTO_TEST_CASE(read_that_the_owner_refuses_ends_alike_by_both_paths) {
    compare(
        [](consumer& c) {
            std::vector<std::string> lines;
            lines.push_back(c.get(largest));
            c.plan->refuse_read(c.plan->reads() + 3);
            lines.push_back(c.get(largest));
            BOOST_TEST(lines.back().starts_with("chunked get_failed"), lines.back());
            lines.push_back(std::to_string(c.n->statistics().queue_pairs_failed));
            return lines;
        },
        small_pieces());
}

BOOST_AUTO_TEST_CASE(get_that_is_cancelled_between_posts_ends_alike_by_both_paths) {
    compare(
        [](consumer& c) {
            std::vector<std::string> lines{c.get(largest)};
            boost::asio::cancellation_signal signal;
            std::promise<std::pair<error_code, quiet>> promise;
            c.plan->before(call::post_reads, c.plan->count(call::post_reads) + 2,
                           [&] { signal.emit(boost::asio::cancellation_type::terminal); });
            c.n->async_get_into(the_owner.urls.at(largest), c.memory, {},
                                boost::asio::bind_cancellation_slot(
                                    signal.slot(), [&](error_code ec, get_into_result r) {
                                        promise.set_value({ec, r.quiet});
                                    }));
            const auto [code, quiet] = promise.get_future().get();
            BOOST_TEST(code == make_error_code(request_errc::cancelled));
            BOOST_TEST(quiet.wait_for(20s));
            std::ranges::fill(c.memory, std::byte{0xee});
            lines.push_back(c.get(4097));  // and nothing of the other comes behind it
            BOOST_TEST(std::all_of(c.memory.begin() + 4097, c.memory.end(),
                                   [](std::byte b) { return b == std::byte{0xee}; }));
            lines.push_back(text_of(c.n->statistics()));
            const auto now = the_owner.settled();
            lines.push_back(std::to_string(now.granted - c.before.granted) + ' ' +
                            std::to_string(now.expired - c.before.expired));
            return lines;
        },
        small_pieces());
}

}  // namespace rvget::test
