// A live session with a peer that says whatever the input says: a whole node over a simulated NIC,
// owner or consumer, and a control connection whose other end is the input (session_steps.hpp).
// The node never crashes or hangs, answers every get once, leaks no lease, gives no byte of a slot
// away twice, and shuts down proven quiet.

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <rvget/log.hpp>

#include "engine/memory_network.hpp"
#include "engine/node_core.hpp"
#include "engine/plain_memory.hpp"
#include "engine/schedules/sim_environment.hpp"
#include "fabric/sim/network.hpp"
#include "fuzz/require.hpp"
#include "fuzz/session_steps.hpp"
#include "support/pattern.hpp"

namespace rvget::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t slot_bytes = 10'000;
constexpr std::size_t steps_at_most = 200'000;  ///< at one time of the clock; more is a hang
constexpr auto deadline = 500ms;
const endpoint_address owner_address{"192.0.2.2", 1};

/// Where the input's end hears what the node says: nowhere.
struct deaf final : engine::control_link_events {
    void on_frame(std::span<const std::byte>, std::span<const std::byte>) override {}
    std::span<std::byte> payload_destination(std::span<const std::byte>, std::size_t) override {
        return {};
    }
    void on_closed(const failure&) override {}
};

class session {
public:
    explicit session(session_side side) : side_(side) {
        if (side == session_side::owner) {
            options_.listen = owner_address;
        } else {
            // Takes what the consumer connects to.
            FUZZ_REQUIRE(
                net_.listen(owner_address, [this](std::shared_ptr<engine::control_link> l) {
                    far_ = std::move(l);
                    far_->start(std::make_shared<deaf>());
                }));
        }
        options_.rdma_min_bytes = 1;
        options_.inline_max = 16;
        options_.retry_window = 10ms;
        options_.lease_timeout = 100ms;
        options_.handshake_timeout = 200ms;
        options_.first_arena_bytes = options_.max_arena_bytes = std::size_t{64} << 10;
        options_.registered_budget_bytes = std::size_t{128} << 10;
        options_.chunk_bytes = 4096;
        options_.arena_idle_time = 0ms;
        rdma_ = engine::rdma_context::open(provider_.get(), options_, wire::lease_mode::window);
        FUZZ_REQUIRE(rdma_->usable());
        core_ = std::make_unique<engine::node_core>(env_, net_, options_, rdma_);
        FUZZ_REQUIRE(core_->start());
        if (side == session_side::owner) {
            stage(1, true);
            stage(2, false);
        }
        call();
        settle(false);
    }
    ~session() {
        env_.clear();
        core_.reset();
        env_.clear();
    }
    session(const session&) = delete;
    session& operator=(const session&) = delete;

    void run(session_reader in) {
        while (!in.empty()) {
            switch (
                static_cast<session_step>(in.u8() % static_cast<unsigned>(session_step::count))) {
                case session_step::frame:
                    say(in);
                    break;
                case session_step::wait:
                    wait(in.u8() * 10ms, false);
                    break;
                case session_step::nic:
                    nic_.run(in.u8());
                    break;
                case session_step::hang_up:
                    if (far_) far_->close(true);
                    break;
                case session_step::call_again:
                    call(in.u8());
                    break;
                case session_step::cancel:
                    core_->consumer().cancel(gets_);
                    break;
                case session_step::count:
                    break;
            }
            settle(false);
        }
    }

    /// All that the input began ends by itself, and nothing is left of it.
    void end() {
        for (const auto& link : earlier_) link->close(true);  // each may hold references
        if (far_) far_->close(true);
        wait(std::max<duration>(2 * options_.lease_timeout, deadline) + 100ms, true);
        FUZZ_REQUIRE(answers_ == gets_);
        const auto& s = core_->stats();
        FUZZ_REQUIRE(s.leases_active == 0);
        FUZZ_REQUIRE(s.leases_granted == s.leases_released + s.leases_expired);
        if (side_ == session_side::owner) {
            for (const std::uint64_t id : {1, 2}) {
                const auto* slot = core_->owner().find(id);
                FUZZ_REQUIRE(slot != nullptr && slot->references == 1 && slot->leases == 0);
                FUZZ_REQUIRE(pattern_mismatch(slot->memory->bytes) == slot_bytes);
            }
        }
        bool over = false;
        bool quiet = false;
        core_->shutdown(now_ + 1s, [&](bool proven) {
            over = true;
            quiet = proven;
        });
        wait(1100ms, true);
        FUZZ_REQUIRE(over && quiet);
        FUZZ_REQUIRE(nic_.violations().empty());
    }

private:
    void stage(std::uint64_t id, bool pinned) {
        auto m = std::make_shared<engine::slot_memory>();
        m->pinned = pinned;
        if (pinned) {
            auto block = rdma_->memory().obtain(slot_bytes);
            FUZZ_REQUIRE(block);
            m->block = std::move(*block);
            m->remote_key = m->block.remote_key();
            fill_pattern(m->block.bytes());
            m->bytes = m->block.bytes();
        } else {
            m->plain = engine::allocate_plain(slot_bytes);
            fill_pattern(m->plain.bytes());
            m->bytes = m->plain.bytes();
        }
        core_->owner().add_slot(id, std::move(m));
    }

