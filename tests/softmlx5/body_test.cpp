// The direct path behind the fabric interface, beside libibverbs, on the software ConnectX.
// tests/fabric/verbs_test.cpp is run over both as well; here is what only this body has.

#include <cstdlib>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "fabric/mlx5/completion_queue.hpp"
#include "fabric/mlx5/queue_pair.hpp"
#include "fabric/verbs_support.hpp"
#include "softmlx5/front/machine.hpp"

namespace rvget::fabric {
std::ostream& operator<<(std::ostream& out, completion_status s) { return out << to_string(s); }
std::ostream& operator<<(std::ostream& out, operation o) { return out << static_cast<int>(o); }
std::ostream& operator<<(std::ostream& out, queue_pair_state s) {
    return out << static_cast<int>(s);
}
}  // namespace rvget::fabric

namespace verbs_support {
namespace {

using softmlx5::front::machine;

std::shared_ptr<device> open_with(mlx5_choice choice) {
    machine::present();
    return need(make_provider(choice)->open("mlx5_0"));
}

/// Two joined queue pairs; those of `reader` complete to `queue`.
struct lane {
    explicit lane(std::shared_ptr<device> on, std::shared_ptr<fabric::completion_queue> to = {},
                  const queue_pair_options& options = {.send_requests = 16, .binds = false})
        : nic(std::move(on)),
          queue(to ? std::move(to) : need(nic->create_completion_queue(64))),
          reader(need(nic->create_queue_pair(queue, 1, options))),
          owner(need(nic->create_queue_pair(need(nic->create_completion_queue(64)), 1, {}))) {
        const auto at = chosen(*nic);
        connect(*reader, at, 7, facts_of(*owner, at, 9));
        connect(*owner, at, 9, facts_of(*reader, at, 7));
    }
    [[nodiscard]] bool is_direct() const {
        return dynamic_cast<mlx5::queue_pair*>(reader.get()) != nullptr;
    }

