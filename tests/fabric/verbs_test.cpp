// The verbs body on a real (software) device: run under ci/softroce.
#include <boost/test/unit_test.hpp>

#include <cerrno>
#include <filesystem>

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabric/verbs_support.hpp"

namespace rvget::fabric {
std::ostream& operator<<(std::ostream& out, completion_status s) { return out << to_string(s); }
std::ostream& operator<<(std::ostream& out, queue_pair_state s) {
    return out << static_cast<int>(s);
}
std::ostream& operator<<(std::ostream& out, operation o) { return out << static_cast<int>(o); }
std::ostream& operator<<(std::ostream& out, async_event_kind k) {
    return out << static_cast<int>(k);
}
}  // namespace rvget::fabric

namespace verbs_support {
namespace {

bool contains(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    BOOST_REQUIRE_MESSAGE(value != nullptr, name << " is not set: run this under ci/softroce");
    return value;
}

void run(const std::string& command) {
    BOOST_REQUIRE_MESSAGE(std::system(command.c_str()) == 0, "failed: " << command);
}

std::string transition_text(const result<void>& r) {
    BOOST_REQUIRE(!r);
    BOOST_TEST(r.error().code == make_error_code(device_errc::transition_failed));
    return r.error().detail;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(verbs_device)

BOOST_AUTO_TEST_CASE(device_facts_of_soft_roce_are_complete) {
    const auto nic = open_device();
    const auto& facts = nic->facts();
    BOOST_TEST(facts.driver == "rxe");
    BOOST_TEST(facts.node_guid != 0u);
    BOOST_TEST(facts.memory_windows_type2);
    BOOST_TEST(facts.max_read_depth_initiator >= 16u);
    BOOST_TEST(facts.max_read_depth_responder >= 16u);
    BOOST_TEST(facts.max_completion_entries > 256u);
    BOOST_REQUIRE_EQUAL(facts.ports.size(), 1u);
    const auto& port = facts.ports.front();
    BOOST_CHECK(port.state == route::port_state::active);
    BOOST_CHECK(port.link_layer == route::link_layer::ethernet);
    BOOST_TEST(port.active_mtu == 4096u);
    BOOST_TEST(port.max_message_bytes >= (1u << 20));
    BOOST_TEST(port.netdev == environment("RVGET_NETDEV"));
    bool found = false;
    for (const auto& entry : port.gids) {
        BOOST_TEST(!entry.gid.is_zero());
        BOOST_CHECK(entry.type == route::gid_type::roce_v2);
        found = found || entry.gid.to_string() == environment("RVGET_ADDR");
    }
    BOOST_TEST(found);
}

BOOST_AUTO_TEST_CASE(device_list_holds_the_device_with_the_same_facts) {
    const auto all = need(make_verbs_provider()->list());
    const auto nic = open_device();
    BOOST_REQUIRE(!all.empty());
    BOOST_TEST(all.front().name == nic->facts().name);
    BOOST_TEST(all.front().driver == nic->facts().driver);
    BOOST_TEST(all.front().ports.size() == nic->facts().ports.size());
}

BOOST_AUTO_TEST_CASE(device_of_an_unknown_name_is_refused_with_the_names_there_are) {
    const auto opened = make_verbs_provider()->open("mlx5_77");
    BOOST_REQUIRE(!opened);
    BOOST_TEST(opened.error().code == make_error_code(device_errc::none));
    BOOST_TEST(contains(opened.error().detail, "mlx5_77"));
    BOOST_TEST(contains(opened.error().detail, environment("RVGET_RDMA_DEVICE")));
}

BOOST_AUTO_TEST_CASE(device_quirks_of_rxe_come_from_the_table) {
    const auto nic = open_device();
    BOOST_TEST(nic->quirks().success_needs_state_query);
    BOOST_TEST(nic->quirks().destroy_blocks_on_bound_window);
    BOOST_TEST(nic->quirks().retry_seven_is_for_ever);
}

BOOST_AUTO_TEST_CASE(device_refresh_sees_a_changed_mtu) {
    const auto nic = open_device();
    const auto netdev = environment("RVGET_NETDEV");
    BOOST_TEST(nic->facts().ports.front().active_mtu == 4096u);
    run("ip link set " + netdev + " mtu 1500");
    need(nic->refresh());
    BOOST_TEST(nic->facts().ports.front().active_mtu == 1024u);
    run("ip link set " + netdev + " mtu 9000");
    need(nic->refresh());
    BOOST_TEST(nic->facts().ports.front().active_mtu == 4096u);
    BOOST_TEST(!nic->facts().ports.front().gids.empty());
}

BOOST_AUTO_TEST_CASE(device_event_after_a_new_address_is_a_gid_change) {
    const auto nic = open_device();
    const auto netdev = environment("RVGET_NETDEV");
    BOOST_TEST(!nic->next_event().has_value());  // returns at once with nothing pending
    const auto before = nic->facts().ports.front().gids.size();
    run("ip addr add 198.19.7.7/24 dev " + netdev);
    pollfd descriptor{nic->event_descriptor(), POLLIN, 0};
    BOOST_REQUIRE_EQUAL(::poll(&descriptor, 1, 10'000), 1);
    const auto event = nic->next_event();
    BOOST_REQUIRE(event.has_value());
    BOOST_TEST(event->kind == async_event_kind::gid_change);
    BOOST_TEST(event->port == 1);
    need(nic->refresh());
    BOOST_TEST(nic->facts().ports.front().gids.size() == before + 1);
    run("ip addr del 198.19.7.7/24 dev " + netdev);
}

BOOST_AUTO_TEST_CASE(device_destroyed_first_leaves_its_children_usable) {
    loopback lane;
    const buffer from(*lane.nic, 4096, access::remote_read);
    const buffer to(*lane.nic, 4096, access::local_write);
    lane.nic.reset();
    need(lane.reader->post_reads(std::vector{read_of(to, from, 1, 4096)}));
    BOOST_TEST(wait_one(*lane.reader_queue).status == completion_status::success);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(verbs_memory)

BOOST_AUTO_TEST_CASE(region_of_no_bytes_is_refused) {
    const auto nic = open_device();
    const auto region = nic->register_memory({}, access::remote_read);
    BOOST_REQUIRE(!region);
    BOOST_TEST(region.error().code == make_error_code(request_errc::invalid_argument));
}

BOOST_AUTO_TEST_CASE(region_over_the_memlock_limit_is_refused_with_the_limit_and_the_cure) {
    // In a child, since neither the capability nor the limit can be had back.
    int channel[2];
    BOOST_REQUIRE_EQUAL(::pipe(channel), 0);
    const auto child = ::fork();
    BOOST_REQUIRE(child >= 0);
    if (child == 0) {
        __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
        __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
        const rlimit limit{64 << 10, 64 << 10};
        std::string said;
        if (::syscall(SYS_capget, &header, data) != 0) said = "capget failed";
        data[0].effective &= ~(1U << CAP_IPC_LOCK);
        data[0].permitted &= ~(1U << CAP_IPC_LOCK);
        if (::syscall(SYS_capset, &header, data) != 0) said = "capset failed";
        if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) said = "setrlimit failed";
        if (said.empty()) {
            auto nic = make_verbs_provider()->open(environment("RVGET_RDMA_DEVICE"));
            if (!nic) {
                said = nic.error().message();
            } else {
                std::vector<std::byte> large(1 << 20);
                auto refused = (*nic)->register_memory(large, access::local_write);
                said = refused ? "1 MiB was registered" : refused.error().message();
                auto small =
                    (*nic)->register_memory(std::span(large).first(8192), access::local_write);
                said += small ? "|small ok" : "|" + small.error().message();
            }
        }
        [[maybe_unused]] const auto written = ::write(channel[1], said.data(), said.size());
        ::_exit(0);
    }
    ::close(channel[1]);
    char text[2048] = {};
    const auto length = ::read(channel[0], text, sizeof text - 1);
    ::close(channel[0]);
    int status = 0;
    BOOST_TEST(::waitpid(child, &status, 0) == child);
    BOOST_REQUIRE(length > 0);
    const std::string said(text);
    BOOST_TEST_MESSAGE(said);
    BOOST_TEST(contains(said, "memory registration failed"));
    BOOST_TEST(contains(said, "memlock limit is 64 KiB"));
    BOOST_TEST(contains(said, "ulimit -l"));
    BOOST_TEST(contains(said, "LimitMEMLOCK"));
    BOOST_TEST(contains(said, "1048576 bytes"));
    BOOST_TEST(contains(said, "|small ok"));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(verbs_reads)

BOOST_AUTO_TEST_CASE(read_of_each_size_delivers_exactly_its_bytes) {
    loopback lane;
    constexpr std::size_t largest = (1 << 20) + 4097;
    buffer from(*lane.nic, largest, access::remote_read);
    from.fill();
    std::uint64_t id = 100;
    for (const std::uint32_t bytes : {0U, 1U, 4096U, static_cast<std::uint32_t>(largest)}) {
        BOOST_TEST_CONTEXT(bytes << " bytes") {
            const buffer to(*lane.nic, largest + 1, access::local_write);
            need(lane.reader->post_reads(std::vector{read_of(to, from, ++id, bytes)}));
            const auto done = wait_one(*lane.reader_queue);
            BOOST_TEST(done.status == completion_status::success);
            BOOST_TEST(done.id == id);
            BOOST_TEST(done.kind == operation::read);
            BOOST_TEST(done.queue_pair_number == lane.reader->number());
            std::size_t wrong = 0;
            for (std::size_t i = 0; i <= largest; ++i) {
                const auto expected = i < bytes ? pattern(i) : std::byte{0};
                wrong += to.bytes()[i] != expected ? 1 : 0;
            }
            BOOST_TEST(wrong == 0u);
        }
    }
    BOOST_TEST(need(lane.reader->state()) == queue_pair_state::ready_to_send);
}

BOOST_AUTO_TEST_CASE(read_batch_with_one_signalled_completes_once_with_all_bytes) {
    loopback lane({.send_requests = 64, .receive_requests = 1, .inline_bytes = 0});
    constexpr std::uint32_t piece = 8192;
    constexpr std::uint32_t count = 40;  // more than one chain on the stack holds
    buffer from(*lane.nic, piece * count, access::remote_read);
    const buffer to(*lane.nic, piece * count, access::local_write);
    from.fill();
    std::vector<read_request> batch;
    for (std::uint32_t i = 0; i < count; ++i) {
        auto r = read_of(to, from, i, piece, i + 1 == count);
        r.local += std::size_t{i} * piece;
        r.remote_address += std::size_t{i} * piece;
        batch.push_back(r);
    }
    need(lane.reader->post_reads(batch));
    const auto done = wait_one(*lane.reader_queue);
    BOOST_TEST(done.id == count - 1);
    BOOST_TEST(done.status == completion_status::success);
    BOOST_TEST(std::memcmp(to.bytes().data(), from.bytes().data(), piece * count) == 0);
    // The room is there again: ten times the queue's room goes through it.
    for (int round = 0; round < 16; ++round) {
        need(lane.reader->post_reads(batch));
        BOOST_TEST(wait_one(*lane.reader_queue).status == completion_status::success);
    }
}

BOOST_AUTO_TEST_CASE(read_that_is_over_is_not_written_again_while_another_is_under_way) {
    // The first READ has completed and is held until the second has (see completion_queue.hpp). The
    // second's completion ends both, and from then on the first one's memory is its caller's: no
    // READ of the library's own may be behind it. Such a READ would find what the owner has there
    // by then.
    loopback lane;
    if (!lane.nic->quirks().success_needs_state_query) return;  // nothing is held
    constexpr std::uint32_t piece = 8 << 20;
    constexpr std::uint32_t pieces = 8;
    constexpr std::size_t large = std::size_t{pieces} * piece;
    buffer source(*lane.nic, large, access::remote_read);
    const buffer from(*lane.nic, 4096, access::remote_read);
    const buffer first(*lane.nic, 4096, access::local_write);
    const buffer second(*lane.nic, large, access::local_write);
    source.fill();
    int met = 0;  // rounds in which the one was over and the other not
    for (int round = 0; round < 20; ++round) {
        from.bytes()[0] = std::byte{1};
        second.bytes().back() = std::byte{0};
        need(lane.reader_queue->arm());
        need(lane.reader->post_reads(std::vector{read_of(first, from, 1, 4096)}));
        pollfd descriptor{lane.reader_queue->event_descriptor(), POLLIN, 0};
        BOOST_REQUIRE_EQUAL(::poll(&descriptor, 1, 20'000), 1);
        lane.reader_queue->consume_events();
        std::vector<read_request> batch;
        for (std::uint32_t i = 0; i < pieces; ++i) {
            auto r = read_of(second, source, 2, piece, i + 1 == pieces);
            r.local += std::size_t{i} * piece;
            r.remote_address += std::size_t{i} * piece;
            batch.push_back(r);
        }
        need(lane.reader->post_reads(batch));
        completion none;
        const auto told = need(lane.reader_queue->poll({&none, 1}));
        const volatile auto* last = &second.bytes().back();
        const bool under_way = told == 0 && *last != source.bytes().back();
        from.bytes()[0] = std::byte{2};
        const auto done = wait(*lane.reader_queue, 2 - told);
        if (!under_way) continue;
        ++met;
        BOOST_TEST(done[0].id == 1u);
        BOOST_TEST(done[0].status == completion_status::success);
        BOOST_TEST(done[1].id == 2u);
        BOOST_TEST((first.bytes()[0] == std::byte{1}));
    }
    BOOST_TEST_MESSAGE(met << " of 20 rounds");
    BOOST_TEST(met > 0);
}

BOOST_AUTO_TEST_CASE(read_batch_beyond_the_room_posts_none) {
    loopback lane({.send_requests = 4, .receive_requests = 1, .inline_bytes = 0});
    const buffer from(*lane.nic, 4096, access::remote_read);
    const buffer to(*lane.nic, 4096, access::local_write);
    std::vector<read_request> batch;
    for (std::uint64_t id = 1; id <= 5; ++id) batch.push_back(read_of(to, from, id, 16));
    const auto refused = lane.reader->post_reads(batch);
    BOOST_REQUIRE(!refused);
    BOOST_TEST(refused.error().code == make_error_code(device_errc::post_failed));
    batch.pop_back();
    need(lane.reader->post_reads(batch));
    const auto done = wait(*lane.reader_queue, 4);
    for (std::uint64_t id = 1; id <= 4; ++id) {
        BOOST_TEST(done[id - 1].id == id);
        BOOST_TEST(done[id - 1].status == completion_status::success);
    }
}

BOOST_AUTO_TEST_CASE(read_before_ready_to_send_is_refused_and_never_runs) {
    const auto nic = open_device();
    auto queue = need(nic->create_completion_queue(8));
    auto qp = need(nic->create_queue_pair(queue, 1, {}));
    need(qp->to_init(access::remote_read));
    const buffer to(*nic, 4096, access::local_write);
    const auto posted = qp->post_reads(std::vector{read_of(to, to, 1, 16)});
    BOOST_REQUIRE(!posted);
    BOOST_TEST(posted.error().code == make_error_code(device_errc::post_failed));
    need(qp->to_error());
    need(qp->post_marker(2));
    BOOST_TEST(wait_one(*queue).id == 2u);  // nothing before it
}

BOOST_AUTO_TEST_CASE(read_longer_than_the_port_allows_is_refused) {
    loopback lane;
    const buffer to(*lane.nic, 4096, access::local_write);
    const auto limit = lane.nic->facts().ports.front().max_message_bytes;
    const auto posted = lane.reader->post_reads(std::vector{read_of(to, to, 1, limit + 1)});
    BOOST_REQUIRE(!posted);
    BOOST_TEST(contains(posted.error().detail, std::to_string(limit)));
}

BOOST_AUTO_TEST_CASE(read_with_a_wrong_key_is_refused_and_both_ends_go_to_error) {
    loopback lane;
    buffer from(*lane.nic, 4096, access::remote_read);
    const buffer to(*lane.nic, 4096, access::local_write);
    auto r = read_of(to, from, 7, 4096);
    r.remote_key ^= 0x5a00;
    need(lane.reader->post_reads(std::vector{r}));
    const auto done = wait_one(*lane.reader_queue);
    BOOST_TEST(done.status == completion_status::remote_access);
    BOOST_TEST(done.id == 7u);
    BOOST_TEST(need(lane.reader->state()) == queue_pair_state::error);
    BOOST_TEST(need(lane.owner->state()) == queue_pair_state::error);
    BOOST_TEST((to.bytes()[0] == std::byte{0}));
}

BOOST_AUTO_TEST_CASE(read_beyond_the_region_is_refused) {
    loopback lane;
    const buffer from(*lane.nic, 4096, access::remote_read);
    const buffer to(*lane.nic, 8192, access::local_write);
    need(lane.reader->post_reads(std::vector{read_of(to, from, 1, 4097)}));
    BOOST_TEST(wait_one(*lane.reader_queue).status == completion_status::remote_access);
}

BOOST_AUTO_TEST_CASE(read_from_a_dead_peer_ends_in_retry_exceeded) {
    loopback lane({}, {.retry = {.timeout_exponent = 12, .retry_count = 2}});
    const buffer from(*lane.nic, 4096, access::remote_read);
    const buffer to(*lane.nic, 4096, access::local_write);
    lane.owner.reset();
    need(lane.reader->post_reads(std::vector{read_of(to, from, 9, 4096)}));
    const auto done = wait_one(*lane.reader_queue);
    BOOST_TEST(done.status == completion_status::retry_exceeded);
    BOOST_TEST(done.id == 9u);
    BOOST_TEST(need(lane.reader->state()) == queue_pair_state::error);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(verbs_drain)

BOOST_AUTO_TEST_CASE(marker_in_the_error_state_is_flushed) {
    loopback lane;
    need(lane.reader->to_error());
    BOOST_TEST(need(lane.reader->state()) == queue_pair_state::error);
    need(lane.reader->post_marker(0xfeedfacecafebeefULL));
    const auto done = wait_one(*lane.reader_queue);
    BOOST_TEST(done.id == 0xfeedfacecafebeefULL);
    BOOST_TEST(done.status == completion_status::flushed);
}

BOOST_AUTO_TEST_CASE(marker_in_order_succeeds_and_follows_what_was_posted_before) {
    loopback lane;
    const buffer from(*lane.nic, 4096, access::remote_read);
    const buffer to(*lane.nic, 4096, access::local_write);
    need(lane.reader->post_reads(std::vector{read_of(to, from, 1, 4096)}));
    need(lane.reader->post_marker(2));
    const auto done = wait(*lane.reader_queue, 2);
    BOOST_TEST(done[0].id == 1u);
    BOOST_TEST(done[0].status == completion_status::success);
    BOOST_TEST(done[1].id == 2u);
    BOOST_TEST(done[1].status == completion_status::success);
}

BOOST_AUTO_TEST_CASE(drain_of_outstanding_reads_flushes_each_and_the_marker_last) {
    // The peer is gone and the retry window far away, so the READs are outstanding for certain.
    loopback lane({}, {.retry = {.timeout_exponent = 22, .retry_count = 6}});
    const buffer from(*lane.nic, 4096, access::remote_read);
    const buffer to(*lane.nic, 4096, access::local_write);
    lane.owner.reset();
    std::vector<read_request> batch;
    for (std::uint64_t id = 1; id <= 20; ++id) {
        batch.push_back(read_of(to, from, id, 64, id % 4 == 0));
    }
    need(lane.reader->post_reads(batch));
    completion none;
    BOOST_TEST(need(lane.reader_queue->poll({&none, 1})) == 0u);
    need(lane.reader->to_error());
    need(lane.reader->post_marker(99));
    const auto done = wait(*lane.reader_queue, 21);  // in error the unsignalled report themselves
    for (const auto& c : done) BOOST_TEST(c.status == completion_status::flushed);
    BOOST_TEST(done.back().id == 99u);
    BOOST_TEST(done.front().id == 1u);
}

BOOST_AUTO_TEST_CASE(receives_are_flushed_in_error_under_their_own_ids) {
    loopback lane({.send_requests = 4, .receive_requests = 3, .inline_bytes = 0});
    const buffer into(*lane.nic, 4096, access::local_write);
    for (std::uint64_t id = 11; id <= 13; ++id) {
        need(lane.owner->post_receive(
            {.id = id, .buffer = into.bytes(), .local_key = into.region->local_key()}));
    }
    BOOST_TEST(!lane.owner->post_receive(
        {.id = 14, .buffer = into.bytes(), .local_key = into.region->local_key()}));
    need(lane.owner->to_error());
    const auto done = wait(*lane.owner_queue, 3);
    for (std::uint64_t i = 0; i < 3; ++i) {
        BOOST_TEST(done[i].id == 11 + i);
        BOOST_TEST(done[i].status == completion_status::flushed);
    }
}

BOOST_AUTO_TEST_CASE(completions_of_a_destroyed_queue_pair_are_nobodys) {
    const auto nic = open_device();
    auto queue = need(nic->create_completion_queue(64));
    for (int round = 0; round < 3; ++round) {
        auto qp = need(nic->create_queue_pair(queue, 1, without_binds({})));
        need(qp->to_init(access::remote_read));
        need(qp->to_error());
        need(qp->post_marker(static_cast<std::uint64_t>(round)));
        const auto done = wait_one(*queue);
        BOOST_TEST(done.id == static_cast<std::uint64_t>(round));
        BOOST_TEST(done.queue_pair_number == qp->number());
    }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(verbs_messages)

BOOST_AUTO_TEST_CASE(send_arrives_in_the_receive_with_its_length) {
    loopback lane({.send_requests = 8, .receive_requests = 2, .inline_bytes = 64});
    buffer from(*lane.nic, 4096, access::local_write);
    const buffer into(*lane.nic, 4096, access::local_write);
    from.fill();
    for (std::uint64_t id = 1; id <= 2; ++id) {
        need(lane.owner->post_receive({.id = 20 + id,
                                       .buffer = into.bytes().subspan((id - 1) * 2048, 2048),
                                       .local_key = into.region->local_key()}));
    }
    need(lane.reader->post_send(
        {.id = 1, .bytes = from.bytes().first(1000), .local_key = from.region->local_key()}));
    {
        std::vector<std::byte> gone(64, std::byte{0x77});  // inline: free once posted
        need(lane.reader->post_send({.id = 2, .bytes = gone, .inline_data = true}));
    }
    const auto sent = wait(*lane.reader_queue, 2);
    const auto received = wait(*lane.owner_queue, 2);
    BOOST_TEST(sent[0].status == completion_status::success);
    BOOST_TEST(sent[0].kind == operation::send);
    BOOST_TEST(received[0].id == 21u);
    BOOST_TEST(received[0].bytes == 1000u);
    BOOST_TEST(received[0].kind == operation::receive);
    BOOST_TEST(received[1].id == 22u);
    BOOST_TEST(received[1].bytes == 64u);
    BOOST_TEST(std::memcmp(into.bytes().data(), from.bytes().data(), 1000) == 0);
    BOOST_TEST((into.bytes()[2048 + 63] == std::byte{0x77}));
    BOOST_TEST(
        !lane.reader->post_send({.id = 3, .bytes = from.bytes().first(65), .inline_data = true}));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(verbs_windows)

BOOST_AUTO_TEST_CASE(window_opens_its_range_and_nothing_after_its_invalidation) {
    loopback lane;
    // No remote right of its own: only the window opens it.
    buffer arena(*lane.nic, 65536, access::local_write | access::window_bind);
    const buffer to(*lane.nic, 65536, access::local_write);
    arena.fill();
    auto window = need(lane.nic->allocate_window());
    const auto unbound = window->remote_key();
    const auto range = arena.bytes().subspan(4096, 8192);

    need(lane.owner->post_bind(1, *window, *arena.region, range, access::remote_read, true));
    const auto bound = wait_one(*lane.owner_queue);
    BOOST_TEST(bound.status == completion_status::success);
    BOOST_TEST(bound.kind == operation::bind);
    const auto first_key = window->remote_key();
    BOOST_TEST(first_key != unbound);

    auto r = read_of(to, arena, 2, 8192);
    r.remote_address = reinterpret_cast<std::uintptr_t>(range.data());
    r.remote_key = first_key;
    need(lane.reader->post_reads(std::vector{r}));
    BOOST_TEST(wait_one(*lane.reader_queue).status == completion_status::success);
    BOOST_TEST(std::memcmp(to.bytes().data(), range.data(), range.size()) == 0);

    need(lane.owner->post_invalidate(3, *window, true));
    const auto invalidated = wait_one(*lane.owner_queue);
    BOOST_TEST(invalidated.status == completion_status::success);
    BOOST_TEST(invalidated.kind == operation::invalidate);

    // A second lease of the same window has another key and works.
    need(lane.owner->post_bind(4, *window, *arena.region, range, access::remote_read, true));
    BOOST_TEST(wait_one(*lane.owner_queue).status == completion_status::success);
    BOOST_TEST(window->remote_key() != first_key);
    r.id = 5;
    r.remote_key = window->remote_key();
    need(lane.reader->post_reads(std::vector{r}));
    BOOST_TEST(wait_one(*lane.reader_queue).status == completion_status::success);
    need(lane.owner->post_invalidate(6, *window, true));
    BOOST_TEST(wait_one(*lane.owner_queue).status == completion_status::success);

    // The first lease's key is dead, and the READ with it kills the lane on both ends.
    r.id = 7;
    r.remote_key = first_key;
    need(lane.reader->post_reads(std::vector{r}));
    BOOST_TEST(wait_one(*lane.reader_queue).status == completion_status::remote_access);
    BOOST_TEST(need(lane.reader->state()) == queue_pair_state::error);
    BOOST_TEST(need(lane.owner->state()) == queue_pair_state::error);
}

BOOST_AUTO_TEST_CASE(window_arena_is_closed_to_its_own_key) {
    loopback lane;
    const buffer arena(*lane.nic, 4096, access::local_write | access::window_bind);
    const buffer to(*lane.nic, 4096, access::local_write);
    need(lane.reader->post_reads(std::vector{read_of(to, arena, 1, 64)}));
    BOOST_TEST(wait_one(*lane.reader_queue).status == completion_status::remote_access);
}

BOOST_AUTO_TEST_CASE(window_over_a_region_without_bind_right_is_refused) {
    loopback lane;
    const buffer plain(*lane.nic, 4096, access::local_write);
    auto window = need(lane.nic->allocate_window());
    need(
        lane.owner->post_bind(1, *window, *plain.region, plain.bytes(), access::remote_read, true));
    BOOST_TEST(wait_one(*lane.owner_queue).status == completion_status::memory_window_bind);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(verbs_events)

BOOST_AUTO_TEST_CASE(event_descriptor_wakes_once_armed_and_not_before) {
    loopback lane;
    const buffer from(*lane.nic, 4096, access::remote_read);
    const buffer to(*lane.nic, 4096, access::local_write);
    pollfd descriptor{lane.reader_queue->event_descriptor(), POLLIN, 0};
    completion done;

    need(lane.reader->post_marker(1));  // not armed: completes without an event
    while (need(lane.reader_queue->poll({&done, 1})) == 0) {
    }
    BOOST_TEST(::poll(&descriptor, 1, 0) == 0);
    lane.reader_queue->consume_events();  // returns at once with nothing pending

    for (std::uint64_t id = 2; id < 140; ++id) {  // past the batch of acknowledgements
        need(lane.reader_queue->arm());
        BOOST_REQUIRE_EQUAL(need(lane.reader_queue->poll({&done, 1})), 0u);
        need(lane.reader->post_marker(id));
        BOOST_REQUIRE_EQUAL(::poll(&descriptor, 1, 10'000), 1);
        lane.reader_queue->consume_events();
        BOOST_REQUIRE_EQUAL(need(lane.reader_queue->poll({&done, 1})), 1u);
        BOOST_TEST(done.id == id);
    }
    BOOST_TEST(::poll(&descriptor, 1, 0) == 0);
}

BOOST_AUTO_TEST_CASE(poll_with_room_for_one_hands_out_all_in_order) {
    loopback lane;
    const buffer from(*lane.nic, 4096, access::remote_read);
    const buffer to(*lane.nic, 4096, access::local_write);
    std::vector<read_request> batch;
    for (std::uint64_t id = 1; id <= 16; ++id) batch.push_back(read_of(to, from, id, 32));
    need(lane.reader->post_reads(batch));
    std::uint64_t expected = 1;
    while (expected <= 16) {
        completion done;
        if (need(lane.reader_queue->poll({&done, 1})) == 0) continue;
        BOOST_REQUIRE_EQUAL(done.id, expected++);
        BOOST_TEST(done.status == completion_status::success);
    }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(verbs_transitions)

struct unconnected {
    std::shared_ptr<device> nic = open_device();
    std::shared_ptr<fabric::completion_queue> queue = need(nic->create_completion_queue(8));
    std::unique_ptr<fabric::queue_pair> qp = need(nic->create_queue_pair(queue, 1, {}));
    route::candidate at = chosen(*nic);

    receive_parameters parameters() {
        receive_parameters p;
        p.peer = facts_of(*qp, at, 1);
        p.path_mtu = at.active_mtu;
        p.responder_depth = 4;
        p.gid_index = at.entry.index;
        return p;
    }
};

BOOST_FIXTURE_TEST_CASE(transition_with_an_empty_gid_index_names_index_gid_and_next_step,
                        unconnected) {
    need(qp->to_init(access::remote_read));
    auto p = parameters();
    p.gid_index = 201;
    const auto text = transition_text(qp->to_ready_to_receive(p));
    BOOST_TEST_MESSAGE(text);
    BOOST_TEST(contains(text, nic->facts().name + " port 1"));
    BOOST_TEST(contains(text, "ENODATA"));
    BOOST_TEST(contains(text, "GID index 201 is empty"));
    BOOST_TEST(contains(text, "peer GID " + at.entry.gid.to_string()));
    BOOST_TEST(contains(text, "`rvget check HOST`"));
}

BOOST_FIXTURE_TEST_CASE(transition_between_address_families_says_so, unconnected) {
    need(qp->to_init(access::remote_read));
    auto p = parameters();
    for (const auto& entry : nic->facts().ports.front().gids) {
        if (!entry.gid.is_ipv4_mapped()) p.gid_index = entry.index;
    }
    const auto text = transition_text(qp->to_ready_to_receive(p));
    BOOST_TEST_MESSAGE(text);
    BOOST_TEST(contains(text, "address families"));
}

BOOST_FIXTURE_TEST_CASE(transition_with_impossible_parameters_is_refused_beforehand, unconnected) {
    need(qp->to_init(access::remote_read));
    auto p = parameters();
    p.path_mtu = 1500;
    BOOST_TEST(!qp->to_ready_to_receive(p));
    p = parameters();
    p.gid_index = 256;
    const auto wide = qp->to_ready_to_receive(p);
    BOOST_REQUIRE(!wide);
    BOOST_TEST(contains(wide.error().detail, "8 bits"));
    need(qp->to_ready_to_receive(parameters()));
    for (const auto& retry :
         {retry_parameters{.retry_count = 7}, retry_parameters{.rnr_retry_count = 7},
          retry_parameters{.timeout_exponent = 0}}) {
        const auto sent =
            qp->to_ready_to_send({.starting_psn = 1, .initiator_depth = 1, .retry = retry});
        BOOST_REQUIRE(!sent);
        BOOST_TEST(sent.error().code == make_error_code(request_errc::invalid_argument));
    }
}

BOOST_FIXTURE_TEST_CASE(transition_out_of_order_is_a_failure_and_not_a_crash, unconnected) {
    const auto text = transition_text(qp->to_ready_to_receive(parameters()));
    BOOST_TEST(contains(text, "EINVAL"));
}

BOOST_FIXTURE_TEST_CASE(queue_pair_on_a_missing_port_or_foreign_queue_is_refused, unconnected) {
    BOOST_TEST(!nic->create_queue_pair(queue, 9, {}));
    const auto other = open_device();
    const auto refused = other->create_queue_pair(queue, 1, {});
    BOOST_REQUIRE(!refused);
    BOOST_TEST(refused.error().code == make_error_code(request_errc::invalid_argument));
    BOOST_TEST(!nic->create_completion_queue(0));
    BOOST_TEST(!nic->create_completion_queue(nic->facts().max_completion_entries + 1));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace verbs_support