    void call(std::uint8_t kind = 0) {
        if (side_ == session_side::owner) {
            if (calls_++ > 16) return;
            net_.connect(owner_address, now_, [this](auto link) {
                far_ = link.value();
                far_->start(std::make_shared<deaf>());
                earlier_.push_back(far_);
            });
            return;
        }
        if (gets_ >= 16) return;
        auto& into = destinations_.emplace_back(slot_bytes);
        engine::transfer_request request;
        request.slot = 1;
        request.length = slot_bytes;
        request.deadline = now_ + deadline;
        request.kind = static_cast<engine::destination_kind>(kind % 3);
        if (request.kind == engine::destination_kind::into) request.into = into;
        if (kind & 4U) request.policy = path_policy::require;
        request.checksum = (kind & 8U) != 0;
        core_->consumer().get(
            owner_address, node_id{7}, request,
            [this](const engine::transfer_answer& a) {
                ++answers_;
                FUZZ_REQUIRE(a.error.code || a.bytes <= slot_bytes);
            },
            ++gets_);
    }

    void say(session_reader& in) {
        const auto head = in.take(std::min<std::size_t>(in.u16(), 4096));
        const std::vector<std::byte> payload(std::min<std::size_t>(in.u16(), 2 * slot_bytes));
        if (far_ && !head.empty()) far_->send({head.begin(), head.end()}, {payload, nullptr});
    }

    void settle(bool with_nic) {
        for (std::size_t i = 0; i < steps_at_most; ++i) {
            net_.run();
            if (env_.tasks() != 0)
                env_.run_task();
            else if (env_.timer_due())
                env_.fire_timer();
            else if (env_.jobs() != 0)
                env_.step_job(0);
            else if (with_nic && nic_.run(1) != 0)
                continue;
            else {
                env_.poll();
                if (env_.tasks() == 0 && env_.jobs() == 0) return;
            }
        }
        FUZZ_REQUIRE(!"the node comes to rest");
    }
    void wait(duration how_long, bool with_nic) {
        for (const auto end = now_ + how_long; now_ < end; now_ += 10ms) settle(with_nic);
        settle(with_nic);
    }

    session_side side_;
    time_point now_{1s};
    sim_environment env_{now_, 1};
    memory_network net_;
    fabric::sim::network nic_{{.piece_bytes = 4096}};
    std::unique_ptr<fabric::provider> provider_ =
        nic_.attach(fabric::sim::roce_host("node", fabric::sim::ipv4_gid(10, 0, 0, 1)));
    /// Where the peer's queue pairs would be: its address resolves, and nothing answers there.
    std::unique_ptr<fabric::provider> peer_nic_ =
        nic_.attach(fabric::sim::roce_host("peer", fabric::sim::ipv4_gid(10, 0, 0, 2)));
    node_options options_;
    std::shared_ptr<engine::rdma_context> rdma_;
    std::unique_ptr<engine::node_core> core_;
    std::shared_ptr<engine::control_link> far_;
    std::vector<std::shared_ptr<engine::control_link>> earlier_;  ///< the owner's peers so far
    std::vector<std::vector<std::byte>> destinations_;
    std::uint64_t gets_ = 0;
    std::uint64_t answers_ = 0;
    unsigned calls_ = 0;
};

}  // namespace
}  // namespace rvget::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace rvget::test;
    rvget::set_log_level(rvget::log_level::off);
    session_reader in(std::as_bytes(std::span(data, size)));
    session s(static_cast<session_side>(in.u8() % static_cast<unsigned>(session_side::count)));
    s.run(in);
    s.end();
    return 0;
}
