// READs: late, piece by piece, in order within a queue pair and in any order between them.

#include <boost/test/unit_test.hpp>

#include "sim/fixture.hpp"

using namespace rvget::fabric;
using namespace rvget::fabric::sim;

BOOST_FIXTURE_TEST_SUITE(reads, two_hosts)

BOOST_AUTO_TEST_CASE(read_posted_moves_nothing_until_stepped) {
    connect_ends();
    post(read(1, 0, 4096));
    BOOST_TEST(arrived(0, 4096) == 0u);
    BOOST_TEST(net.runnable() == 1u);
    net.run();
    BOOST_TEST(arrived(0, 4096) == 4096u);
    const auto c = a.poll();
    BOOST_REQUIRE(c);
    BOOST_TEST(c->id == 1u);
    BOOST_TEST(c->status == completion_status::success);
    BOOST_TEST(c->kind == operation::read);
    BOOST_TEST(c->queue_pair_number == a.qp->number());
    BOOST_TEST(!a.poll().has_value());
    BOOST_TEST(!b.poll().has_value());
    BOOST_TEST(net.violations().empty());
}

BOOST_AUTO_TEST_CASE(read_longer_than_a_piece_becomes_visible_piece_by_piece) {
    connect_ends();
    post(read(1, 0, 2500));
    BOOST_TEST(net.at(0).bytes == 1024u);
    net.step(0);
    BOOST_TEST(arrived(0, 4096) == 1024u);
    b.memory[1500] = std::byte{0x77};  // bytes are those at the time of the piece
    net.step(0);
    BOOST_TEST(arrived(0, 4096) == 1500u);
    BOOST_CHECK(a.memory[1500] == std::byte{0x77});
    BOOST_TEST(net.at(0).offset == 2048u);
    BOOST_TEST(net.at(0).bytes == 452u);
    net.step(0);
    BOOST_CHECK(a.memory[2499] == std::byte{0xbb});
    BOOST_CHECK(a.memory[2500] == std::byte{0});
    BOOST_TEST(net.at(0).kind == step_kind::completion);
    BOOST_TEST(!a.poll().has_value());
    net.step(0);
    BOOST_TEST(a.poll().has_value());
    BOOST_TEST(net.runnable() == 0u);
}

BOOST_AUTO_TEST_CASE(read_completions_within_a_queue_pair_keep_their_order) {
    connect_ends();
    for (std::uint64_t id = 0; id < 20; ++id) post(read(id, id * 1024, 1024));
    net.run();
    for (std::uint64_t id = 0; id < 20; ++id) {
        const auto c = a.poll();
        BOOST_REQUIRE(c);
        BOOST_TEST(c->id == id);
    }
}

BOOST_AUTO_TEST_CASE(read_completions_of_two_queue_pairs_come_in_any_order) {
    connect_ends();
    auto qa = a.make();
    auto qb = b.make();
    connect(a, *qa, b, *qb);
    post(read(1, 0, 1024));
    const auto second = read(2, 1024, 1024);
    qa->post_reads({&second, 1}).value();
    BOOST_TEST(net.runnable() == 2u);
    for (int moved_and_delivered = 0; moved_and_delivered < 2; ++moved_and_delivered) {
        for (std::size_t i = 0; i < net.runnable(); ++i) {
            if (net.at(i).id == 2) {
                net.step(i);
                break;
            }
        }
    }
    BOOST_TEST(arrived(0, 1024) == 0u);
    BOOST_TEST(arrived(1024, 1024) == 1024u);
    BOOST_TEST(a.poll().value().id == 2u);
    net.run();
    BOOST_TEST(a.poll().value().id == 1u);
}

BOOST_AUTO_TEST_CASE(read_unsignalled_completes_silently) {
    connect_ends();
    post(read(1, 0, 1024, false));
    post(read(2, 1024, 1024, true));
    net.run();
    BOOST_TEST(arrived(0, 2048) == 2048u);
    BOOST_TEST(a.poll().value().id == 2u);
    BOOST_TEST(!a.poll().has_value());
}

