// The direct path against libmlx5: what both write into rings, records and registers for the same
// requests must be the same, byte for byte, and the device must answer both alike.

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>

#include "fabric/mlx5/completion_ring.hpp"
#include "fabric/mlx5/send_queue.hpp"
#include "fabric/mlx5/takeover.hpp"
#include "softmlx5/core/bytes.hpp"
#include "softmlx5/verbs_pair.hpp"
#include "support/seed.hpp"

namespace softmlx5 {

namespace direct = rvget::fabric::mlx5;
using rvget::fabric::completion_status;
using testing::end;
using testing::end_options;
using testing::opened;

namespace {

bool trapping() { return front::machine::instance().mode() == front::watch_mode::trap; }
violation_log& violations() { return front::machine::instance().nic().violations(); }

const direct::library& library() {
    std::string why;
    const auto* found = direct::library::find(why);
    BOOST_REQUIRE_MESSAGE(found != nullptr, why);
    return *found;
}

/// The direct path over an end.
struct taken_over {
    explicit taken_over(const end& e)
        : sends(library().take_over(e.pair.get()).value()),
          completions(library().take_over(e.sends.get()).value()) {}

    direct::send_queue<> sends;
    direct::completion_ring<> completions;
};

enum class what : std::uint8_t { read, send, inline_send, fetch_add, compare_swap };

struct request {
    what kind = what::read;
    std::vector<direct::local_piece> pieces;
    std::uint64_t remote = 0;
    std::vector<std::byte> inline_bytes;
    std::optional<std::uint32_t> immediate;
    bool signalled = true;
    bool solicited = false;
    bool fence = false;
    std::uint64_t first = 0;
    std::uint64_t second = 0;
};

request random_request(std::mt19937_64& random, const opened& on, const end_options& options) {
    const auto below = [&](std::uint64_t n) { return random() % n; };
    request r;
    r.kind = static_cast<what>(std::array{0, 0, 0, 0, 1, 2, 2, 3, 4}[below(9)]);
    r.solicited = below(4) == 0;
    r.fence = below(4) == 0;
    r.remote = reinterpret_cast<std::uintptr_t>(on.there.data()) + below(512) * 8;
    const auto piece = [&](std::uint32_t bytes) {
        return direct::local_piece{
            .address = reinterpret_cast<std::uintptr_t>(on.here.data()) + below(1024) * 8,
            .bytes = bytes,
            .key = on.here_region->lkey};
    };
    if (r.kind == what::fetch_add || r.kind == what::compare_swap) {
        r.pieces.push_back(piece(8));
        r.first = random();
        r.second = random();
    } else if (r.kind == what::inline_send) {
        r.inline_bytes.resize(below(options.inline_bytes + 1));
        for (auto& b : r.inline_bytes) b = static_cast<std::byte>(random());
    } else {
        const auto count = 1 + below(options.pieces);
        for (std::uint64_t i = 0; i < count; ++i) {
            r.pieces.push_back(
                piece(below(5) == 0 ? 0 : static_cast<std::uint32_t>(1 + below(200))));
        }
    }
    if ((r.kind == what::send || r.kind == what::inline_send) && below(2) == 0) {
        r.immediate = static_cast<std::uint32_t>(random());
    }
    return r;
}

unsigned flags_of(const request& r) {
    unsigned flags = IBV_SEND_SIGNALED;
    if (r.solicited) flags |= IBV_SEND_SOLICITED;
    if (r.fence) flags |= IBV_SEND_FENCE;
    return flags;
}

void post_old(end& e, const opened& on, const request& r) {
    std::vector<ibv_sge> pieces;
    for (const auto& p : r.pieces) pieces.push_back({p.address, p.bytes, p.key});
    if (r.kind == what::inline_send) {
        pieces.push_back({reinterpret_cast<std::uintptr_t>(r.inline_bytes.data()),
                          static_cast<std::uint32_t>(r.inline_bytes.size()), 0});
    }
    ibv_send_wr wr{};
    wr.sg_list = pieces.data();
    wr.num_sge = static_cast<int>(pieces.size());
    wr.send_flags = flags_of(r) | (r.kind == what::inline_send ? unsigned{IBV_SEND_INLINE} : 0U);
    switch (r.kind) {
        case what::read:
            wr.opcode = IBV_WR_RDMA_READ;
            wr.wr.rdma = {.remote_addr = r.remote, .rkey = on.there_region->rkey};
            break;
        case what::send:
        case what::inline_send:
            wr.opcode = r.immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
            wr.imm_data = __builtin_bswap32(r.immediate.value_or(0));
            break;
        case what::fetch_add:
        case what::compare_swap:
            wr.opcode =
                r.kind == what::fetch_add ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
            wr.wr.atomic = {.remote_addr = r.remote,
                            .compare_add = r.first,
                            .swap = r.second,
                            .rkey = on.there_region->rkey};
            break;
    }
    ibv_send_wr* bad = nullptr;
    testing::good(ibv_post_send(e.pair.get(), &wr, &bad), "ibv_post_send");
}

void post_new(end& e, const opened& on, const request& r) {
    auto* pair = ibv_qp_to_qp_ex(e.pair.get());
    ibv_wr_start(pair);
    pair->wr_id = 0;
    pair->wr_flags = flags_of(r);
    const auto key = on.there_region->rkey;
    if (r.kind == what::read) ibv_wr_rdma_read(pair, key, r.remote);
    if (r.kind == what::fetch_add) ibv_wr_atomic_fetch_add(pair, key, r.remote, r.first);
    if (r.kind == what::compare_swap) {
        ibv_wr_atomic_cmp_swp(pair, key, r.remote, r.first, r.second);
    }
    if (r.kind == what::send || r.kind == what::inline_send) {
        if (r.immediate) {
            ibv_wr_send_imm(pair, __builtin_bswap32(*r.immediate));
        } else {
            ibv_wr_send(pair);
        }
    }
    if (r.kind == what::inline_send) {
        ibv_wr_set_inline_data(pair, const_cast<std::byte*>(r.inline_bytes.data()),
                               r.inline_bytes.size());
    } else {
        std::vector<ibv_sge> pieces;
        for (const auto& p : r.pieces) pieces.push_back({p.address, p.bytes, p.key});
        ibv_wr_set_sge_list(pair, pieces.size(), pieces.data());
    }
    testing::good(ibv_wr_complete(pair), "ibv_wr_complete");
}

bool add_direct(direct::send_queue<>& sends, const opened& on, const request& r) {
    const direct::request_modes modes{r.signalled, r.solicited, r.fence};
    const direct::remote_place remote{r.remote, on.there_region->rkey};
    switch (r.kind) {
        case what::read:
            return sends.add_read(1, r.pieces, remote, modes);
        case what::send:
            return sends.add_send(1, r.pieces, modes, r.immediate);
        case what::inline_send:
            return sends.add_inline_send(1, r.inline_bytes, modes, r.immediate);
        case what::fetch_add:
            return sends.add_fetch_add(1, r.pieces[0], remote, r.first, modes);
        case what::compare_swap:
            return sends.add_compare_swap(1, r.pieces[0], remote, r.first, r.second, modes);
    }
    return false;
}

/// Waits for a completion of a queue that the device fills in its own time or in ours.
template <class Poll>
void await(Poll&& poll) {
    for (;;) {
        opened::settle();
        if (poll()) return;
    }
}

/// The two ends that are compared, the ends they talk to, and copies of their rings.
class comparison {
public:
    comparison(opened& on, const end_options& options, std::byte poison)
        : on_(on),
          options_(options),
          theirs_(on, options),
          ours_(on, options),
          their_peer_(on),
          our_peer_(on) {
        theirs_.connect(their_peer_);
        their_peer_.connect(theirs_);
        ours_.connect(our_peer_);
        our_peer_.connect(ours_);
        direct_.emplace(ours_);
        their_layout_ = theirs_.layout();
        our_layout_ = ours_.layout();
        BOOST_REQUIRE(their_layout_.sq.wqe_cnt == our_layout_.sq.wqe_cnt);
        std::memset(their_layout_.sq.buf, std::to_integer<int>(poison), ring_bytes());
        std::memset(our_layout_.sq.buf, std::to_integer<int>(poison), ring_bytes());
        (void)front::machine::instance().nic().take_trace();
    }

