// A block store that embeds rvget: it keeps blocks in registered memory, hands out their URLs over
// a protocol of its own, and its clients get them by RDMA READ, or in chunks where RDMA cannot run.
//
//     block_store serve --listen ADDRESS --blocks N --size BYTES
//     block_store get HOST:PORT ID...
//
// The store's own protocol is one line each way: "GET <id>\n", answered by "OK <checksum> <URL>\n"
// or "NO <why>\n". What it shows: one io_context for the program's sockets and for the node, run by
// a thread of the program; staging without a copy; errors as values; the order of shutdown.
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <future>
#include <iostream>
#include <istream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <boost/asio/write.hpp>
#include <rvget/node.hpp>

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using namespace std::chrono_literals;

// With as_tuple an error is a value, and what came with it (the report, a quiet) is not lost.
constexpr auto as_value = asio::as_tuple(asio::use_awaitable);

std::uint64_t checksum(std::span<const std::byte> bytes) {  // FNV-1a
    std::uint64_t h = 0xcbf29ce484222325;
    for (const auto b : bytes) h = (h ^ std::to_integer<std::uint64_t>(b)) * 0x100000001b3;
    return h;
}

/// The program's event loop: an io_context and the one thread that runs it. More threads may.
struct event_loop {
    asio::io_context context{1};
    asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
    std::thread thread{[this] { context.run(); }};
    void stop() {
        context.stop();
        if (thread.joinable()) thread.join();
    }
    ~event_loop() { stop(); }
};

struct block {
    rvget::handle handle;
    std::uint64_t checksum = 0;
};

/// Fills registered memory and stages it where it is: no copy is made, and none is kept here.
block make_block(rvget::node& node, std::size_t id, std::size_t size) {
    auto memory = node.make_staging(size).value();
    std::uint64_t x = id * 0x9e3779b97f4a7c15 + 1;
    for (auto& b : memory.bytes()) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        b = static_cast<std::byte>(x);
    }
    const auto sum = checksum(memory.bytes());
    if (id == 0 && !memory.pinned())  // still served, in chunks: say why, so that it can be mended
        std::cerr << "blocks are in plain memory: " << to_string(memory.why_plain()) << ' '
                  << memory.why_plain_detail() << '\n';
    return {node.stage(std::move(memory)).value(), sum};
}

/// Answers one client until it hangs up.
asio::awaitable<void> answer(tcp::socket client, const rvget::node& node,
                             const std::vector<block>& blocks) {
    for (std::string line;;) {
        const auto [ec, n] =
            co_await asio::async_read_until(client, asio::dynamic_buffer(line, 80), '\n', as_value);
        if (ec) co_return;
        std::size_t id = 0;
        const bool known =
            line.starts_with("GET ") &&
            std::from_chars(line.data() + 4, line.data() + n, id).ec == std::errc() &&
            id < blocks.size();
        // Whoever knows the URL can get the block: a real store asks first who the client is.
        const auto reply = known ? "OK " + std::to_string(blocks[id].checksum) + ' ' +
                                       node.url_of(blocks[id].handle).to_string() + '\n'
                                 : "NO there is no such block\n";
        line.erase(0, n);
        if (std::get<0>(co_await asio::async_write(client, asio::buffer(reply), as_value)))
            co_return;
    }
}

asio::awaitable<void> accept_clients(tcp::acceptor& acceptor, const rvget::node& node,
                                     const std::vector<block>& blocks) {
    for (;;) {
        auto [ec, client] = co_await acceptor.async_accept(as_value);
        if (ec) co_return;  // closed
        asio::co_spawn(acceptor.get_executor(), answer(std::move(client), node, blocks),
                       asio::detached);
    }
}

