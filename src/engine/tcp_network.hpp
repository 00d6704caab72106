#pragma once
// Makes control connections over TCP: names, attempts one address after another, and the listener.

#include <cstddef>
#include <memory>

#include <boost/asio/any_io_executor.hpp>

#include "engine/control_link.hpp"
#include "engine/event_loop.hpp"
#include "engine/tls.hpp"

namespace rvget::engine {

struct tcp_network_options {
    std::size_t max_accepted = 1024;  ///< accepted links open at once
    duration peer_timeout{};          ///< see runtime_options
    std::shared_ptr<const tls_context> tls{};
};

/// `strand` is the loop's. Ends when the loop tells it that it stops.
std::shared_ptr<control_network> make_tcp_network(const std::shared_ptr<event_loop>& loop,
                                                  boost::asio::any_io_executor strand,
                                                  const tcp_network_options& options);

}  // namespace rvget::engine