    [[nodiscard]] std::uint32_t blocks() const { return our_layout_.sq.wqe_cnt; }
    [[nodiscard]] std::uint16_t start() const {
        return static_cast<std::uint16_t>(direct_->sends.next_index() & (blocks() - 1));
    }

    /// Posts `r` on both and compares everything. False at the first difference.
    bool step(const request& r) {
        const auto start_index = direct_->sends.next_index();
        const auto before = on_.there;
        if (r.kind == what::send || r.kind == what::inline_send) their_peer_.receive(1);
        options_.new_api ? post_new(theirs_, on_, r) : post_old(theirs_, on_, r);
        ibv_wc wc{};
        await([&] { return ibv_poll_cq(theirs_.sends.get(), 1, &wc) == 1; });
        const auto their_trace = front::machine::instance().nic().take_trace();
        drain(their_peer_);
        const auto their_here = on_.here;
        const auto their_there = on_.there;

        on_.there = before;
        std::fill(on_.here.begin(), on_.here.end(), std::byte{0});
        if (r.kind == what::send || r.kind == what::inline_send) our_peer_.receive(1);
        if (!add_direct(direct_->sends, on_, r)) return false;
        direct_->sends.ring();
        direct::ring_completion done;
        auto polled = direct::ring_poll::empty;
        await(
            [&] { return (polled = direct_->completions.poll(done)) != direct::ring_poll::empty; });
        direct_->completions.publish();
        const auto our_trace = front::machine::instance().nic().take_trace();
        drain(our_peer_);
        const bool retired = direct_->sends.complete(done.counter) == 1;

        const bool same = compare_rings(start_index, r) && their_here == on_.here &&
                          their_there == on_.there && compare_traces(their_trace, our_trace) &&
                          polled == direct::ring_poll::taken && retired &&
                          done.status == completion_status::success &&
                          wc.status == IBV_WC_SUCCESS && done.queue_pair == ours_.pair->qp_num &&
                          their_layout_.dbrec[1] == our_layout_.dbrec[1] &&
                          (r.kind != what::read || done.bytes == wc.byte_len);
        std::fill(on_.here.begin(), on_.here.end(), std::byte{0});
        return same;
    }

private:
    [[nodiscard]] std::size_t ring_bytes() const {
        return std::size_t{our_layout_.sq.wqe_cnt} * our_layout_.sq.stride;
    }
    static void drain(end& peer) {
        ibv_wc wc{};
        while (ibv_poll_cq(peer.receives.get(), 1, &wc) > 0) {
        }
    }
    /// The whole rings, but for the queue pair's number; and the immediate word of an operation
    /// that has none, which ibv_wr_* leaves as it was, ibv_post_send zeroes, and we zero.
    bool compare_rings(std::uint16_t index, const request& r) {
        const auto* theirs = static_cast<const std::byte*>(their_layout_.sq.buf);
        const auto* ours = static_cast<const std::byte*>(our_layout_.sq.buf);
        const auto at = std::size_t{index & (our_layout_.sq.wqe_cnt - 1)} * 64;
        if (load32(theirs + at + 4) >> 8 != theirs_.pair->qp_num ||
            load32(ours + at + 4) >> 8 != ours_.pair->qp_num || theirs[at + 7] != ours[at + 7]) {
            return false;
        }
        // Afterwards the two rings are made the same there, so that the next comparison is whole.
        auto* writable = static_cast<std::byte*>(our_layout_.sq.buf) + at;
        std::array<std::byte, 12> kept;
        std::copy_n(writable + 4, kept.size(), kept.begin());
        std::copy_n(theirs + at + 4, 4, writable + 4);
        if (options_.new_api && !r.immediate) std::copy_n(theirs + at + 12, 4, writable + 12);
        return std::memcmp(theirs, ours, ring_bytes()) == 0;
    }
    /// The stores to registers, as far as they were trapped.
    bool compare_traces(const std::vector<uar_store>& theirs, const std::vector<uar_store>& ours) {
        if (!trapping()) return theirs.empty() && ours.empty();
        if (theirs.empty() || theirs.size() != ours.size()) return false;
        for (std::size_t i = 0; i < ours.size(); ++i) {
            auto expected = theirs[i].value;
            const bool names = theirs[i].offset % 0x100 == 0;
            if (names) {
                expected ^= std::uint64_t{theirs_.pair->qp_num ^ ours_.pair->qp_num} << 8;
            }
            const bool immediate = theirs[i].offset % 0x100 == 8 && options_.new_api;
            const auto mask = immediate ? ~std::uint64_t{0xffffffff} : ~std::uint64_t{0};
            // A page has two registers of 0x200 bytes: which of them a thread domain got is chance.
            if (theirs[i].offset % 0x200 != ours[i].offset % 0x200 ||
                (expected & mask) != (ours[i].value & mask)) {
                return false;
            }
        }
        return true;
    }