int serve(const std::string& address, std::size_t count, std::size_t size) {
    asio::io_context signals;  // of the main thread, which may block; the loop's must not
    asio::signal_set end(signals, SIGINT, SIGTERM);

    std::vector<block> blocks;  // outlives the loop, whose coroutines read it
    event_loop loop;
    auto options = rvget::node_options::from_environment();
    options.listen = rvget::endpoint_address{address, 0};
    auto started = rvget::node::start(options, loop.context);
    if (!started) {
        std::cerr << started.error().message() << '\n';
        return 1;
    }
    auto& node = started.value();
    for (std::size_t id = 0; id < count; ++id) blocks.push_back(make_block(node, id, size));

    tcp::acceptor acceptor(loop.context, {asio::ip::make_address(address), 0});
    auto accepting =
        asio::co_spawn(loop.context, accept_clients(acceptor, node, blocks), asio::use_future);
    std::cout << "serving " << count << " blocks on " << acceptor.local_endpoint() << std::endl;
    end.async_wait([](auto, int) {});
    signals.run();

    // First no new clients, then the node, while the loop that it runs on still runs, then the
    // loop.
    asio::post(loop.context, [&] { acceptor.close(); });
    accepting.get();
    const bool quiet = node.shutdown(5s);
    loop.stop();
    return quiet ? 0 : 1;
}

/// Asks the store for each block's URL and gets the block; returns how many were not right.
asio::awaitable<int> get_blocks(rvget::node& node, rvget::endpoint_address store,
                                std::vector<std::string> ids) {
    tcp::socket s(co_await asio::this_coro::executor);
    const auto address = asio::ip::make_address(store.host);
    if (const auto [ec] = co_await s.async_connect({address, store.port}, as_value); ec) {
        std::cerr << store.to_string() << ": " << ec.message() << '\n';
        co_return 1;
    }
    int wrong = 0;
    for (const auto& id : ids) {
        std::string line = "GET " + id + "\n";
        co_await asio::async_write(s, asio::buffer(line), asio::use_awaitable);
        line.clear();
        co_await asio::async_read_until(s, asio::dynamic_buffer(line, 400), '\n',
                                        asio::use_awaitable);
        std::uint64_t sum = 0;
        char text[256] = "";
        if (std::sscanf(line.c_str(), "OK %lu %255s", &sum, text) != 2) {
            std::cerr << "block=" << id << " refused: " << line;
            ++wrong;
            continue;
        }
        const auto url = rvget::url::parse(text);
        if (!url) throw boost::system::system_error(url.error().code, url.error().detail);
        const auto [ec, got] = co_await node.async_get(*url, {.deadline = 10s}, as_value);
        const auto& r = got.report;
        const bool good = !ec && checksum(got.data.bytes()) == sum;
        wrong += !good;
        std::cout << "block=" << id << " bytes=" << got.data.size() << " path=" << to_string(r.path)
                  << " reason=" << to_string(r.reason) << " device=" << r.device
                  << (good ? " checksum=ok"
                      : ec ? " failed: " + ec.message()
                           : " checksum=WRONG")
                  << (r.detail.empty() ? "" : " (" + r.detail + ")") << '\n';
    }  // here the block's memory goes back to be used for the next
    co_return wrong;
}

int get(const std::string& store, std::vector<std::string> ids) {
    event_loop loop;
    auto node = rvget::node::start(rvget::node_options::from_environment(), loop.context).value();
    const auto address = rvget::endpoint_address::parse(store).value();
    const int wrong =
        asio::co_spawn(loop.context, get_blocks(node, address, std::move(ids)), asio::use_future)
            .get();
    return node.shutdown(5s) && wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
    const std::vector<std::string> a(argv + 1, argv + argc);
    if (a.size() == 7 && a[0] == "serve" && a[1] == "--listen" && a[3] == "--blocks" &&
        a[5] == "--size")
        return serve(a[2], std::stoul(a[4]), std::stoul(a[6]));
    if (a.size() >= 3 && a[0] == "get") return get(a[1], {a.begin() + 2, a.end()});
    std::cerr << "usage: block_store serve --listen ADDRESS --blocks N --size BYTES\n"
                 "       block_store get HOST:PORT ID...\n";
    return 2;
} catch (const std::exception& e) {
    std::cerr << "block_store: " << e.what() << '\n';
    return 1;
}
