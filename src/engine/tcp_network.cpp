#include "engine/tcp_network.hpp"

#include <atomic>
#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/ip/tcp.hpp>

#include "base/log.hpp"
#include "engine/tcp_link.hpp"

namespace rvget::engine {
namespace {

namespace asio = boost::asio;
using asio::any_io_executor;
using asio::ip::tcp;

/// A whole head besides a whole read.
constexpr std::size_t scratch_bytes = wire::prefix_bytes + wire::max_head_bytes + (64 << 10);

/// How long accepting rests when the process or the system is out of descriptors or memory: trying
/// at once would fail at once, as the connection stays in the backlog.
constexpr duration accept_backoff = std::chrono::milliseconds(100);

endpoint_address address_of(const tcp::endpoint& e) { return {e.address().to_string(), e.port()}; }

bool is_shortage(const error_code& ec) {
    namespace errc = boost::system::errc;
    return ec == errc::too_many_files_open || ec == errc::too_many_files_open_in_system ||
           ec == errc::no_buffer_space || ec == errc::not_enough_memory;
}

/// The socket's descriptor, out of Asio's hands; -1 where that fails.
int release(tcp::socket& socket) {
    error_code ec;
    const int fd = socket.release(ec);
    return ec ? -1 : fd;
}

/// One connect(): resolves, then tries one address after another.
class connect_attempt final : public std::enable_shared_from_this<connect_attempt> {
    /// A completion handler that runs `f` as a turn of the loop, unless the attempt is over by
    /// then.
    template <class F>
    auto in_turn(F f) {
        return [self = shared_from_this(), f = std::move(f)](const auto&... given) {
            self->loop_.take_turn([&] {
                if (self->done_) {
                    f(given...);
                }
            });
        };
    }

public:
    using finished = unique_function<void(const std::shared_ptr<connect_attempt>&)>;

    connect_attempt(std::shared_ptr<tcp_link_context> context, any_io_executor strand,
                    endpoint_address to, time_point deadline, control_network::connected done,
                    finished on_finished)
        : context_(std::move(context)),
          loop_(*context_->loop),
          resolver_(std::in_place, strand),
          strand_(std::move(strand)),
          to_(std::move(to)),
          deadline_(deadline),
          done_(std::move(done)),
          finished_(std::move(on_finished)) {}

    void begin() {
        deadline_timer_ = loop_.at(deadline_, [self = shared_from_this()] { self->out_of_time(); });
        error_code ec;
        const auto literal = asio::ip::make_address(to_.host, ec);
        if (!ec) {
            addresses_.emplace_back(literal, to_.port);
            try_next();
            return;
        }
        resolver_->async_resolve(
            to_.host, std::to_string(to_.port), tcp::resolver::numeric_service,
            in_turn([this](error_code why, const tcp::resolver::results_type& found) {
                addresses_.assign(found.begin(), found.end());
                last_error_ = why;
                try_next();
            }));
    }

    void fail(failure why) { finish(std::move(why)); }

private:
    void try_next() {
        loop_.cancel(std::exchange(share_timer_, 0));
        socket_.reset();
        if (next_ == addresses_.size()) {
            fail_to_connect();
            return;
        }
        // An address that does not answer must leave time for those after it.
        const auto left = static_cast<duration::rep>(addresses_.size() - next_);
        const tcp::endpoint& to = addresses_[next_++];
        if (left > 1) {
            share_timer_ = loop_.at(loop_.now() + (deadline_ - loop_.now()) / left,
                                    [self = shared_from_this()] {
                                        self->last_error_ = asio::error::timed_out;
                                        self->try_next();
                                    });
        }
        socket_.emplace(strand_);
        socket_->async_connect(to, in_turn([this, which = next_](error_code ec) {
                                   if (which == next_ && socket_) {
                                       connected(ec);
                                   }
                               }));
    }

    void connected(error_code ec) {
        if (!ec) {
            error_code ignored;
            // Without a listener, a port of the ephemeral range can be connected to from itself
            // (simultaneous open, RFC 9293 3.5): nobody is there.
            if (socket_->local_endpoint(ignored) == socket_->remote_endpoint(ignored)) {
                ec = asio::error::connection_refused;
            }
        }
        std::shared_ptr<tcp_link> link;
        if (!ec) {
            const int fd = release(*socket_);
            link = fd >= 0 ? tcp_link::connected(context_, fd, to_.host) : nullptr;
            if (!link) {
                ec = asio::error::no_memory;
            }
        }
        if (ec) {
            last_error_ = ec;
            try_next();
        } else {
            finish(std::shared_ptr<control_link>(std::move(link)));
        }
    }

