// Control connections inside TLS: everything that a plain one carries, and how it ends.

#include <csignal>
#include <optional>

#include <boost/test/unit_test.hpp>

#include "engine/runtime_fixture.hpp"
#include "engine/tls.hpp"
#include "support/certificates.hpp"

namespace rvget::test {
namespace {

using engine::control_link;

/// One node's files; its certificate bears 127.0.0.1, and that is who it talks to.
struct own_certificate {
    own_certificate() {
        certificate_authority ca(directory.path(), "ca");
        const auto files = ca.issue("node", {.names = "IP:127.0.0.1"});
        options = {files.certificate, files.key, ca.file(), {"127.0.0.1"}};
    }
    [[nodiscard]] engine::runtime_options runtime() const {
        engine::runtime_options o;
        o.tls = engine::tls_context::open(options).value();
        return o;
    }
    scratch_directory directory;
    tls_options options;
};

/// Both ends of one connection in one runtime.
struct tls_pair : own_certificate {
    tls_pair() : e(runtime()) {
        const auto port = e.listen();
        std::optional<result<std::shared_ptr<control_link>>> outcome;
        e.on_strand([&] {
            e.rt.network().connect({"127.0.0.1", port}, e.rt.env().now() + 10s,
                                   [&](auto r) { outcome = std::move(r); });
        });
        BOOST_REQUIRE(e.until([&] { return outcome && e.accepted.size() == 1; }));
        ours = outcome->value();
        theirs = e.accepted.front();
        e.accepted.clear();
        e.on_strand([&] {
            ours->start(our_events);
            theirs->start(their_events);
        });
    }
    void send(control_link& by, const frame_bytes& f) {
        const auto kept = std::make_shared<bytes>(f.payload);
        by.send(f.head, {*kept, kept});
    }

