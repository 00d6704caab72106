// Nodes that speak TLS: who is let in by name and chain, and what everybody else gets.

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <openssl/ssl.h>

#include <boost/test/unit_test.hpp>

#include "api/nodes.hpp"
#include "api/raw_peer.hpp"
#include "support/certificates.hpp"
#include "support/seeded_random.hpp"

namespace rvget::test {
namespace {

struct authorities {
    node_options with(const certificate_files& f, std::vector<std::string> peers,
                      node_options o = {}) {
        o.tls = {f.certificate, f.key, ca.file(), std::move(peers)};
        return o;
    }
    scratch_directory directory;
    certificate_authority ca{directory.path(), "ca"};
    certificate_authority other{directory.path(), "other-ca"};
    certificate_files owner_files = ca.issue("owner", {.names = "IP:127.0.0.1,DNS:owner.test"});
    certificate_files consumer_files = ca.issue("consumer", {.names = "DNS:consumer.test"});
};

struct tls_owner : authorities {
    explicit tls_owner(node_options o = {})
        : owner(start_tcp_node(listening(with(owner_files, {"consumer.test"}, std::move(o))))) {}

    [[nodiscard]] node consumer(const certificate_files& f, std::vector<std::string> peers = {}) {
        return start_tcp_node(with(f, std::move(peers)));
    }
    void check_serves() {
        auto good = consumer(consumer_files);
        const auto got = good.get(owner.url_of(staged));
        BOOST_REQUIRE_MESSAGE(got, got.error().message());
        check_pattern(got->data.bytes());
    }
    void check_refuses(node consumer) {
        const auto got = consumer.get(owner.url_of(staged));
        BOOST_REQUIRE(!got);
        BOOST_TEST(got.error().code == make_error_code(connection_errc::authentication),
                   got.error().message());
        BOOST_TEST(got.error().detail.find("TLS") != std::string::npos, got.error().detail);
    }
    [[nodiscard]] raw_socket connect() const { return connect_raw(*owner.address()); }

