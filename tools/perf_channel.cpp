#include "perf_channel.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <poll.h>
#include <sys/socket.h>
#include <boost/asio/connect.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

namespace rvget::tools {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using std::chrono::milliseconds;

/// A line names the slots of a point; this is for thousands of them, and an end to what a stranger
/// can make this process hold.
constexpr std::size_t longest_line = std::size_t{4} << 20;
/// For one line to be taken by the other side.
constexpr auto send_limit = std::chrono::seconds(10);

/// Ends well when `fd` is readable, or else `other` (-1: none); which of them, poll(2) tells again.
result<void> wait_readable(int fd, signal_watch& signals, std::optional<milliseconds> limit,
                           int other = -1) {
    using clock = std::chrono::steady_clock;
    const auto end = clock::now() + limit.value_or(milliseconds(0));
    for (;;) {
        const auto left = std::chrono::ceil<milliseconds>(end - clock::now());
        std::array<pollfd, 3> set{
            {{fd, POLLIN, 0}, {signals.descriptor(), POLLIN, 0}, {other, POLLIN, 0}}};
        const int wait = limit ? static_cast<int>(std::max(left.count(), std::int64_t{0})) : -1;
        const int ready = ::poll(set.data(), set.size(), wait);
        if (signals.received()) return failure{request_errc::cancelled, "ended by a signal"};
        if (ready > 0 && (set[0].revents | set[2].revents) != 0) return {};
        if (limit && clock::now() >= end) {
            return failure{request_errc::deadline_exceeded,
                           "nothing was heard from the other side in " +
                               std::to_string(limit->count()) + " ms; see whether it still runs"};
        }
    }
}

failure not_ours() {
    return {connection_errc::protocol,
            "the other side says what is not of rvget perf; give the address that 'rvget perf "
            "--listen' printed, and use the same version on both sides"};
}

}  // namespace

perf_channel::perf_channel(std::shared_ptr<asio::io_context> context, tcp::socket socket)
    : context_(std::move(context)), socket_(std::move(socket)) {
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
}

result<perf_channel> perf_channel::connect(const endpoint_address& to, milliseconds limit) {
    auto context = std::make_shared<asio::io_context>();
    tcp::socket socket(*context);
    error_code ec;
    const auto failed = [&](const std::string& why) {
        return failure{connection_errc::connect_failed,
                       to.to_string() + ": " + why + "; start 'rvget perf --listen' there"};
    };
    tcp::resolver resolver(*context);
    const auto found = resolver.resolve(to.host, std::to_string(to.port), ec);
    if (ec) return failed(ec.message());
    ec = asio::error::would_block;
    asio::async_connect(socket, found, [&](error_code e, const tcp::endpoint&) { ec = e; });
    context->run_for(limit);
    if (ec == asio::error::would_block) {
        socket.close();
        context->run();
        return failed("no answer in " + std::to_string(limit.count()) + " ms");
    }
    if (ec) return failed(ec.message());
    return perf_channel(std::move(context), std::move(socket));
}

result<void> perf_channel::send(const boost::json::object& o) {
    const auto text = boost::json::serialize(o) + '\n';
    const auto until = std::chrono::steady_clock::now() + send_limit;
    for (std::size_t at = 0; at < text.size();) {
        const auto sent = ::send(socket_.native_handle(), text.data() + at, text.size() - at,
                                 MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            at += static_cast<std::size_t>(sent);
            continue;
        }
        if (errno != EAGAIN && errno != EINTR)
            return failure{connection_errc::lost,
                           "the other side has hung up: " + std::string(std::strerror(errno))};
        const auto left =
            std::chrono::duration_cast<milliseconds>(until - std::chrono::steady_clock::now());
        pollfd writable{socket_.native_handle(), POLLOUT, 0};
        if (left.count() <= 0) {
            return failure{connection_errc::lost, "the other side takes nothing"};
        }
        ::poll(&writable, 1, static_cast<int>(left.count()));
    }
    return {};
}