    void out_of_time() {
        last_error_ = asio::error::timed_out;
        fail_to_connect();
    }

    void fail_to_connect() {
        std::string what = "cannot connect to " + to_.to_string();
        if (next_ == 0) {
            what += " (its name does not resolve)";
        } else if (const auto tried = address_of(addresses_[next_ - 1]); tried != to_) {
            what += " (" + tried.to_string() + ")";
        }
        const bool out_of_descriptors = last_error_ == asio::error::no_descriptors;
        finish(failure(connection_errc::connect_failed,
                       what + ": " + last_error_.message() +
                           (out_of_descriptors
                                ? "; raise `ulimit -n`"
                                : "; see whether its owner runs and whether a firewall lets its "
                                  "port through")));
    }

    void finish(result<std::shared_ptr<control_link>> outcome) {
        if (!done_) {
            return;
        }
        const auto self = shared_from_this();
        loop_.cancel(deadline_timer_);
        loop_.cancel(share_timer_);
        socket_.reset();
        resolver_.reset();
        strand_ = any_io_executor();
        auto done = std::exchange(done_, nullptr);
        finished_(self);
        done(std::move(outcome));
    }

    std::shared_ptr<tcp_link_context> context_;
    event_loop& loop_;
    std::optional<tcp::resolver> resolver_;
    any_io_executor strand_;
    const endpoint_address to_;
    const time_point deadline_;
    control_network::connected done_;  ///< empty once called
    finished finished_;
    std::vector<tcp::endpoint> addresses_;
    std::size_t next_ = 0;
    std::optional<tcp::socket> socket_;
    error_code last_error_;
    environment::timer_id deadline_timer_ = 0;
    environment::timer_id share_timer_ = 0;
};

class listener final : public std::enable_shared_from_this<listener> {
public:
    listener(std::shared_ptr<tcp_link_context> context, tcp::acceptor acceptor,
             std::size_t max_accepted, std::shared_ptr<std::atomic<std::size_t>> open,
             control_network::accepted on_accept)
        : context_(std::move(context)),
          loop_(*context_->loop),
          acceptor_(std::move(acceptor)),
          max_accepted_(max_accepted),
          open_(std::move(open)),
          on_accept_(std::move(on_accept)) {}

    void accept_next() {
        if (!acceptor_) {
            return;
        }
        acceptor_->async_accept([self = shared_from_this()](error_code ec, tcp::socket peer) {
            self->loop_.take_turn([&] { self->accepted(ec, peer); });
        });
    }

    void close() {
        acceptor_.reset();
        loop_.cancel(std::exchange(backoff_, 0));
    }

private:
    void accepted(error_code ec, tcp::socket& peer) {
        if (!acceptor_) {
            return;
        }
        if (!ec) {
            admit(peer);
            refusing_ = refusing_ && open_->load() >= max_accepted_;
        } else if (is_shortage(ec)) {
            rest(ec);
            return;
        }
        // Any other error belongs to the one connection that it came with (accept(2)).
        accept_next();
    }

    void admit(tcp::socket& peer) {
        if (open_->load() >= max_accepted_) {
            if (!std::exchange(refusing_, true)) {
                log(log_level::warning,
                    "event=accept_refused cause=\"max_accepted connections are "
                    "open\" max_accepted=" +
                        std::to_string(max_accepted_));
            }
            error_code ignored;
            peer.close(ignored);
            return;
        }
        ++*open_;
        const std::shared_ptr<const void> admission(this, [open = open_](const void*) { --*open; });
        const int fd = release(peer);
        auto link = fd >= 0 ? tcp_link::accepted(context_, fd, admission) : nullptr;
        if (link) {
            on_accept_(std::move(link));
        } else {
            log(log_level::warning, "event=accept_failed cause=\"the socket cannot be watched\"");
        }
    }

    void rest(const error_code& why) {
        if (loop_.now() >= say_shortage_from_) {
            say_shortage_from_ = loop_.now() + std::chrono::minutes(1);
            log(log_level::error, "event=accept_paused cause=" + quoted(why.message()) +
                                      " effect=\"new peers wait\" next=\"raise the limit of open "
                                      "files (ulimit -n)\"");
        }
        backoff_ = loop_.at(loop_.now() + accept_backoff,
                            [self = shared_from_this()] { self->accept_next(); });
    }

