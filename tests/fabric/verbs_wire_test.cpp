// What needs a wire between two hosts: ci/softroce --hosts 2 runs it on both.
//
// Soft-RoCE's false success: host b owns the bytes, and an output rule of its firewall refuses the
// first packet of every READ response, as a shaper or a netdev MTU below the path MTU would.
// Linux 6.1 on host a then reports SUCCESS for a READ that wrote nothing. The seam must say
// false_success instead.
#include <boost/test/unit_test.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/verbs_support.hpp"

namespace verbs_support {
namespace {

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    BOOST_REQUIRE_MESSAGE(value != nullptr, name << " is not set: run this under ci/softroce");
    return value;
}

/// From now on this host's kernel refuses to send FIRST packets of READ responses at path MTU 4096:
/// 4096 bytes and 48 of headers; MIDDLE packets are 4 bytes shorter.
void refuse_first_packets() {
    const char* rules =
        "nft 'add table inet rvget;"
        " add chain inet rvget out { type filter hook output priority 0; };"
        " add rule inet rvget out udp dport 4791 ip length 4144 drop'";
    BOOST_REQUIRE_EQUAL(std::system(rules), 0);
}

/// What one end tells the other; plain bytes, both ends run the same program.
struct introduction {
    wire::queue_pair_facts facts;
    std::uint64_t address = 0;
    std::uint32_t key = 0;
};

/// A TCP connection between the two hosts.
class control {
public:
    explicit control(bool listen) {
        constexpr std::uint16_t port = 17912;
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        const auto text = environment(listen ? "RVGET_ADDR" : "RVGET_PEER_ADDR");
        BOOST_REQUIRE(::inet_pton(AF_INET, text.c_str(), &address.sin_addr) == 1);
        const auto* raw = reinterpret_cast<const sockaddr*>(&address);
        const int first = ::socket(AF_INET, SOCK_STREAM, 0);
        if (listen) {
            BOOST_REQUIRE_EQUAL(::bind(first, raw, sizeof address), 0);
            BOOST_REQUIRE_EQUAL(::listen(first, 1), 0);
            socket_ = ::accept(first, nullptr, nullptr);
            ::close(first);
        } else {
            // Host b may not listen yet; a refused connect costs a round trip each time.
            socket_ = first;
            for (int tries = 0; ::connect(socket_, raw, sizeof address) != 0; ++tries) {
                BOOST_REQUIRE(tries < 100'000);
                ::close(socket_);
                socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
            }
        }
        BOOST_REQUIRE(socket_ >= 0);
    }
    ~control() { ::close(socket_); }

    template <class T>
    T exchange(const T& own) {
        T other;
        BOOST_REQUIRE_EQUAL(::send(socket_, &own, sizeof own, MSG_NOSIGNAL), ssize_t{sizeof own});
        BOOST_REQUIRE_EQUAL(::recv(socket_, &other, sizeof other, MSG_WAITALL),
                            ssize_t{sizeof other});
        return other;
    }

private:
    int socket_ = -1;
};

}  // namespace

BOOST_AUTO_TEST_CASE(read_that_wrote_nothing_is_reported_as_a_false_success) {
    const bool reader = environment("RVGET_HOST") == "a";
    control peer(!reader);
    constexpr std::uint32_t bytes = 65536 + 512;  // LAST packets pass: they are short
    if (!reader) refuse_first_packets();
    for (int round = 0; round < 8; ++round) {
        const auto nic = open_device();
        auto queue = need(nic->create_completion_queue(64));
        auto qp = need(nic->create_queue_pair(queue, 1, {}));
        const auto at = chosen(*nic, environment("RVGET_ADDR"), environment("RVGET_PEER_ADDR"));
        buffer memory(*nic, bytes, access::local_write | access::remote_read);
        if (!reader) memory.fill();
        const auto psn = reader ? 0x1000U : 0x2000U;
        const auto other = peer.exchange(
            introduction{.facts = facts_of(*qp, at, psn),
                         .address = reinterpret_cast<std::uintptr_t>(memory.bytes().data()),
                         .key = memory.region->remote_key()});
        BOOST_REQUIRE_EQUAL(at.active_mtu, 4096u);
        connect(*qp, at, psn, other.facts);
        peer.exchange('c');
        if (reader) {
            BOOST_TEST(nic->quirks().success_needs_state_query);
            need(qp->post_reads(std::vector{read_request{.id = 1,
                                                         .local = memory.bytes().data(),
                                                         .local_key = memory.region->local_key(),
                                                         .remote_address = other.address,
                                                         .remote_key = other.key,
                                                         .bytes = bytes}}));
            const auto done = wait_one(*queue);
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < bytes; ++i) wrong += memory.bytes()[i] != pattern(i);
            BOOST_TEST_MESSAGE("round " << round << ": " << to_string(done.status) << ", " << wrong
                                        << " bytes wrong");
            BOOST_TEST(done.id == 1u);
            BOOST_TEST((done.status == completion_status::false_success));
            BOOST_TEST(wrong == bytes - bytes / 256);  // nothing came: only the zeroes agree
            BOOST_TEST((need(qp->state()) == queue_pair_state::error));
        }
        peer.exchange('d');
        need(qp->to_error());
        need(qp->post_marker(2));
        BOOST_TEST((wait_one(*queue).status == completion_status::flushed));
        peer.exchange('e');
    }
}

BOOST_AUTO_TEST_CASE(transition_to_an_address_nobody_has_says_that_it_does_not_resolve) {
    const auto nic = open_device();
    auto queue = need(nic->create_completion_queue(8));
    auto qp = need(nic->create_queue_pair(queue, 1, {}));
    const auto at = chosen(*nic, environment("RVGET_ADDR"), environment("RVGET_PEER_ADDR"));
    need(qp->to_init(access::remote_read));
    receive_parameters p;
    p.peer = facts_of(*qp, at, 1);
    p.peer.gid[15] = 199;  // on the wire's subnet, and nobody's
    route::gid nobody;
    nobody.bytes = p.peer.gid;
    p.path_mtu = 1024;
    p.responder_depth = 1;
    p.gid_index = at.entry.index;
    const auto moved = qp->to_ready_to_receive(p);
    BOOST_REQUIRE(!moved);
    BOOST_TEST_MESSAGE(moved.error().message());
    BOOST_TEST((moved.error().code == make_error_code(device_errc::transition_failed)));
    BOOST_TEST(moved.error().detail.find("ETIMEDOUT") != std::string::npos);
    BOOST_TEST(moved.error().detail.find("did not resolve") != std::string::npos);
    BOOST_TEST(moved.error().detail.find("peer GID " + nobody.to_string()) != std::string::npos);
}

}  // namespace verbs_support
