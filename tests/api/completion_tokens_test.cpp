// Asio's manners: callbacks, futures, coroutines, cancellation slots, executors, and a node inside
// the embedder's io_context.

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <boost/test/unit_test.hpp>

#include "api/nodes.hpp"
#include "api/raw_peer.hpp"

namespace rvget::test {
namespace {

namespace asio = boost::asio;

constexpr std::size_t medium = (std::size_t{1} << 20) + 4097;

/// Answers connects and says nothing.
struct silent_peer {
    silent_peer() { port.listen(); }
    [[nodiscard]] url target() const { return {port.address(), {node_id{1}, 2}}; }
    raw_port port;
};

BOOST_AUTO_TEST_CASE(contract_9_3_callback_runs_on_the_thread_of_the_node) {
    tcp_nodes n;
    const auto from = n.stage(medium);
    std::promise<std::thread::id> first;
    bool good = false;
    std::promise<std::thread::id> second;
    // A handler may be move-only and may ask for more.
    auto held = std::make_unique<int>(7);
    n.consumer.async_get(from, {}, [&, held = std::move(held)](error_code ec, get_result r) {
        good = !ec && r.data.size() == medium && *held == 7;
        n.consumer.async_metadata(
            from, [&](error_code, slot_metadata) { second.set_value(std::this_thread::get_id()); });
        first.set_value(std::this_thread::get_id());
    });
    const auto id = first.get_future().get();
    BOOST_TEST(good);
    BOOST_TEST((id != std::this_thread::get_id()));
    BOOST_TEST((second.get_future().get() == id));
}

BOOST_AUTO_TEST_CASE(future_holds_the_result_or_throws_the_code) {
    tcp_nodes n;
    auto good = n.consumer.async_get(n.stage(medium), {}, asio::use_future);
    auto missing = n.consumer.async_get(n.owner.url_of({n.owner.id(), 1}), {}, asio::use_future);
    auto connected = n.consumer.async_connect(*n.owner.address(), asio::use_future);
    check_pattern(good.get().data.bytes());
    BOOST_CHECK_EXCEPTION(missing.get(), boost::system::system_error, [](const auto& e) {
        return e.code() == make_error_code(request_errc::not_found);
    });
    BOOST_TEST((connected.get() == n.owner.id()));
}

BOOST_AUTO_TEST_CASE(coroutine_gets_one_after_another) {
    tcp_nodes n;
    const auto from = n.stage(medium);
    asio::io_context context;
    const auto run = [&]() -> asio::awaitable<std::size_t> {
        std::size_t total = 0;
        for (std::uint64_t offset = 0; offset < 3; ++offset) {
            const auto r =
                co_await n.consumer.async_get(from, {.offset = offset}, asio::use_awaitable);
            check_pattern(r.data.bytes(), offset);
            total += r.data.size();
        }
        const auto pinned = co_await n.consumer.async_get_pinned(from, {}, asio::use_awaitable);
        total += pinned.data.size();
        std::vector<std::byte> memory(medium);
        total += (co_await n.consumer.async_get_into(from, memory, {}, asio::use_awaitable)).bytes;
        check_pattern(memory);
        error_code ec;
        co_await n.consumer.async_get(from, {.offset = medium + 1},
                                      asio::redirect_error(asio::use_awaitable, ec));
        BOOST_TEST(ec == make_error_code(request_errc::out_of_range));
        co_return total;
    };
    auto total = asio::co_spawn(context, run, asio::use_future);
    context.run();
    BOOST_TEST(total.get() == 5 * medium - 3);
}

BOOST_AUTO_TEST_CASE(contract_9_3_bound_executor_runs_the_handler_and_is_kept_busy_until_then) {
    tcp_nodes n;
    asio::io_context context;
    bool ran = false;
    n.consumer.async_get(n.stage(medium), {},
                         asio::bind_executor(context, [&](error_code ec, const get_result& r) {
                             BOOST_TEST(!ec);
                             check_pattern(r.data.bytes());
                             ran = true;
                         }));
    // It has nothing else to do: without work kept there run() would return at once.
    context.run();
    BOOST_TEST(ran);
}

/// A get that will not be answered by its peer, cancelled through a slot on `context`.
struct cancellable_get {
    cancellable_get(node& n, asio::io_context& context, std::span<std::byte> destination) {
        n.async_get_into(peer.target(), destination, {},
                         asio::bind_executor(
                             context, asio::bind_cancellation_slot(
                                          signal.slot(), [this](error_code ec, get_into_result r) {
                                              ++answered;
                                              code = ec;
                                              destination_free = r.quiet.resolved();
                                          })));
    }
    silent_peer peer;
    asio::cancellation_signal signal;
    int answered = 0;
    error_code code;
    bool destination_free = false;
};

BOOST_AUTO_TEST_CASE(contract_2_2_cancelled_get_is_answered_once_and_frees_its_destination) {
    tcp_nodes n;
    std::vector<std::byte> memory(medium, std::byte{0xee});
    asio::io_context context;
    cancellable_get get(n.consumer, context, memory);
    BOOST_TEST(n.consumer.get_into(n.stage(10), memory).has_error());  // busy: it is running
    get.signal.emit(asio::cancellation_type::terminal);
    context.run();
    BOOST_TEST(get.answered == 1);
    BOOST_TEST(get.code == make_error_code(request_errc::cancelled));
    BOOST_TEST(get.destination_free);
    BOOST_TEST((memory[0] == std::byte{0xee}));
    get.signal.emit(asio::cancellation_type::terminal);  // nothing is connected any more
    BOOST_TEST(n.consumer.get_into(n.stage(medium), memory)->bytes == medium);
    check_pattern(memory);
    BOOST_TEST(get.answered == 1);
}

BOOST_AUTO_TEST_CASE(cancel_in_the_middle_of_chunks_leaves_the_destination_alone) {
    node_options small;
    small.chunk_bytes = 4096;
    tcp_nodes n({}, small);
    const auto from = n.stage(std::size_t{16} << 20);
    std::vector<std::byte> memory(std::size_t{16} << 20);
    asio::io_context context;
    asio::cancellation_signal signal;
    std::optional<error_code> code;
    n.consumer.async_get_into(
        from, memory, {},
        asio::bind_executor(context, asio::bind_cancellation_slot(
                                         signal.slot(), [&](error_code ec, get_into_result r) {
                                             code = ec;
                                             BOOST_TEST(r.quiet.resolved());
                                         })));
    // In the middle: its lease is there.
    while (n.owner.metadata(from.handle)->leases == 0 && n.owner.statistics().leases_granted == 0)
        std::this_thread::yield();
    signal.emit(asio::cancellation_type::partial);
    context.run();
    BOOST_REQUIRE(code);
    if (!*code) return check_pattern(memory);  // it was faster
    BOOST_TEST(*code == make_error_code(request_errc::cancelled));
    std::ranges::fill(memory, std::byte{0xee});
    BOOST_TEST(n.consumer.get(from)->data.size() == memory.size());  // chunks still arrive
    BOOST_TEST(std::ranges::all_of(memory, [](std::byte b) { return b == std::byte{0xee}; }));
}

/// A node in an io_context that two threads run.
struct embedded_nodes {
    embedded_nodes() {
        for (int i = 0; i < 2; ++i) threads.emplace_back([this] { context.run(); });
        auto o = listening();
        o.rdma_disabled = true;
        owner.emplace(node::start(o, context).value());
        o.listen.reset();
        consumer.emplace(node::start(o, context).value());
    }
    ~embedded_nodes() {
        consumer->shutdown(5s);
        owner->shutdown(5s);
        work.reset();
        for (auto& t : threads) t.join();
        consumer.reset();
        owner.reset();
    }
    asio::io_context context;
    asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
    std::vector<std::thread> threads;
    std::optional<node> owner;
    std::optional<node> consumer;
};

BOOST_AUTO_TEST_CASE(contract_9_3_embedded_nodes_run_handlers_on_the_threads_of_the_embedder) {
    embedded_nodes n;
    const auto from = n.owner->url_of(n.owner->stage(payload(medium)).value());
    BOOST_TEST((n.consumer->get_executor() == asio::any_io_executor(n.context.get_executor())));
    std::promise<bool> one_of_two;
    n.consumer->async_get(from, {}, [&](error_code ec, const get_result& r) {
        const auto me = std::this_thread::get_id();
        one_of_two.set_value(!ec && pattern_mismatch(r.data.bytes()) == medium &&
                             (me == n.threads[0].get_id() || me == n.threads[1].get_id()));
    });
    BOOST_TEST(one_of_two.get_future().get());
    // Blocking forms from a thread that does not run the context.
    BOOST_TEST(n.consumer->get(from)->data.size() == medium);
}

/// A chain of gets: each handler destroys what the one before got and asks for the next.
struct chain : std::enable_shared_from_this<chain> {
    chain(node& n, url u) : getter(n), from(std::move(u)) {}
    void next() {
        getter.async_get(from, {}, [self = shared_from_this()](error_code ec, get_result r) {
            self->good += !ec && pattern_mismatch(r.data.bytes()) == r.data.size();
            self->last = std::move(r);
            if (--self->left == 0)
                self->done.set_value(self->good);
            else
                self->next();
        });
    }
    node& getter;
    url from;
    get_result last;
    int left = 50;
    int good = 0;
    std::promise<int> done;
};

BOOST_AUTO_TEST_CASE(handlers_issue_further_gets) {
    embedded_nodes n;
    const auto from = n.owner->url_of(n.owner->stage(payload(65536)).value());
    std::vector<std::shared_ptr<chain>> chains;
    for (int i = 0; i < 8; ++i) {
        chains.push_back(std::make_shared<chain>(*n.consumer, from));
        chains.back()->next();
    }
    for (auto& c : chains) BOOST_TEST(c->done.get_future().get() == 50);
}

BOOST_AUTO_TEST_CASE(contract_9_3_many_threads_may_call_one_node) {
    embedded_nodes n;
    const auto from = n.owner->url_of(n.owner->stage(payload(10'000)).value());
    std::atomic<int> good{0};
    std::vector<std::thread> callers;
    for (int t = 0; t < 4; ++t)
        callers.emplace_back([&] {
            for (int i = 0; i < 25; ++i) {
                const auto got = n.consumer->get(from);
                good += got && pattern_mismatch(got->data.bytes()) == 10'000;
                const auto h = n.owner->stage(payload(100)).value();
                good += n.owner->release(h).value() == 0;
                static_cast<void>(n.owner->statistics());
            }
        });
    for (auto& c : callers) c.join();
    BOOST_TEST(good == 200);
}

BOOST_AUTO_TEST_CASE(context_that_nobody_runs_holds_up_shutdown_only_for_its_deadline) {
    asio::io_context context;
    auto o = small_arena();
    o.rdma_disabled = true;
    auto n = node::start(o, context).value();
    const silent_peer peer;
    answers done;
    n.async_get(peer.target(), {}, [&](error_code ec, const get_result&) { done.add(0, ec); });
    BOOST_TEST(!n.shutdown(0ms));
    BOOST_TEST(done.count() == 0u);  // its executor is the context, which is run only now
    context.run();
    BOOST_TEST(done.code(0) == make_error_code(node_errc::stopped));
    BOOST_TEST(done.each_once());
}

}  // namespace
}  // namespace rvget::test