    node owner;
    handle staged = owner.stage(payload((std::size_t{1} << 20) + 4097)).value();
};

/// The stream ends; alerts of TLS, which say nothing but that it refuses, may come before.
bool ends_with_alerts_at_most(const raw_socket& s) {
    bytes came;
    std::array<std::byte, 4096> part{};
    ssize_t n = 0;
    while ((n = ::recv(s.get(), part.data(), part.size(), 0)) > 0)
        came.insert(came.end(), part.begin(), part.begin() + n);
    const bool ended = n == 0 || errno == ECONNRESET;
    return ended && (came.empty() || (came[0] == std::byte{21} && came.size() <= 64));
}

BOOST_FIXTURE_TEST_SUITE(tls, tls_owner)

BOOST_AUTO_TEST_CASE(certificates_with_the_right_names_serve_every_size) {
    auto good = consumer(consumer_files);
    for (const auto size : transfer_sizes) {
        const auto h = owner.stage(payload(size)).value();
        const auto got = good.get(owner.url_of(h));
        BOOST_REQUIRE_MESSAGE(got, got.error().message());
        BOOST_TEST(got->data.size() == size);
        check_pattern(got->data.bytes());
    }
    BOOST_TEST((good.connect(*owner.address()).value() == owner.id()));
}

BOOST_AUTO_TEST_CASE(consumer_may_expect_another_name_than_the_host) {
    auto by_name = consumer(consumer_files, {"nobody.test", "owner.test"});
    BOOST_TEST(by_name.get(owner.url_of(staged)).has_value());
}

BOOST_AUTO_TEST_CASE(contract_6_4_consumer_with_another_name_is_refused) {
    check_refuses(consumer(ca.issue("c1", {.names = "DNS:another.test"})));
    check_refuses(consumer(ca.issue("c2", {.names = "DNS:consumer.test.example"})));
    check_refuses(consumer(ca.issue("c3", {.names = "DNS:sub.consumer.test"})));
    check_refuses(consumer(ca.issue("c4", {})));
    check_serves();
}

BOOST_AUTO_TEST_CASE(contract_6_4_common_name_is_no_name) {
    check_refuses(consumer(ca.issue("c1", {.common_name = "consumer.test"})));
    check_refuses(
        consumer(ca.issue("c2", {.names = "DNS:another.test", .common_name = "consumer.test"})));
}

BOOST_AUTO_TEST_CASE(contract_6_4_owner_with_another_name_than_expected_is_refused) {
    auto expects = consumer(consumer_files, {"someone-else.test"});
    const auto got = expects.get(owner.url_of(staged));
    BOOST_REQUIRE(!got);
    BOOST_TEST(got.error().code == make_error_code(connection_errc::authentication));
    BOOST_TEST(got.error().detail.find("someone-else.test") != std::string::npos,
               got.error().detail);
    // The same chain, and the name of a consumer: who gets may not pose as who serves.
    auto impostor = start_tcp_node(listening(with(consumer_files, {"consumer.test"})));
    const auto h = impostor.stage(payload(100)).value();
    auto good = consumer(consumer_files);
    const auto from_impostor = good.get(impostor.url_of(h));
    BOOST_REQUIRE(!from_impostor);
    BOOST_TEST(from_impostor.error().code == make_error_code(connection_errc::authentication));
}

BOOST_AUTO_TEST_CASE(contract_6_4_certificate_outside_its_time_is_refused) {
    const std::string names = "DNS:consumer.test,IP:127.0.0.1";
    const auto expired =
        ca.issue("expired", {.names = names, .valid_from = -7200, .valid_until = -60});
    const auto future =
        ca.issue("future", {.names = names, .valid_from = 3600, .valid_until = 7200});
    check_refuses(consumer(expired));
    check_refuses(consumer(future));
    auto late = start_tcp_node(listening(with(expired, {"consumer.test"})));
    const auto h = late.stage(payload(100)).value();
    auto good = consumer(consumer_files);
    const auto got = good.get(late.url_of(h));
    BOOST_REQUIRE(!got);
    BOOST_TEST(got.error().code == make_error_code(connection_errc::authentication));
    BOOST_TEST(got.error().detail.find("expired") != std::string::npos, got.error().detail);
}

BOOST_AUTO_TEST_CASE(contract_6_4_certificate_of_another_authority_is_refused) {
    check_refuses(consumer(other.issue("foreign", {.names = "DNS:consumer.test"})));
    auto foreign = start_tcp_node(listening(
        with(other.issue("foreign-owner", {.names = "IP:127.0.0.1"}), {"consumer.test"})));
    auto good = consumer(consumer_files);
    const auto got = good.get(foreign.url_of(foreign.stage(payload(100)).value()));
    BOOST_REQUIRE(!got);
    BOOST_TEST(got.error().code == make_error_code(connection_errc::authentication));
}

BOOST_AUTO_TEST_CASE(contract_6_4_plain_consumer_and_plain_owner_are_refused) {
    auto plain = start_tcp_node();
    BOOST_TEST(!plain.get(owner.url_of(staged)));
    auto plain_owner = start_tcp_node(listening());
    auto good = consumer(consumer_files);
    const auto got = good.get(plain_owner.url_of(plain_owner.stage(payload(100)).value()));
    BOOST_REQUIRE(!got);
    BOOST_TEST(got.error().code == make_error_code(connection_errc::authentication));
}

BOOST_AUTO_TEST_CASE(contract_6_4_secret_inside_tls_asks_for_both) {
    node_options o;
    o.secret = "thirty-two bytes of randomness..";
    tls_owner both(o);
    auto options = both.with(both.consumer_files, {}, o);
    auto good = start_tcp_node(options);
    BOOST_TEST(good.get(both.owner.url_of(both.staged)).has_value());
    options.secret.clear();
    auto without_secret = start_tcp_node(options);
    BOOST_TEST(!without_secret.get(both.owner.url_of(both.staged)));
    auto without_tls = start_tcp_node(o);
    BOOST_TEST(!without_tls.get(both.owner.url_of(both.staged)));
}

/// A client of OpenSSL's own over a blocking socket.
struct raw_client {
    explicit raw_client(const raw_socket& s) : context(::SSL_CTX_new(::TLS_client_method())) {
        ssl = ::SSL_new(context);
        ::SSL_set_fd(ssl, s.get());
    }
    ~raw_client() {
        ::SSL_free(ssl);
        ::SSL_CTX_free(context);
    }
    raw_client(const raw_client&) = delete;
    raw_client& operator=(const raw_client&) = delete;
    /// Greets, once the handshake is over on this side; whether anything at all is answered.
    [[nodiscard]] bool is_answered() const {
        if (::SSL_connect(ssl) != 1) return false;
        const auto hello = on_the_wire(wire::frame{0, wire::hello{.node = node_id{7}}});
        ::SSL_write(ssl, hello.data(), static_cast<int>(hello.size()));
        std::byte b{};
        return ::SSL_read(ssl, &b, 1) > 0;
    }
    SSL_CTX* context;
    SSL* ssl;
};

BOOST_AUTO_TEST_CASE(contract_6_4_client_without_a_certificate_is_answered_nothing) {
    const auto s = connect();
    BOOST_TEST(!raw_client(s).is_answered());
}

BOOST_AUTO_TEST_CASE(client_with_a_certificate_is_answered) {
    // So that the tests around it do not fail for another reason than they name.
    const auto s = connect();
    raw_client c(s);
    BOOST_REQUIRE(::SSL_use_certificate_file(c.ssl, consumer_files.certificate.c_str(),
                                             SSL_FILETYPE_PEM) == 1);
    BOOST_REQUIRE(::SSL_use_PrivateKey_file(c.ssl, consumer_files.key.c_str(), SSL_FILETYPE_PEM) ==
                  1);
    BOOST_TEST(c.is_answered());
}

BOOST_AUTO_TEST_CASE(contract_6_4_client_of_an_older_tls_is_refused) {
    const auto s = connect();
    raw_client c(s);
    ::SSL_use_certificate_file(c.ssl, consumer_files.certificate.c_str(), SSL_FILETYPE_PEM);
    ::SSL_use_PrivateKey_file(c.ssl, consumer_files.key.c_str(), SSL_FILETYPE_PEM);
    ::SSL_set_max_proto_version(c.ssl, TLS1_2_VERSION);
    BOOST_TEST(!c.is_answered());
    BOOST_TEST(::SSL_is_init_finished(c.ssl) == 0);
}

BOOST_AUTO_TEST_CASE(contract_6_4_plain_greeting_is_answered_nothing_but_an_alert) {
    const auto s = connect();
    s.write(wire::frame{0, wire::hello{.node = node_id{7}}});
    BOOST_TEST(ends_with_alerts_at_most(s));
    check_serves();
}

BOOST_AUTO_TEST_CASE(garbage_is_answered_nothing_but_an_alert) {
    seeded_random random("tls_garbage");
    for (int i = 0; i < 100; ++i) {
        bytes garbage(random.below(600) + 1);
        for (auto& b : garbage) b = static_cast<std::byte>(random.u64());
        if (i % 2 == 0) {  // what begins as a ClientHello
            const std::uint8_t head[] = {22, 3, 1, 1, 0, 1, 0, 0, 252, 3, 3};
            garbage.insert(garbage.begin(), std::size(head), std::byte{});
            std::memcpy(garbage.data(), head, sizeof head);
        }
        const auto s = connect();
        s.write(garbage);
        s.shutdown(SHUT_WR);
        BOOST_TEST(ends_with_alerts_at_most(s));
    }
    check_serves();
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(tls_strangers)

BOOST_AUTO_TEST_CASE(contract_6_4_slow_stranger_is_closed_at_the_handshake_deadline) {
    node_options o;
    o.handshake_timeout = 500ms;
    tls_owner t(o);
    const auto silent = t.connect();
    const auto half = t.connect();
    const std::uint8_t beginning[] = {22, 3, 1, 1, 0, 1};
    BOOST_REQUIRE(half.write(std::as_bytes(std::span(beginning))));
    BOOST_TEST(ends_with_alerts_at_most(silent));
    BOOST_TEST(ends_with_alerts_at_most(half));
}

BOOST_AUTO_TEST_CASE(contract_6_4_many_strangers_keep_nobody_out) {
    node_options o;
    o.handshake_timeout = 10min;
    o.max_handshakes = 8;
    tls_owner t(o);
    std::vector<raw_socket> crowd;
    for (int i = 0; i < 50; ++i) crowd.push_back(t.connect());
    t.check_serves();
    for (int i = 0; i < 42; ++i) BOOST_TEST(ends_with_alerts_at_most(crowd[i]));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_FIXTURE_TEST_CASE(tls_options_that_are_not_whole_do_not_validate, authorities) {
    const auto whole = listening(with(owner_files, {"consumer.test"}));
    BOOST_TEST(whole.validate().has_value());
    for (auto which :
         {&tls_options::certificate_file, &tls_options::key_file, &tls_options::authority_file}) {
        auto part = whole;
        (part.tls.*which).clear();
        BOOST_TEST(!part.validate());
    }
    auto nobody = whole;
    nobody.tls.peers.clear();
    BOOST_TEST(!nobody.validate(), "an owner names its consumers");
    auto nameless = whole;
    nameless.tls.peers.emplace_back();
    BOOST_TEST(!nameless.validate());
    nobody.listen.reset();
    BOOST_TEST(nobody.validate().has_value(), "a consumer need not: it knows whom it asks");
    node_options names_only;
    names_only.tls.peers = {"consumer.test"};
    BOOST_TEST(!names_only.validate());
}

}  // namespace
}  // namespace rvget::test