    std::shared_ptr<device> nic;
    std::shared_ptr<fabric::completion_queue> queue;
    std::unique_ptr<fabric::queue_pair> reader;
    std::unique_ptr<fabric::queue_pair> owner;
};

bool no_violation() { return machine::instance().nic().violations().all().empty(); }

/// An event, without polling what it tells of.
bool event_within_20_s(fabric::completion_queue& queue) {
    pollfd descriptor{queue.event_descriptor(), POLLIN, 0};
    const bool raised = ::poll(&descriptor, 1, 20'000) == 1;
    queue.consume_events();
    return raised;
}

}  // namespace

BOOST_AUTO_TEST_CASE(path_is_what_was_asked_for_or_says_why_not) {
    const auto off = open_with(mlx5_choice::off)->fast_path();
    BOOST_TEST(off.name == "verbs");
    BOOST_TEST(off.detail.empty());
    const auto automatic = open_with(mlx5_choice::automatic)->fast_path();
    BOOST_TEST(automatic.name == "verbs");
    BOOST_TEST(automatic.detail.find("never run on a ConnectX") != std::string::npos);
    const auto direct = open_with(mlx5_choice::verbs_qp)->fast_path();
    BOOST_TEST(direct.name == "mlx5");
    BOOST_TEST(direct.detail.empty());
    const auto devx = open_with(mlx5_choice::devx)->fast_path();
    BOOST_TEST(devx.name == "mlx5");
    BOOST_TEST(devx.detail.find("DEVX") != std::string::npos);
    for (const auto choice : {mlx5_choice::off, mlx5_choice::automatic}) {
        BOOST_TEST(!lane(open_with(choice)).is_direct());
    }
    for (const auto choice : {mlx5_choice::verbs_qp, mlx5_choice::devx}) {
        BOOST_TEST(lane(open_with(choice)).is_direct());
    }
}

BOOST_AUTO_TEST_CASE(device_that_cannot_be_taken_over_works_by_verbs_and_says_why) {
    ::setenv("MLX5_QP_SIGNATURE", "1", 1);
    const auto nic = open_with(mlx5_choice::verbs_qp);
    ::unsetenv("MLX5_QP_SIGNATURE");
    BOOST_TEST(nic->fast_path().name == "verbs");
    BOOST_TEST(nic->fast_path().detail.find("MLX5_QP_SIGNATURE") != std::string::npos);
    const lane l(nic);
    BOOST_TEST(!l.is_direct());
    const buffer memory(*nic, 4096, access::local_write | access::remote_read);
    need(l.reader->post_reads(std::vector{read_of(memory, memory, 5, 64)}));
    BOOST_TEST(wait_one(*l.queue).id == 5u);
}

BOOST_AUTO_TEST_CASE(queue_pair_that_cannot_be_taken_over_later_is_one_of_verbs) {
    const auto nic = open_with(mlx5_choice::verbs_qp);
    auto queue = need(nic->create_completion_queue(64));
    const lane direct(nic, queue);
    BOOST_REQUIRE(direct.is_direct());
    // Registers that libmlx5 shares between its own queue pairs exist; those for thread domains
    // run out.
    { const lane verbs(nic, queue, {.binds = true}); }
    machine::instance().set_pages_left(false);
    std::vector<std::unique_ptr<lane>> lanes;
    while (lanes.empty() || (lanes.back()->is_direct() && lanes.size() < 8)) {
        lanes.push_back(std::make_unique<lane>(nic, queue));
    }
    machine::instance().set_pages_left(true);
    BOOST_TEST(!lanes.back()->is_direct());
    const buffer memory(*nic, 4096, access::local_write | access::remote_read);
    need(direct.reader->post_marker(1));
    BOOST_TEST(wait_one(*queue).id == 1u);
    need(lanes.back()->reader->post_reads(std::vector{read_of(memory, memory, 2, 64)}));
    BOOST_TEST(wait_one(*queue).id == 2u);
    BOOST_TEST(no_violation());
}

BOOST_AUTO_TEST_CASE(read_of_each_size_gives_the_same_bytes_and_completion_by_both_paths) {
    constexpr std::size_t largest = (1 << 20) + 1;
    std::vector<std::uint32_t> sizes = {0, 1, 4095, 4096, 4097, (1 << 20) - 1, 1 << 20, largest};
    for (std::uint32_t n = 31; n <= 65; ++n) sizes.push_back(n);
    for (const auto choice : {mlx5_choice::off, mlx5_choice::verbs_qp}) {
        const lane l(open_with(choice));
        buffer from(*l.nic, largest, access::remote_read);
        const buffer to(*l.nic, largest + 1, access::local_write);
        from.fill();
        for (const auto bytes : sizes) {
            BOOST_TEST_CONTEXT(l.nic->fast_path().name << " " << bytes << " bytes") {
                std::memset(to.bytes().data(), 0xee, bytes + 1);
                need(l.reader->post_reads(std::vector{read_of(to, from, bytes + 7, bytes)}));
                const auto done = wait_one(*l.queue);
                BOOST_TEST(done.id == bytes + 7);
                BOOST_TEST(done.status == completion_status::success);
                BOOST_TEST(done.kind == operation::read);
                BOOST_TEST(done.queue_pair_number == l.reader->number());
                BOOST_TEST(done.bytes == 0u);
                BOOST_TEST(std::memcmp(to.bytes().data(), from.bytes().data(), bytes) == 0);
                BOOST_TEST((to.bytes()[bytes] == std::byte{0xee}));
            }
        }
    }
    BOOST_TEST(no_violation());
}

BOOST_AUTO_TEST_CASE(faults_have_the_same_status_and_vendor_error_by_both_paths) {
    std::vector<completion> all[2];
    for (const auto choice : {mlx5_choice::off, mlx5_choice::verbs_qp}) {
        auto& seen = all[choice == mlx5_choice::off ? 0 : 1];
        for (const int fault : {0, 1, 2, 3}) {
            const lane l(open_with(choice));
            const buffer from(*l.nic, 4096, access::remote_read);
            const buffer to(*l.nic, 8192, access::local_write);
            auto r = read_of(to, from, 1, 4096);
            if (fault == 0) r.remote_key ^= 0x5a00;
            if (fault == 1) r.bytes = 4097;
            if (fault == 2) r.local_key ^= 0x5a00;
            if (fault == 3) r.remote_address += 4096;
            auto behind = read_of(to, from, 2, 1, false);
            need(l.reader->post_reads(std::vector{r, behind}));
            for (const auto& c : wait(*l.queue, 2)) seen.push_back(c);
            BOOST_TEST(need(l.reader->state()) == queue_pair_state::error);
            need(l.reader->post_marker(3));
            seen.push_back(wait_one(*l.queue));
        }
    }
    BOOST_REQUIRE(all[0].size() == all[1].size());
    for (std::size_t i = 0; i < all[0].size(); ++i) {
        BOOST_TEST(all[0][i].id == all[1][i].id);
        BOOST_TEST(all[0][i].status == all[1][i].status);
        BOOST_TEST(all[0][i].vendor_error == all[1][i].vendor_error);
        BOOST_TEST(all[1][i].status != completion_status::success);
    }
    BOOST_TEST(no_violation());
}

BOOST_AUTO_TEST_CASE(each_syndrome_has_the_status_that_ibv_poll_cq_gives_it) {
    std::vector<completion> all[2];
    for (const auto choice : {mlx5_choice::off, mlx5_choice::verbs_qp}) {
        const auto nic = open_with(choice);
        auto queue = need(nic->create_completion_queue(64));
        const buffer memory(*nic, 4096, access::local_write | access::remote_read);
        for (unsigned code = 1; code <= 0xff; ++code) {
            const lane l(nic, queue);
            {
                auto& device = machine::instance().nic();
                const auto held = device.hold();
                device.find_queue_pair(l.reader->number())
                    ->spoil_next({.why = static_cast<softmlx5::syndrome>(code),
                                  .vendor = static_cast<std::uint8_t>(code * 7)});
            }
            need(l.reader->post_reads(std::vector{read_of(memory, memory, code, 64)}));
            all[choice == mlx5_choice::off ? 0 : 1].push_back(wait_one(*queue));
        }
    }
    for (std::size_t i = 0; i < 0xff; ++i) {
        BOOST_TEST_CONTEXT("syndrome " << i + 1) {
            BOOST_TEST(all[1][i].id == i + 1);
            BOOST_TEST(all[1][i].status == all[0][i].status);
            BOOST_TEST(all[1][i].vendor_error == all[0][i].vendor_error);
            BOOST_TEST(all[1][i].vendor_error == ((i + 1) * 7 & 0xff));
            BOOST_TEST(all[1][i].status != completion_status::success);
        }
    }
    BOOST_TEST(no_violation());
}

BOOST_AUTO_TEST_CASE(read_that_succeeds_with_fewer_bytes_than_asked_for_has_failed) {
    const lane l(open_with(mlx5_choice::verbs_qp));
    const buffer memory(*l.nic, 4096, access::local_write | access::remote_read);
    {
        auto& device = machine::instance().nic();
        const auto held = device.hold();
        device.find_queue_pair(l.reader->number())->spoil_next({.missing_bytes = 1});
    }
    need(l.reader->post_reads(std::vector{read_of(memory, memory, 1, 64)}));
    BOOST_TEST(wait_one(*l.queue).status == completion_status::bad_response);
}

BOOST_AUTO_TEST_CASE(room_is_counted_in_requests_and_a_batch_beyond_it_posts_none) {
    const lane l(open_with(mlx5_choice::verbs_qp), {}, {.send_requests = 4, .binds = false});
    const buffer memory(*l.nic, 4096, access::local_write | access::remote_read);
    std::vector<read_request> batch;
    for (std::uint64_t id = 1; id <= 5; ++id) {
        batch.push_back(read_of(memory, memory, id, 0, id == 4));
    }
    BOOST_TEST(!l.reader->post_reads(batch));
    batch.pop_back();
    for (int round = 0; round < 50; ++round) {  // goes round the ring, whatever its size
        need(l.reader->post_reads(batch));
        BOOST_TEST(wait_one(*l.queue).id == 4u);
    }
    BOOST_TEST(no_violation());
}

BOOST_AUTO_TEST_CASE(queue_pair_without_binds_refuses_them_and_one_with_them_completes_beside_it) {
    const auto nic = open_with(mlx5_choice::verbs_qp);
    auto queue = need(nic->create_completion_queue(64));
    const lane direct(nic, queue);
    const lane binds(nic, queue, {.send_requests = 16, .binds = true});
    BOOST_REQUIRE(direct.is_direct());
    BOOST_TEST(!binds.is_direct());
    const buffer arena(*nic, 4096, access::local_write | access::window_bind);
    auto window = need(nic->allocate_window());
    const auto refused = direct.reader->post_bind(1, *window, *arena.region, arena.bytes(),
                                                  access::remote_read, true);
    BOOST_REQUIRE(!refused);
    BOOST_TEST(refused.error().code == make_error_code(device_errc::post_failed));
    BOOST_TEST(!direct.reader->post_invalidate(1, *window, true));
    need(binds.reader->post_bind(2, *window, *arena.region, arena.bytes(), access::remote_read,
                                 true));
    BOOST_TEST(wait_one(*queue).kind == operation::bind);
    need(direct.reader->post_marker(3));
    BOOST_TEST(wait_one(*queue).id == 3u);
    need(binds.reader->post_invalidate(4, *window, true));
    BOOST_TEST(wait_one(*queue).id == 4u);
    BOOST_TEST(no_violation());
}

BOOST_AUTO_TEST_CASE(armed_queue_tells_of_new_completions_also_with_some_not_polled) {
    const lane l(open_with(mlx5_choice::verbs_qp));
    auto& queue = *l.queue;
    need(queue.arm());
    need(l.reader->post_marker(1));
    BOOST_TEST(event_within_20_s(queue));
    for (std::uint64_t id = 2; id <= 8; ++id) {  // the sequence number goes round
        need(queue.arm());
        need(l.reader->post_marker(id));
        BOOST_TEST(event_within_20_s(queue));
    }
    const auto done = wait(queue, 8);
    for (std::uint64_t i = 0; i < 8; ++i) BOOST_TEST(done[i].id == i + 1);
    BOOST_TEST(no_violation());
}

BOOST_AUTO_TEST_CASE(receives_complete_in_the_same_queue_as_direct_sends) {
    const auto nic = open_with(mlx5_choice::verbs_qp);
    const lane l(nic, {}, {.send_requests = 4, .receive_requests = 2, .binds = false});
    buffer into(*nic, 4096, access::local_write);
    buffer from(*nic, 4096, access::local_write);
    from.fill();
    need(l.reader->post_receive(
        {.id = 11, .buffer = into.bytes(), .local_key = into.region->local_key()}));
    need(l.owner->post_send(
        {.id = 1, .bytes = from.bytes().first(100), .local_key = from.region->local_key()}));
    const auto received = wait_one(*l.queue);
    BOOST_TEST(received.id == 11u);
    BOOST_TEST(received.kind == operation::receive);
    BOOST_TEST(received.bytes == 100u);
    BOOST_TEST(std::memcmp(into.bytes().data(), from.bytes().data(), 100) == 0);
    BOOST_TEST(no_violation());
}

BOOST_AUTO_TEST_CASE(completion_of_a_destroyed_queue_pair_is_not_that_of_the_next_with_its_number) {
    const auto nic = open_with(mlx5_choice::verbs_qp);
    auto queue = need(nic->create_completion_queue(64));
    auto& both = dynamic_cast<mlx5::completion_queue&>(*queue);
    auto first = std::make_unique<lane>(nic, queue);
    const lane second(nic, queue);
    const auto number = first->reader->number();
    need(queue->arm());
    need(first->reader->post_marker(2));
    BOOST_REQUIRE(event_within_20_s(*queue));
    first.reset();  // with its completion in the ring

    // The next with that number, which has one request out that starts at the same index.
    alignas(64) std::byte ring[4 * 64] = {};
    alignas(8) std::byte registers[64] = {};
    std::uint32_t record[2] = {};
    auto work = std::make_shared<mlx5::taken_over>(mlx5::send_queue_memory{.ring = ring,
                                                                           .blocks = 4,
                                                                           .record = record,
                                                                           .registers = registers,
                                                                           .half_bytes = 0,
                                                                           .number = number});
    need(both.admit(number, work));
    BOOST_REQUIRE(work->ring.add_nop(3, {}));
    work->ring.ring();
    need(second.reader->post_marker(1));
    BOOST_TEST(wait_one(*queue).id == 1u);
    BOOST_TEST(work->ring.requests_out() == 1u);
}

}  // namespace verbs_support