    embedded e;
    std::shared_ptr<control_link> ours;
    std::shared_ptr<control_link> theirs;
    std::shared_ptr<recorder> our_events = std::make_shared<recorder>();
    std::shared_ptr<recorder> their_events = std::make_shared<recorder>();
};

/// The sizes at which records begin and end.
std::vector<frame_bytes> frames_of_many_sizes() {
    return frames_of_sizes({1, 20, 16375, 16376, 65536},
                           {0, 1, 4096, 16383, 16384, 16385, 131080, 1 << 20});
}

BOOST_FIXTURE_TEST_SUITE(tls_link, tls_pair)

BOOST_AUTO_TEST_CASE(frames_of_any_size_arrive_whole_in_both_directions_at_once) {
    const auto frames = frames_of_many_sizes();
    e.on_strand([&] {
        for (const auto& f : frames) {
            send(*ours, f);
            send(*theirs, f);
        }
    });
    BOOST_REQUIRE(e.until([&] {
        return our_events->frames.size() == frames.size() &&
               their_events->frames.size() == frames.size();
    }));
    for (std::size_t i = 0; i < frames.size(); ++i) {
        BOOST_TEST((our_events->frames[i] == frames[i]), "frame " << i);
        BOOST_TEST((their_events->frames[i] == frames[i]), "frame " << i);
    }
    BOOST_TEST(ours->queued_bytes() == 0u);
}

BOOST_AUTO_TEST_CASE(frame_sent_before_the_handshake_is_over_arrives_after_it) {
    // The fixture has started both ends and run nothing since.
    const frame_bytes f{random_bytes(20, 1), random_bytes(100, 2), false};
    e.on_strand([&] { send(*theirs, f); });
    BOOST_REQUIRE(e.until([&] { return our_events->frames.size() == 1; }));
    BOOST_TEST((our_events->frames.front().payload == f.payload));
}

BOOST_AUTO_TEST_CASE(frames_queued_while_the_peer_reads_nothing_arrive_later) {
    // Far more than both sockets hold: each write stops in the middle of a record and goes on.
    const frame_bytes f{random_bytes(20, 1), random_bytes(1 << 20, 2), false};
    constexpr std::size_t count = 32;
    e.on_strand([&] {
        for (std::size_t i = 0; i < count; ++i) send(*ours, f);
    });
    BOOST_REQUIRE(e.until([&] { return their_events->frames.size() == count; }));
    for (const auto& got : their_events->frames) BOOST_TEST((got.payload == f.payload));
}

BOOST_AUTO_TEST_CASE(close_with_flush_delivers_what_was_sent_before) {
    const frame_bytes f{random_bytes(20, 1), random_bytes(3 << 20, 2), false};
    e.on_strand([&] {
        send(*ours, f);
        ours->close(true);
    });
    BOOST_REQUIRE(e.until([&] { return our_events->closed == 1 && their_events->closed == 1; }));
    BOOST_TEST(their_events->frames.size() == 1u);
    BOOST_TEST((their_events->closed_why.code == connection_errc::lost));
}

BOOST_AUTO_TEST_CASE(close_at_once_ends_both_and_raises_no_signal) {
    // SIGPIPE would end this process.
    BOOST_REQUIRE(std::signal(SIGPIPE, SIG_DFL) != SIG_ERR);
    const frame_bytes f{random_bytes(20, 1), random_bytes(8 << 20, 2), false};
    e.on_strand([&] {
        send(*ours, f);
        send(*theirs, f);
    });
    e.on_strand([&] { theirs->close(false); });
    BOOST_REQUIRE(e.until([&] { return our_events->closed == 1 && their_events->closed == 1; }));
}

BOOST_AUTO_TEST_CASE(forgotten_destination_is_written_no_more) {
    const frame_bytes f{{std::byte{1}}, random_bytes(1 << 20, 2), true};
    std::span<std::byte> given;
    e.on_strand([&] { send(*ours, f); });
    BOOST_REQUIRE(e.until(
        [&] { return !their_events->destination.empty() || !their_events->frames.empty(); }));
    if (their_events->frames.empty()) {
        given = their_events->destination;
        bytes before;
        e.on_strand([&] {
            theirs->forget_destination(given);
            before.assign(given.begin(), given.end());
        });
        BOOST_REQUIRE(e.until([&] { return their_events->frames.size() == 1; }));
        BOOST_TEST((their_events->frames.front().payload == before));
    }
    BOOST_TEST(their_events->frames.size() == 1u);
}

BOOST_AUTO_TEST_SUITE_END()

/// An accepted link in TLS, and a raw socket at its other end.
struct raw_against_tls : own_certificate {
    raw_against_tls() : e(runtime()) { peer = e.raw_peer(events, link); }
    bool until_closed() {
        return e.until([&] { return events->closed > 0; });
    }
    embedded e;
    std::shared_ptr<recorder> events = std::make_shared<recorder>();
    std::shared_ptr<control_link> link;
    socket_owner peer;
};

BOOST_FIXTURE_TEST_SUITE(tls_link_and_raw_peer, raw_against_tls)

BOOST_AUTO_TEST_CASE(plain_frame_is_an_authentication_failure) {
    peer.write(on_the_wire({random_bytes(20, 1), {}, false}));
    BOOST_REQUIRE(until_closed());
    BOOST_TEST((events->closed_why.code == connection_errc::authentication));
    BOOST_TEST(events->closed_why.detail.find("TLS") != std::string::npos);
    BOOST_TEST(events->frames.empty());
}

BOOST_AUTO_TEST_CASE(end_before_the_handshake_is_an_authentication_failure) {
    peer.close();
    BOOST_REQUIRE(until_closed());
    BOOST_TEST((events->closed_why.code == connection_errc::authentication));
}

BOOST_AUTO_TEST_CASE(reset_before_the_handshake_is_an_authentication_failure) {
    peer.write(random_bytes(3, 1));
    peer.reset();
    BOOST_REQUIRE(until_closed());
    BOOST_TEST((events->closed_why.code == connection_errc::authentication));
}

BOOST_AUTO_TEST_CASE(close_before_the_handshake_ends_it) {
    e.on_strand([&] { link->close(false); });
    BOOST_REQUIRE(until_closed());
    BOOST_TEST(peer.read(1).empty());
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(tls_files)

failure refusal(const tls_options& o) {
    const auto opened = engine::tls_context::open(o);
    BOOST_REQUIRE(!opened);
    return opened.error();
}

BOOST_FIXTURE_TEST_CASE(missing_file_is_named_with_the_cause, own_certificate) {
    for (auto which :
         {&tls_options::certificate_file, &tls_options::key_file, &tls_options::authority_file}) {
        auto o = options;
        o.*which = (directory.path() / "missing").string();
        const auto f = refusal(o);
        BOOST_TEST((f.code == request_errc::io));
        BOOST_TEST(f.detail.find(o.*which) != std::string::npos, f.detail);
        BOOST_TEST(f.detail.find("give a PEM file") != std::string::npos, f.detail);
    }
}

BOOST_FIXTURE_TEST_CASE(file_of_another_kind_is_named, own_certificate) {
    auto o = options;
    o.certificate_file = options.key_file;
    BOOST_TEST(refusal(o).detail.find(options.key_file) != std::string::npos);
}

BOOST_FIXTURE_TEST_CASE(key_of_another_certificate_is_refused, own_certificate) {
    certificate_authority ca(directory.path(), "another");
    auto o = options;
    o.key_file = ca.issue("other", {.names = "IP:127.0.0.1"}).key;
    const auto f = refusal(o);
    BOOST_TEST(f.detail.find(o.key_file) != std::string::npos, f.detail);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace rvget::test