BOOST_AUTO_TEST_CASE(send_queue_full_of_unsignalled_refuses_until_a_completion_is_polled) {
    connect_ends({}, {2, 1, 0});
    post(read(1, 0, 16, false));
    net.run();
    post(read(2, 0, 16, true));
    net.run();
    const auto third = read(3, 0, 16);
    BOOST_TEST(!a.qp->post_reads({&third, 1}).has_value());  // the first still takes its room
    BOOST_TEST(a.poll().has_value());
    BOOST_TEST(a.qp->post_reads({&third, 1}).has_value());
    const std::vector<read_request> two{read(4, 0, 16), read(5, 0, 16)};
    BOOST_TEST(!a.qp->post_reads(two).has_value());  // all or none
    net.run();
    BOOST_TEST(a.poll().value().id == 3u);
    BOOST_TEST(!a.poll().has_value());
}

BOOST_AUTO_TEST_CASE(read_of_zero_bytes_with_a_wrong_key_succeeds) {
    connect_ends();
    auto r = read(1, 0, 0);
    r.remote_key = 1;
    post(r);
    net.run();
    BOOST_TEST(a.poll().value().status == completion_status::success);
}

BOOST_AUTO_TEST_CASE(initiator_depth_zero_never_completes) {
    connect_ends({.initiator_depth = 0});
    post(read(1, 0, 1024));
    BOOST_TEST(net.runnable() == 0u);
    BOOST_TEST(net.dma_pending_into(a.part(0, 1024)));
    drain();
    BOOST_TEST(arrived(0, 1024) == 0u);
}

BOOST_AUTO_TEST_CASE(responder_depth_zero_is_a_remote_invalid_request) {
    connect_ends({.responder_depth = 0});
    post(read(1, 0, 1024));
    net.run();
    BOOST_TEST(a.poll().value().status == completion_status::remote_invalid_request);
    BOOST_TEST(a.qp->state().value() == queue_pair_state::error);
    BOOST_TEST(b.qp->state().value() == queue_pair_state::error);
}

BOOST_AUTO_TEST_CASE(read_beyond_the_responders_depth_is_a_remote_invalid_request) {
    connect_ends({.initiator_depth = 4, .responder_depth = 2});
    for (std::uint64_t id = 0; id < 4; ++id) post(read(id, 0, 64));
    net.run();
    BOOST_TEST(a.poll().value().status == completion_status::success);
    BOOST_TEST(a.poll().value().status == completion_status::success);
    BOOST_TEST(a.poll().value().status == completion_status::remote_invalid_request);
    BOOST_TEST(a.poll().value().status == completion_status::flushed);
}

BOOST_AUTO_TEST_CASE(reads_one_at_a_time_stay_within_a_smaller_responder_depth) {
    connect_ends({.initiator_depth = 4, .responder_depth = 1});
    for (std::uint64_t id = 0; id < 4; ++id) {
        post(read(id, 0, 64));
        net.run();
        BOOST_TEST(a.poll().value().status == completion_status::success);
    }
}

BOOST_AUTO_TEST_CASE(read_larger_than_a_message_is_a_local_length_error) {
    auto small = roce_device("sim0", {ipv4_gid(10, 0, 0, 3)});
    small.facts.ports[0].max_message_bytes = 4096;
    end c;
    c.open(net.attach({"c", {small}}), ipv4_gid(10, 0, 0, 3));
    auto qc = c.make();
    auto qb = b.make();
    connect(c, *qc, b, *qb);
    auto r = read(1, 0, 4097);
    r.local = c.memory.data();
    r.local_key = c.region->local_key();
    qc->post_reads({&r, 1}).value();
    net.run();
    BOOST_TEST(c.poll().value().status == completion_status::local_length);
}

BOOST_AUTO_TEST_CASE(send_arrives_in_the_oldest_receive_and_completes_at_both_ends) {
    connect_ends({}, {16, 4, 0});
    b.qp->post_receive({7, b.part(1024, 256), b.region->local_key()}).value();
    b.qp->post_receive({8, b.part(2048, 256), b.region->local_key()}).value();
    a.memory[0] = std::byte{0x42};
    a.qp->post_send({1, a.part(0, 100), a.region->local_key(), false, true}).value();
    BOOST_TEST(net.dma_pending_from(a.part(0, 100)));
    BOOST_TEST(net.dma_pending_into(b.part(1024, 1)));
    net.run();
    const auto received = b.poll();
    BOOST_REQUIRE(received);
    BOOST_TEST(received->id == 7u);
    BOOST_TEST(received->kind == operation::receive);
    BOOST_TEST(received->bytes == 100u);
    BOOST_CHECK(b.memory[1024] == std::byte{0x42});
    BOOST_TEST(a.poll().value().id == 1u);
    BOOST_TEST(!net.dma_pending_from(a.part(0, 100)));
    BOOST_TEST(!net.dma_pending_into(b.part(1024, 256)));
    BOOST_TEST(net.dma_pending_into(b.part(2048, 256)));
    drain();
}

