#pragma once
// What the two ends of `rvget perf` say to each other beside the transfers: JSON, an object a line.

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/json/object.hpp>

#include <rvget/error.hpp>
#include <rvget/handle.hpp>

#include "signal_watch.hpp"

namespace rvget::tools {

class perf_listener;

/// A TCP connection. Move-only, one thread. Whatever waits ends at a signal with `cancelled`.
class perf_channel {
public:
    static result<perf_channel> connect(const endpoint_address& to,
                                        std::chrono::milliseconds limit);

    result<void> send(const boost::json::object& o);
    /// `lost` where the peer has hung up, `protocol` where it says something else than an object,
    /// `deadline_exceeded` after `limit` (none: it waits for ever).
    /// Who comes to `others` meanwhile (null: nobody is looked for) is told that this is taken.
    result<boost::json::object> receive(signal_watch& signals,
                                        std::optional<std::chrono::milliseconds> limit,
                                        perf_listener* others = nullptr);
    /// Sends and receives; an answer with an "error" is that failure.
    result<boost::json::object> ask(const boost::json::object& question, signal_watch& signals,
                                    std::chrono::milliseconds limit);
    /// Of this machine, as the peer sees it.
    [[nodiscard]] std::string local_host() const;

private:
    friend class perf_listener;
    perf_channel(std::shared_ptr<boost::asio::io_context> context,
                 boost::asio::ip::tcp::socket socket);
    result<void> wait_and_refuse(signal_watch& signals,
                                 std::optional<std::chrono::milliseconds> limit,
                                 perf_listener* others);

    std::shared_ptr<boost::asio::io_context> context_;  ///< outlives the socket
    boost::asio::ip::tcp::socket socket_;
    std::string received_;
};

class perf_listener {
public:
    static result<perf_listener> open(const endpoint_address& at);
    [[nodiscard]] endpoint_address address() const;
    /// As perf_channel::receive().
    result<perf_channel> accept(signal_watch& signals,
                                std::optional<std::chrono::milliseconds> limit);
    /// Takes who waits, hears the greeting and answers with `why` as the error. Blocks for a moment
    /// at most.
    void refuse(signal_watch& signals, const std::string& why);
    [[nodiscard]] bool somebody_waits();
    [[nodiscard]] int descriptor() { return acceptor_.native_handle(); }

private:
    perf_listener(std::shared_ptr<boost::asio::io_context> context,
                  boost::asio::ip::tcp::acceptor acceptor);

    std::shared_ptr<boost::asio::io_context> context_;
    boost::asio::ip::tcp::acceptor acceptor_;
};

}  // namespace rvget::tools