    std::shared_ptr<tcp_link_context> context_;
    event_loop& loop_;
    std::optional<tcp::acceptor> acceptor_;  ///< empty once closed
    const std::size_t max_accepted_;
    std::shared_ptr<std::atomic<std::size_t>> open_;
    control_network::accepted on_accept_;
    bool refusing_ = false;
    time_point say_shortage_from_;
    environment::timer_id backoff_ = 0;
};

class tcp_network final : public control_network, public stop_listener {
public:
    tcp_network(const std::shared_ptr<event_loop>& loop, any_io_executor strand,
                const tcp_network_options& options)
        : loop_(loop),
          strand_(std::move(strand)),
          max_accepted_(options.max_accepted),
          context_(std::make_shared<tcp_link_context>(tcp_link_context{
              loop, options.peer_timeout, std::vector<std::byte>(scratch_bytes), options.tls})) {
        loop_->tell_stopping(*this);
    }
    ~tcp_network() override { loop_->forget(*this); }
    tcp_network(const tcp_network&) = delete;
    tcp_network& operator=(const tcp_network&) = delete;

    void connect(const endpoint_address& to, time_point deadline, connected done) override;
    result<endpoint_address> listen(const endpoint_address& at, accepted on_accept) override;
    void stop_listening() override;
    void stopping() override;

private:
    result<tcp::acceptor> open_acceptor(const endpoint_address& at);

    std::shared_ptr<event_loop> loop_;
    any_io_executor strand_;  ///< empty once stopped
    const std::size_t max_accepted_;
    std::shared_ptr<std::atomic<std::size_t>> open_ = std::make_shared<std::atomic<std::size_t>>(0);
    std::shared_ptr<tcp_link_context> context_;
    std::shared_ptr<listener> listener_;
    std::set<std::shared_ptr<connect_attempt>> attempts_;
};

void tcp_network::connect(const endpoint_address& to, time_point deadline, connected done) {
    if (!strand_) {
        return;
    }
    auto attempt = std::make_shared<connect_attempt>(
        context_, strand_, to, deadline, std::move(done),
        [this](const std::shared_ptr<connect_attempt>& over) { attempts_.erase(over); });
    attempts_.insert(attempt);
    loop_->post([attempt] { attempt->begin(); });
}

result<tcp::acceptor> tcp_network::open_acceptor(const endpoint_address& at) {
    const auto failed = [&](const std::string& cause) {
        return failure(request_errc::io, "cannot listen on " + at.to_string() + ": " + cause +
                                             "; give an address of this machine and a free port");
    };
    error_code ec;
    std::vector<tcp::endpoint> candidates;
    if (const auto literal = asio::ip::make_address(at.host, ec); !ec) {
        candidates.emplace_back(literal, at.port);
    } else if (!at.host.empty()) {  // never "everywhere" by omission
        const auto found = tcp::resolver(strand_).resolve(at.host, std::to_string(at.port),
                                                          tcp::resolver::numeric_service, ec);
        candidates.assign(found.begin(), found.end());
    }
    for (const tcp::endpoint& candidate : candidates) {
        tcp::acceptor acceptor(strand_);
        acceptor.open(candidate.protocol(), ec);
        if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
        if (!ec) acceptor.bind(candidate, ec);
        if (!ec) acceptor.listen(asio::socket_base::max_listen_connections, ec);
        if (!ec) {
            return acceptor;
        }
    }
    return failed(at.host.empty() ? "no host is given" : ec.message());
}

result<endpoint_address> tcp_network::listen(const endpoint_address& at, accepted on_accept) {
    if (!strand_) {
        return failure(node_errc::stopped, "cannot listen on " + at.to_string());
    }
    if (listener_) {
        return failure(request_errc::invalid_argument,
                       "cannot listen on " + at.to_string() + ": already listening");
    }
    auto acceptor = open_acceptor(at);
    if (!acceptor) {
        return acceptor.error();
    }
    error_code ignored;
    const auto bound = address_of(acceptor->local_endpoint(ignored));
    listener_ = std::make_shared<listener>(context_, std::move(*acceptor), max_accepted_, open_,
                                           std::move(on_accept));
    listener_->accept_next();
    return bound;
}

void tcp_network::stop_listening() {
    if (const auto old = std::exchange(listener_, nullptr)) {
        old->close();
    }
}

void tcp_network::stopping() {
    stop_listening();
    strand_ = any_io_executor();
    while (!attempts_.empty()) {
        const auto first = *attempts_.begin();
        first->fail({node_errc::stopped, "this node stopped"});
    }
}

}  // namespace

std::shared_ptr<control_network> make_tcp_network(const std::shared_ptr<event_loop>& loop,
                                                  boost::asio::any_io_executor strand,
                                                  const tcp_network_options& options) {
    return std::make_shared<tcp_network>(loop, std::move(strand), options);
}

}  // namespace rvget::engine
