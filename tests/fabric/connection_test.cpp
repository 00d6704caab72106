// Connections by RDMA-CM on a real (software) device, of RoCE and of iWARP: run under ci/softroce.
#include <boost/test/unit_test.hpp>

#include <chrono>
#include <future>

#include "fabric/inventory/netdev_address.hpp"
#include "fabric/verbs_support.hpp"

namespace verbs_support {
namespace {

using namespace std::chrono_literals;
constexpr auto limit = 5000ms;

bool contains(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}
std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}
/// RDMA-CM pads what it carries.
std::string text_of(std::span<const std::byte> data) {
    const std::string all(reinterpret_cast<const char*>(data.data()), data.size());
    return all.substr(0, all.find('\0'));
}

/// A device, its address, and two queue pairs of it that are in INIT.
struct ends {
    ends() {
        const auto& port = nic->facts().ports.front();
        address = inventory::address_of(port.netdev, "");
        BOOST_REQUIRE(!address.empty());
        iwarp = port.link_layer == route::link_layer::iwarp;
        const auto sink = iwarp ? access::remote_write : access::none;
        need(reader->to_init(sink));
        need(owner->to_init(access::remote_read));
    }
    [[nodiscard]] connection_target to(std::uint16_t port) const {
        return {address, address, port};
    }
    static connection_terms terms(const queue_pair& of, std::string_view word = {}) {
        return {.queue_pair_number = of.number(),
                .initiator_depth = 4,
                .responder_depth = 4,
                .private_data = bytes_of(word)};
    }