result<void> perf_channel::wait_and_refuse(signal_watch& signals, std::optional<milliseconds> limit,
                                           perf_listener* others) {
    // A consumer that leaves and comes back: that it has left may be heard after that it is back.
    constexpr int in_doubt_ms = 200;
    for (;;) {
        const int other = others == nullptr ? -1 : others->descriptor();
        auto ready = wait_readable(socket_.native_handle(), signals, limit, other);
        if (!ready || others == nullptr) return ready;
        pollfd own{socket_.native_handle(), POLLIN, 0};
        if (::poll(&own, 1, in_doubt_ms) > 0) return {};
        others->refuse(signals,
                       "it is busy with another consumer, and has one at a time; see that "
                       "one end, or start another 'rvget perf --listen'");
    }
}

result<boost::json::object> perf_channel::receive(signal_watch& signals,
                                                  std::optional<milliseconds> limit,
                                                  perf_listener* others) {
    std::size_t end = 0;
    while ((end = received_.find('\n')) == std::string::npos) {
        if (received_.size() > longest_line) return not_ours();
        if (auto ready = wait_and_refuse(signals, limit, others); !ready) return ready.error();
        std::array<char, 16384> part;
        error_code ec;
        const auto bytes = socket_.read_some(asio::buffer(part), ec);
        if (ec) return failure{connection_errc::lost, "the other side has hung up"};
        received_.append(part.data(), bytes);
    }
    boost::json::error_code wrong;
    auto value = boost::json::parse(std::string_view(received_).substr(0, end), wrong);
    received_.erase(0, end + 1);
    if (wrong || !value.is_object()) return not_ours();
    return std::move(value.get_object());
}

result<boost::json::object> perf_channel::ask(const boost::json::object& question,
                                              signal_watch& signals, milliseconds limit) {
    if (auto sent = send(question); !sent) return sent.error();
    auto answer = receive(signals, limit);
    if (!answer) return answer;
    if (const auto* error = answer->if_contains("error")) {
        return failure{request_errc::refused,
                       "the owner: " + std::string(error->is_string() ? error->get_string().c_str()
                                                                      : "refused")};
    }
    return answer;
}

std::string perf_channel::local_host() const {
    error_code ec;
    const auto at = socket_.local_endpoint(ec);
    return ec ? std::string("127.0.0.1") : at.address().to_string();
}

perf_listener::perf_listener(std::shared_ptr<asio::io_context> context, tcp::acceptor acceptor)
    : context_(std::move(context)), acceptor_(std::move(acceptor)) {}

result<perf_listener> perf_listener::open(const endpoint_address& at) {
    auto context = std::make_shared<asio::io_context>();
    tcp::acceptor acceptor(*context);
    tcp::resolver resolver(*context);
    error_code ec;
    const auto found =
        resolver.resolve(at.host, std::to_string(at.port), tcp::resolver::passive, ec);
    if (!ec) {
        const auto endpoint = found.begin()->endpoint();
        acceptor.open(endpoint.protocol(), ec);
        if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
        if (!ec) acceptor.bind(endpoint, ec);
        if (!ec) acceptor.listen(tcp::acceptor::max_listen_connections, ec);
    }
    if (!ec) return perf_listener(std::move(context), std::move(acceptor));
    return failure{request_errc::io, "cannot listen on " + at.to_string() + ": " + ec.message() +
                                         "; give another --listen"};
}

endpoint_address perf_listener::address() const {
    const auto at = acceptor_.local_endpoint();
    return {at.address().to_string(), at.port()};
}

result<perf_channel> perf_listener::accept(signal_watch& signals,
                                           std::optional<milliseconds> limit) {
    if (auto ready = wait_readable(acceptor_.native_handle(), signals, limit); !ready) {
        return ready.error();
    }
    error_code ec;
    auto socket = acceptor_.accept(ec);
    if (ec == asio::error::connection_aborted) {
        return failure{connection_errc::lost, "a consumer came and went"};
    }
    if (ec) return failure{request_errc::io, "cannot take a connection: " + ec.message()};
    return perf_channel(context_, std::move(socket));
}

bool perf_listener::somebody_waits() {
    pollfd waiting{descriptor(), POLLIN, 0};
    return ::poll(&waiting, 1, 0) == 1;
}

void perf_listener::refuse(signal_watch& signals, const std::string& why) {
    constexpr milliseconds moment(500);
    auto other = accept(signals, milliseconds(0));
    if (!other) return;
    // What was not read would make the end of the connection a reset, which takes the answer along.
    static_cast<void>(other->receive(signals, moment));
    static_cast<void>(other->send({{"error", why}}));
}

}  // namespace rvget::tools
