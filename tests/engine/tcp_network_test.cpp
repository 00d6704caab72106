// Connecting and accepting.

#include <mutex>

#include <fcntl.h>
#include <sys/resource.h>

#include <boost/test/unit_test.hpp>

#include "engine/runtime_fixture.hpp"
#include "rvget/log.hpp"

namespace rvget::test {
namespace {

using engine::control_link;
using connected = result<std::shared_ptr<control_link>>;

connected connect(embedded& e, const endpoint_address& to, duration within = 10s) {
    std::optional<connected> outcome;
    e.on_strand([&] {
        e.rt.network().connect(to, e.rt.env().now() + within,
                               [&](connected r) { outcome = std::move(r); });
        BOOST_TEST(!outcome);  // never from within the call
    });
    BOOST_REQUIRE(e.until([&] { return outcome.has_value(); }));
    return *outcome;
}

/// The lines logged while it lives.
struct log_lines {
    log_lines() {
        set_log_sink([this](log_level, std::string_view line) { lines.emplace_back(line); });
    }
    ~log_lines() { set_log_sink({}); }
    [[nodiscard]] auto count(std::string_view event) const {
        return std::ranges::count_if(lines,
                                     [&](const std::string& l) { return l.starts_with(event); });
    }
    std::vector<std::string> lines;
};

BOOST_AUTO_TEST_CASE(connect_to_a_listener_gives_links_that_name_each_other) {
    embedded e;
    const auto port = e.listen();
    const auto ours = connect(e, {"127.0.0.1", port}).value();
    BOOST_REQUIRE(e.until([&] { return e.accepted.size() == 1; }));
    const auto theirs = e.accepted.front();
    BOOST_TEST(ours->peer_name() == "127.0.0.1:" + std::to_string(port));
    BOOST_TEST(ours->peer_address() == "127.0.0.1");
    BOOST_TEST(ours->own_address() == "127.0.0.1");
    BOOST_TEST(theirs->peer_address() == "127.0.0.1");
    auto a = std::make_shared<recorder>();
    auto b = std::make_shared<recorder>();
    e.on_strand([&] {
        ours->start(a);
        theirs->start(b);
        ours->send({std::byte{2}}, {});
    });
    BOOST_REQUIRE(e.until([&] { return b->frames.size() == 1; }));
    e.on_strand([&] { theirs->close(true); });
    BOOST_TEST(e.until([&] { return a->closed == 1 && b->closed == 1; }));
    BOOST_TEST(a->closed_why.code == make_error_code(connection_errc::lost));
}

BOOST_AUTO_TEST_CASE(connect_refused_names_address_and_cause) {
    embedded e;
    const auto [unused, port] = bound_socket();  // bound, and nobody listens
    const auto r = connect(e, {"127.0.0.1", port});
    BOOST_REQUIRE(!r);
    const auto address = "127.0.0.1:" + std::to_string(port);
    BOOST_TEST(r.error().code == make_error_code(connection_errc::connect_failed));
    BOOST_TEST(r.error().detail.starts_with("cannot connect to " + address +
                                            ": Connection refused; see whether its owner runs"));
}

BOOST_AUTO_TEST_CASE(connect_to_a_name_tries_all_its_addresses) {
    embedded e;
    const auto port = e.listen();  // on IPv4 only, and localhost may come as ::1 first
    const auto r = connect(e, {"localhost", port});
    BOOST_REQUIRE_MESSAGE(r.has_value(), (r ? std::string() : r.error().message()));
    BOOST_TEST(r.value()->peer_address() == "127.0.0.1");
}

BOOST_AUTO_TEST_CASE(connect_by_name_refused_names_the_address_too) {
    embedded e;
    const auto [unused, port] = bound_socket();
    const auto r = connect(e, {"localhost", port});
    BOOST_REQUIRE(!r);
    BOOST_TEST(
        r.error().detail.starts_with("cannot connect to localhost:" + std::to_string(port) + " ("));
    BOOST_TEST(r.error().detail.find("Connection refused") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(connect_unanswered_fails_at_its_deadline) {
    const auto [socket, port] = bound_socket();
    ::listen(socket.get(), 0);
    const auto filler = connect_raw(port);  // the backlog is full: further SYNs are dropped
    embedded e;
    const auto begun = std::chrono::steady_clock::now();
    const auto r = connect(e, {"127.0.0.1", port}, 50ms);
    BOOST_REQUIRE(!r);
    BOOST_TEST((std::chrono::steady_clock::now() - begun >= 50ms));
    BOOST_TEST(r.error().code == make_error_code(connection_errc::connect_failed));
    BOOST_TEST(r.error().detail.find(": Connection timed out") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(listen_on_a_taken_port_names_address_and_cause) {
    const auto [socket, port] = bound_socket();
    ::listen(socket.get(), 1);
    embedded e;
    e.on_strand([&, p = port] {
        const auto r = e.rt.network().listen({"127.0.0.1", p}, [](auto) {});
        BOOST_REQUIRE(!r);
        BOOST_TEST(r.error().code == make_error_code(request_errc::io));
        BOOST_TEST(r.error().detail.starts_with("cannot listen on 127.0.0.1:" + std::to_string(p) +
                                                ": Address already in use"));
    });
}

BOOST_AUTO_TEST_CASE(listen_without_a_host_is_refused_and_not_everywhere) {
    embedded e;
    e.on_strand([&] { BOOST_TEST(!e.rt.network().listen({"", 0}, [](auto) {})); });
}

BOOST_AUTO_TEST_CASE(listen_on_every_ipv6_address_shows_an_ipv4_peer_as_such) {
    embedded e;
    std::uint16_t port = 0;
    e.on_strand([&] {
        const auto r = e.rt.network().listen({"::", 0}, [&](auto l) { e.accepted.push_back(l); });
        port = r ? r->port : 0;
    });
    if (port == 0) {
        BOOST_TEST_MESSAGE("skipped: no IPv6 here");
        BOOST_TEST(::socket(AF_INET6, SOCK_STREAM, 0) < 0);
        return;
    }
    const auto peer = connect_raw(port);
    BOOST_REQUIRE(e.until([&] { return e.accepted.size() == 1; }));
    BOOST_TEST(e.accepted.front()->peer_address() == "127.0.0.1");
    BOOST_TEST(e.accepted.front()->own_address() == "127.0.0.1");
}

BOOST_AUTO_TEST_CASE(listen_again_after_stop_listening_takes_the_same_port) {
    embedded e;
    const auto port = e.listen();
    const auto peer = connect_raw(port);
    BOOST_REQUIRE(e.until([&] { return e.accepted.size() == 1; }));
    e.on_strand([&] {
        BOOST_TEST(!e.rt.network().listen({"127.0.0.1", 0}, [](auto) {}));
        e.rt.network().stop_listening();
        BOOST_TEST(e.rt.network().listen({"127.0.0.1", port}, [](auto) {}).has_value());
    });
}

BOOST_AUTO_TEST_CASE(accept_beyond_the_limit_is_closed_until_one_ends) {
    const log_lines log;
    engine::runtime_options options;
    options.max_accepted = 1;
    embedded e(options);
    const auto port = e.listen();
    auto first = connect_raw(port);
    BOOST_REQUIRE(e.until([&] { return e.accepted.size() == 1; }));
    auto events = std::make_shared<recorder>();
    e.on_strand([&] { e.accepted.front()->start(events); });
    for (int i = 0; i < 2; ++i) {
        const auto refused = connect_raw(port);
        ::fcntl(refused.get(), F_SETFL, O_NONBLOCK);
        std::byte b{};
        BOOST_TEST(e.until([&] { return ::recv(refused.get(), &b, 1, 0) == 0; }));
    }
    BOOST_TEST(e.accepted.size() == 1u);
    BOOST_TEST(log.count("event=accept_refused") == 1);
    first.close();
    BOOST_REQUIRE(e.until([&] { return events->closed == 1; }));
    const auto third = connect_raw(port);
    BOOST_TEST(e.until([&] { return e.accepted.size() == 2; }));
}

BOOST_AUTO_TEST_CASE(accept_without_descriptors_rests_and_goes_on_later) {
    const log_lines log;
    embedded e;
    const auto port = e.listen();
    // One goes well before: the sanitizers' first look at a type needs descriptors of its own.
    const auto first = connect_raw(port);
    BOOST_REQUIRE(e.until([&] { return e.accepted.size() == 1; }));
    const auto second = connect_raw(port);  // waits in the backlog
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    const int next_free = ::dup(second.get());
    ::close(next_free);
    rlimit none = before;
    none.rlim_cur = static_cast<rlim_t>(next_free);
    BOOST_REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    const bool paused = e.until([&] { return log.count("event=accept_paused") == 1; });
    ::setrlimit(RLIMIT_NOFILE, &before);
    BOOST_REQUIRE(paused);
    const auto since = std::chrono::steady_clock::now();
    e.context.restart();
    std::size_t handlers = 0;
    while (e.accepted.size() < 2 && handlers < 1000) handlers += e.context.run_one_for(patience);
    BOOST_TEST(e.accepted.size() == 2u);
    BOOST_TEST((std::chrono::steady_clock::now() - since > 50ms));
    BOOST_TEST(handlers < 10u);  // slept in between
}

BOOST_AUTO_TEST_CASE(stop_listening_in_the_accept_callback_is_allowed) {
    embedded e;
    std::uint16_t port = 0;
    int accepted = 0;
    e.on_strand([&] {
        port = e.rt.network()
                   .listen({"127.0.0.1", 0},
                           [&](auto) {
                               ++accepted;
                               e.rt.network().stop_listening();
                           })
                   .value()
                   .port;
    });
    const auto peer = connect_raw(port);
    BOOST_TEST(e.until([&] { return accepted == 1; }));
}

}  // namespace
}  // namespace rvget::test