    std::shared_ptr<device> nic = open_device();
    std::shared_ptr<completion_queue> reader_queue = need(nic->create_completion_queue(64));
    std::shared_ptr<completion_queue> owner_queue = need(nic->create_completion_queue(64));
    std::unique_ptr<queue_pair> reader = need(nic->create_queue_pair(
        reader_queue, 1, {.send_requests = 4, .receive_requests = 1, .binds = false}));
    std::unique_ptr<queue_pair> owner =
        need(nic->create_queue_pair(owner_queue, 1, {.send_requests = 4, .binds = false}));
    std::string address;
    bool iwarp = false;
};

void ready(queue_pair& qp, const connection& c) {
    auto r = c.receive().value_or(receive_parameters{});
    r.responder_depth = 4;
    need(qp.to_ready_to_receive(r));
    need(qp.to_ready_to_send({.starting_psn = c.starting_psn(), .initiator_depth = 4}));
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(connections, ends)

BOOST_AUTO_TEST_CASE(connection_tells_both_ends_of_each_other_and_carries_reads) {
    const auto sink_rights = access::local_write | (iwarp ? access::remote_write : access::none);
    buffer from(*nic, 65536, access::remote_read);
    const buffer to(*nic, 65536, sink_rights);
    from.fill();
    auto listener = need(nic->listen(address));
    auto connecting = std::async(std::launch::async, [&] {
        auto made = nic->connect(this->to(listener->port()), terms(*reader, "knock"), limit);
        if (!made) return made;
        ready(*reader, **made);
        need((*made)->establish(terms(*reader)));
        return made;
    });
    auto request = need(listener->next());
    BOOST_REQUIRE(request);
    BOOST_TEST(text_of(request->private_data()) == "knock");
    ready(*owner, *request);
    need(request->establish(terms(*owner, "come in")));
    const auto connected = need(connecting.get());
    BOOST_TEST(text_of(connected->private_data()) == "come in");
    BOOST_TEST(connected->receive().has_value() == !iwarp);
    if (!iwarp) {
        BOOST_TEST(connected->receive()->peer.number == owner->number());
        BOOST_TEST(request->receive()->peer.number == reader->number());
        BOOST_TEST(connected->starting_psn() == request->receive()->peer.starting_psn);
        BOOST_TEST(request->starting_psn() == connected->receive()->peer.starting_psn);
    }
    need(reader->post_reads(std::vector{read_of(to, from, 7, 65536)}));
    const auto done = wait_one(*reader_queue);
    BOOST_TEST((done.status == completion_status::success));
    BOOST_TEST(std::memcmp(to.bytes().data(), from.bytes().data(), 65536) == 0);
}

BOOST_AUTO_TEST_CASE(connection_that_is_rejected_quotes_the_peer) {
    auto listener = need(nic->listen(address));
    auto connecting = std::async(std::launch::async, [&] {
        return nic->connect(to(listener->port()), terms(*reader, "knock"), limit);
    });
    auto request = need(listener->next());
    request->reject(bytes_of("not today"));
    const auto made = connecting.get();
    BOOST_REQUIRE(!made);
    BOOST_TEST((made.error().code == make_error_code(connection_errc::connect_failed)));
    BOOST_TEST(contains(made.error().detail, "rejected by the peer"), made.error().detail);
    BOOST_TEST(contains(made.error().detail, "not today"), made.error().detail);
}

BOOST_AUTO_TEST_CASE(connection_request_that_is_dropped_is_a_refusal_for_the_peer) {
    auto listener = need(nic->listen(address));
    auto connecting = std::async(std::launch::async, [&] {
        return nic->connect(to(listener->port()), terms(*reader, "knock"), limit);
    });
    need(listener->next()).reset();
    const auto made = connecting.get();
    BOOST_REQUIRE(!made);
    BOOST_TEST_MESSAGE(made.error().detail);
    BOOST_TEST(!contains(made.error().detail, "no event"), made.error().detail);
}

BOOST_AUTO_TEST_CASE(connection_to_a_port_where_nobody_listens_fails_and_says_so) {
    std::uint16_t port = 0;
    port = need(nic->listen(address))->port();
    const auto made = nic->connect(to(port), terms(*reader), limit);
    BOOST_REQUIRE(!made);
    BOOST_TEST_MESSAGE(made.error().detail);
    BOOST_TEST(contains(made.error().detail, "connect"));
}

BOOST_AUTO_TEST_CASE(connection_to_a_listener_that_sleeps_ends_with_its_limit) {
    auto listener = need(nic->listen(address));  // and nobody takes its requests
    const auto made = nic->connect(to(listener->port()), terms(*reader), 300ms);
    BOOST_REQUIRE(!made);
    BOOST_TEST(contains(made.error().detail, "no event in 300 ms"), made.error().detail);
}

BOOST_AUTO_TEST_CASE(listener_that_is_stopped_gives_nothing_more) {
    auto listener = need(nic->listen(address));
    auto taking = std::async(std::launch::async, [&] { return listener->next(); });
    listener->stop();
    BOOST_TEST(!need(taking.get()));
    BOOST_TEST(!need(listener->next()));
}

BOOST_AUTO_TEST_CASE(listener_of_an_address_that_is_not_the_devices_is_refused) {
    const auto loopback_only = nic->listen("127.0.0.1");
    const auto nobodys = nic->listen("203.0.113.77");
    const auto no_address = nic->listen("example.net");
    BOOST_REQUIRE(!nobodys);
    BOOST_REQUIRE(!no_address);
    BOOST_TEST(contains(nobodys.error().detail, "203.0.113.77"), nobodys.error().detail);
    BOOST_TEST(contains(no_address.error().detail, "no numeric address"));
    BOOST_TEST_MESSAGE("127.0.0.1: " << (loopback_only ? "taken" : loopback_only.error().detail));
}

BOOST_AUTO_TEST_CASE(connection_from_an_address_of_no_device_fails_and_names_it) {
    const auto made = nic->connect({"203.0.113.77", address, 1}, terms(*reader), 500ms);
    BOOST_REQUIRE(!made);
    BOOST_TEST_MESSAGE(made.error().detail);
    BOOST_TEST(contains(made.error().detail, "resolve the address"), made.error().detail);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace verbs_support