    opened& on_;
    end_options options_;
    end theirs_;
    end ours_;
    end their_peer_;
    end our_peer_;
    std::optional<taken_over> direct_;
    mlx5dv_qp their_layout_{};
    mlx5dv_qp our_layout_{};
};

}  // namespace

BOOST_AUTO_TEST_CASE(random_requests_are_written_as_libmlx5_writes_them) {
    auto random = rvget::test::seeded_generator();
    opened on;
    for (auto& b : on.there) b = static_cast<std::byte>(random());
    std::size_t compared = 0;
    // 9 shapes, 2 poisons, 2 interfaces: 54,000 requests and more where stores are not trapped.
    const std::size_t each = trapping() ? 20 : 1600;
    for (const bool new_api : {false, true}) {
        for (const std::uint32_t requests : {4U, 16U, 256U}) {
            for (const std::uint32_t pieces : {1U, 4U, 12U}) {
                for (const int poison : {0x00, 0xee}) {
                    const end_options options{.requests = requests,
                                              .pieces = pieces,
                                              .inline_bytes = pieces * 16U,
                                              .new_api = new_api};
                    comparison pair(on, options, static_cast<std::byte>(poison));
                    std::vector<bool> starts(pair.blocks());
                    for (std::size_t i = 0; i < each; ++i, ++compared) {
                        starts[pair.start()] = true;
                        BOOST_REQUIRE_MESSAGE(pair.step(random_request(random, on, options)),
                                              "request " << i << " differs: new " << new_api << ", "
                                                         << requests << " requests of " << pieces
                                                         << " pieces");
                    }
                    if (pair.blocks() <= 64 && !trapping()) {
                        BOOST_TEST(std::count(starts.begin(), starts.end(), false) == 0);
                    }
                }
            }
        }
    }
    BOOST_TEST(compared >= (trapping() ? 720U : 54000U));
    BOOST_TEST(violations().all().empty());
}

BOOST_AUTO_TEST_CASE(batch_goes_out_with_one_doorbell_and_completes_in_order) {
    opened on;
    end left(on, {.requests = 64, .entries = 127});
    end right(on);
    left.connect(right);
    right.connect(left);
    taken_over direct_path(left);
    for (std::size_t i = 0; i < on.there.size(); ++i) on.there[i] = static_cast<std::byte>(i * 5);
    for (std::uint64_t round = 0; round < 40; ++round) {
        (void)front::machine::instance().nic().take_trace();
        for (std::uint64_t i = 0; i < 16; ++i) {
            const std::array piece{
                direct::local_piece{reinterpret_cast<std::uintptr_t>(on.here.data() + i * 100), 100,
                                    on.here_region->lkey}};
            // Only the last has a completion, which stands for all.
            BOOST_REQUIRE(direct_path.sends.add_read(
                round * 16 + i, piece,
                {reinterpret_cast<std::uintptr_t>(on.there.data() + i * 100),
                 on.there_region->rkey},
                {.signalled = i == 15}));
        }
        direct_path.sends.ring();
        direct::ring_completion done;
        await([&] { return direct_path.completions.poll(done) == direct::ring_poll::taken; });
        direct_path.completions.publish();
        if (trapping()) BOOST_TEST(front::machine::instance().nic().take_trace().size() == 1U);
        BOOST_TEST((direct_path.sends.complete(done.counter) == round * 16 + 15));
        BOOST_TEST(direct_path.sends.free_blocks() == direct_path.sends.memory().blocks);
        BOOST_TEST(std::equal(on.here.begin(), on.here.begin() + 1600, on.there.begin()));
        std::fill(on.here.begin(), on.here.end(), std::byte{0});
    }
    BOOST_TEST(violations().all().empty());
}

BOOST_AUTO_TEST_CASE(full_queue_takes_no_more_and_dropped_requests_are_never_seen) {
    opened on;
    end left(on, {.requests = 4});
    end right(on);
    left.connect(right);
    right.connect(left);
    taken_over direct_path(left);
    std::uint32_t added = 0;
    while (direct_path.sends.add_nop(added, {})) ++added;
    BOOST_TEST(added == direct_path.sends.memory().blocks);
    direct_path.sends.drop_added();
    BOOST_TEST(direct_path.sends.free_blocks() == added);
    BOOST_REQUIRE(direct_path.sends.add_nop(77, {}));
    direct_path.sends.ring();
    direct::ring_completion done;
    await([&] { return direct_path.completions.poll(done) == direct::ring_poll::taken; });
    BOOST_TEST((direct_path.sends.complete(done.counter) == 77U));
    BOOST_TEST(!direct_path.sends.complete(done.counter));
    BOOST_TEST(violations().all().empty());
}

namespace {

struct fault {
    const char* name;
    void (*spoil)(end& left, end& right, opened& on, request& r);
};

/// Each ends in another status; the last never reaches the wire.
constexpr std::array faults{
    fault{"local key", [](end&, end&, opened&, request& r) { r.pieces[0].key ^= 0x100; }},
    fault{"remote key",
          [](end&, end&, opened& on, request& r) {
              r.remote = reinterpret_cast<std::uintptr_t>(on.here.data());
          }},
    fault{"remote range",
          [](end&, end&, opened& on, request& r) {
              r.remote = reinterpret_cast<std::uintptr_t>(on.there.data()) + opened::bytes - 4;
          }},
    fault{"misaligned atomic",
          [](end&, end&, opened&, request& r) {
              r.kind = what::fetch_add;
              r.pieces[0].bytes = 8;
              r.remote += 4;
          }},
    fault{"no receive", [](end&, end&, opened&, request& r) { r.kind = what::send; }},
    fault{"receive too short",
          [](end&, end& right, opened&, request& r) {
              right.receive(1);
              r.kind = what::send;
              r.pieces[0].bytes = 5000;
          }},
    fault{"too long", [](end&, end&, opened&, request& r) { r.pieces[0].bytes = (1U << 30) + 1; }},
    fault{"own error state", [](end& left, end&, opened&, request&) { left.to(IBV_QPS_ERR); }},
};

completion_status expected(ibv_wc_status status) {
    switch (status) {
        case IBV_WC_LOC_LEN_ERR:
            return completion_status::local_length;
        case IBV_WC_LOC_QP_OP_ERR:
            return completion_status::local_queue_pair_operation;
        case IBV_WC_LOC_PROT_ERR:
            return completion_status::local_protection;
        case IBV_WC_WR_FLUSH_ERR:
            return completion_status::flushed;
        case IBV_WC_REM_INV_REQ_ERR:
            return completion_status::remote_invalid_request;
        case IBV_WC_REM_ACCESS_ERR:
            return completion_status::remote_access;
        case IBV_WC_REM_OP_ERR:
            return completion_status::remote_operation;
        case IBV_WC_RNR_RETRY_EXC_ERR:
            return completion_status::rnr_retry_exceeded;
        default:
            return completion_status::other;
    }
}

}  // namespace

BOOST_AUTO_TEST_CASE(faults_end_in_the_status_that_ibv_poll_cq_reports) {
    std::vector<completion_status> seen;
    for (const auto& f : faults) {
        BOOST_TEST_CONTEXT("fault " << f.name) {
            opened on;
            end theirs(on);
            end their_peer(on);
            end ours(on);
            end our_peer(on);
            theirs.connect(their_peer);
            their_peer.connect(theirs);
            ours.connect(our_peer);
            our_peer.connect(ours);
            taken_over direct_path(ours);
            const request plain{.pieces = {{reinterpret_cast<std::uintptr_t>(on.here.data()), 64,
                                            on.here_region->lkey}},
                                .remote = reinterpret_cast<std::uintptr_t>(on.there.data())};

            auto r = plain;
            f.spoil(theirs, their_peer, on, r);
            post_old(theirs, on, r);
            std::array<ibv_wc, 2> wc{};
            await([&] { return ibv_poll_cq(theirs.sends.get(), 1, &wc[0]) == 1; });
            post_old(theirs, on, plain);
            await([&] { return ibv_poll_cq(theirs.sends.get(), 1, &wc[1]) == 1; });

            r = plain;
            f.spoil(ours, our_peer, on, r);
            BOOST_REQUIRE(add_direct(direct_path.sends, on, r));
            direct_path.sends.ring();
            std::array<direct::ring_completion, 2> done;
            await(
                [&] { return direct_path.completions.poll(done[0]) == direct::ring_poll::taken; });
            auto late = plain;
            late.signalled = false;  // flushed all the same
            BOOST_REQUIRE(add_direct(direct_path.sends, on, late));
            direct_path.sends.ring();
            await(
                [&] { return direct_path.completions.poll(done[1]) == direct::ring_poll::taken; });
            for (std::size_t i = 0; i < 2; ++i) {
                BOOST_TEST((done[i].status == expected(wc[i].status)));
                BOOST_TEST(done[i].vendor == wc[i].vendor_err);
                BOOST_TEST(direct_path.sends.complete(done[i].counter).has_value());
            }
            BOOST_TEST((done[1].status == completion_status::flushed));
            seen.push_back(done[0].status);
        }
    }
    std::sort(seen.begin(), seen.end());
    // The two remote access faults and the two invalid requests are alike.
    const auto kinds = std::unique(seen.begin(), seen.end()) - seen.begin();
    BOOST_TEST(kinds == 6);
    BOOST_TEST(violations().all().empty());
}

BOOST_AUTO_TEST_CASE(queue_pair_that_was_reset_is_used_again_from_the_start) {
    opened on;
    end left(on);
    end right(on);
    taken_over direct_path(left);
    for (int round = 0; round < 3; ++round) {
        left.connect(right);
        right.connect(left);
        for (std::uint64_t i = 0; i < 5; ++i) {
            BOOST_REQUIRE(direct_path.sends.add_nop(i, {}));
            direct_path.sends.ring();
            direct::ring_completion done;
            await([&] { return direct_path.completions.poll(done) == direct::ring_poll::taken; });
            direct_path.completions.publish();
            BOOST_TEST((direct_path.sends.complete(done.counter) == i));
        }
        for (auto* one : {&left, &right}) {
            one->to(IBV_QPS_ERR);
            one->to(IBV_QPS_RESET);
        }
        direct_path.sends.reset();
    }
    BOOST_TEST(violations().all().empty());
}

BOOST_AUTO_TEST_CASE(armed_ring_tells_of_new_completions_once_also_with_some_not_polled) {
    opened on;
    testing::owned<ibv_comp_channel> channel(ibv_create_comp_channel(on.context.get()));
    end left(on, {.channel = channel.get()});
    end right(on);
    left.connect(right);
    right.connect(left);
    taken_over direct_path(left);
    const auto post = [&](std::uint64_t id) {
        BOOST_REQUIRE(direct_path.sends.add_nop(id, {}));
        direct_path.sends.ring();
        opened::settle();
    };
    unsigned taken = 0;
    const auto read_event = [&] {
        ibv_cq* queue = nullptr;
        void* unused = nullptr;
        opened::settle();
        BOOST_REQUIRE(ibv_get_cq_event(channel.get(), &queue, &unused) == 0);
        BOOST_TEST(queue == left.sends.get());
        direct_path.completions.event_taken();
        ++taken;
    };
    direct::ring_completion done;
    direct_path.completions.arm();
    post(1);
    read_event();
    // One more comes before it is armed again, and none has been polled.
    post(2);
    direct_path.completions.arm();
    read_event();
    // Armed over what there was an event for: the third one tells.
    direct_path.completions.arm();
    post(3);
    read_event();
    for (std::uint64_t id = 1; id <= 3; ++id) {
        await([&] { return direct_path.completions.poll(done) == direct::ring_poll::taken; });
        BOOST_TEST((direct_path.sends.complete(done.counter) == id));
    }
    direct_path.completions.publish();
    for (std::uint64_t i = 0; i < 6; ++i) {  // the sequence number goes round
        direct_path.completions.arm();
        post(10 + i);
        read_event();
        await([&] { return direct_path.completions.poll(done) == direct::ring_poll::taken; });
        direct_path.completions.publish();
        BOOST_TEST((direct_path.sends.complete(done.counter) == 10 + i));
    }
    ibv_ack_cq_events(left.sends.get(), taken);
    BOOST_TEST(violations().all().empty());
}

BOOST_AUTO_TEST_CASE(queue_pair_that_would_expect_checksums_is_not_made_for_the_direct_path) {
    opened on;
    ::setenv("MLX5_QP_SIGNATURE", "1", 1);
    ibv_qp_init_attr_ex attr{};
    const auto refused = library().create_queue_pair(on.context.get(), attr);
    ::unsetenv("MLX5_QP_SIGNATURE");
    BOOST_REQUIRE(!refused);
    BOOST_TEST(refused.error().message().find("MLX5_QP_SIGNATURE") != std::string::npos);
    BOOST_TEST(library().supports(on.context->device));
}

}  // namespace softmlx5