BOOST_AUTO_TEST_CASE(inline_send_takes_its_bytes_at_the_post_and_needs_no_key) {
    connect_ends({}, {16, 4, 64});
    b.qp->post_receive({7, b.part(0, 256), b.region->local_key()}).value();
    std::vector<std::byte> bytes(64, std::byte{0x11});
    a.qp->post_send({1, bytes, 0, true, false}).value();
    std::fill(bytes.begin(), bytes.end(), std::byte{0x22});
    net.run();
    BOOST_TEST(b.poll().value().bytes == 64u);
    BOOST_CHECK(b.memory[63] == std::byte{0x11});
    bytes.resize(65);
    BOOST_TEST(!a.qp->post_send({2, bytes, 0, true, false}).has_value());
}

BOOST_AUTO_TEST_CASE(hooks_see_every_piece_of_source_and_sink) {
    connect_ends();
    std::size_t written = 0;
    std::size_t read_bytes = 0;
    net.on_write([&](auto memory) {
        BOOST_CHECK(memory.data() == a.memory.data() + written);
        written += memory.size();
    });
    net.on_read([&](auto memory) {
        BOOST_CHECK(memory.data() == b.memory.data() + read_bytes);
        read_bytes += memory.size();
    });
    post(read(1, 0, 2500));
    net.run();
    BOOST_TEST(written == 2500u);
    BOOST_TEST(read_bytes == 2500u);
}

BOOST_AUTO_TEST_CASE(pending_oracles_follow_a_read_from_post_to_completion) {
    connect_ends();
    post(read(1, 4096, 1500));
    BOOST_TEST(net.dma_pending_into(a.part(4096, 1)));
    BOOST_TEST(net.dma_pending_into(a.part(4096 + 1499, 10)));
    BOOST_TEST(!net.dma_pending_into(a.part(4096 + 1500, 10)));
    BOOST_TEST(!net.dma_pending_into(a.part(0, 4096)));
    BOOST_TEST(!net.dma_pending_into(b.part(4096, 1500)));
    BOOST_TEST(net.dma_pending_from(b.part(4096, 1)));
    BOOST_TEST(!net.dma_pending_from(b.part(0, 4096)));
    net.step(0);
    BOOST_TEST(!net.dma_pending_from(b.part(4096, 1024)));  // that piece has been read
    BOOST_TEST(net.dma_pending_from(b.part(4096 + 1024, 1)));
    net.step(0);
    BOOST_TEST(!net.dma_pending_from(b.part(4096, 1500)));
    BOOST_TEST(net.dma_pending_into(a.part(4096, 1500)));  // nobody can know yet
    net.step(0);
    BOOST_TEST(!net.dma_pending_into(a.part(4096, 1500)));
}

BOOST_AUTO_TEST_CASE(steps_are_described_for_people) {
    connect_ends();
    post(read(9, 0, 1500));
    net.step(0);
    BOOST_TEST(net.describe(0) ==
               "a qp " + std::to_string(a.qp->number()) + ": READ piece id 9 bytes 1024+476");
    BOOST_CHECK_THROW(net.step(1), std::out_of_range);
}

BOOST_AUTO_TEST_CASE(read_over_loopback_on_one_device_moves_bytes) {
    auto q1 = b.make();
    auto q2 = b.make();
    connect(b, *q1, b, *q2);
    b.memory[0] = std::byte{0x33};
    auto r = read(1, 0, 16);
    r.local = b.memory.data() + 1024;
    r.local_key = b.region->local_key();
    q1->post_reads({&r, 1}).value();
    net.run();
    BOOST_TEST(b.poll().value().status == completion_status::success);
    BOOST_CHECK(b.memory[1024] == std::byte{0x33});
}

BOOST_AUTO_TEST_SUITE_END()
