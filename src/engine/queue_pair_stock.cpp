#include "engine/queue_pair_stock.hpp"

#include <utility>

#include "base/log.hpp"
#include "engine/window_keys.hpp"

namespace rvget::engine {

/// A first get is over by then, also where one CPU does everything.
constexpr auto refill_delay = std::chrono::milliseconds(20);

queue_pair_recipe queue_pair_recipe::reading(const rdma_context& rdma,
                                             const node_options& options) {
    queue_pair_recipe r;
    r.completions = rdma.reading_queue();
    // READs and the marker; in the completion queue also what the body posts of its own (a probe
    // behind a READ on devices whose success needs one, a marker).
    r.options = {.send_requests = options.read_depth + 1U, .binds = false};
    r.entries = r.options.send_requests + 2;
    // Nobody reads from or writes to the consumer: no remote right at all, but for the responses of
    // iWARP, which are remote writes.
    r.rights = rdma.needs_cm() ? fabric::access::remote_write : fabric::access::none;
    return r;
}

queue_pair_recipe queue_pair_recipe::serving(const rdma_context& rdma) {
    queue_pair_recipe r;
    r.completions = rdma.serving_queue();
    r.options = {.send_requests = 1};
    r.rights = fabric::access::remote_read;
    if (rdma.lease_keys() == wire::lease_mode::window) {
        r.completions = rdma.reading_queue();
        r.options.send_requests = window_keys::most_posted + 1;
        r.windows = window_keys::first_windows;
        // As a reading one: what the body posts of its own has its entries too.
        r.entries = r.options.send_requests + 2;
    }
    return r;
}

result<void> queue_pair_recipe::make(const rdma_context& rdma, std::uint8_t port,
                                     initial_queue_pair& q) const {
    if (q.queue_pair && q.port == port) return {};
    q.destroy();
    auto made = rdma.create_queue_pair(completions, port, options);
    if (!made) return made.error();
    q.port = port;
    q.queue_pair = std::move(*made);
    if (auto r = q.queue_pair->to_init(rights); !r) return r;
    if (windows == 0) return {};
    auto allocated = window_keys::allocate(*rdma.device(), windows);
    if (!allocated) return allocated.error();
    q.windows = std::move(*allocated);
    return {};
}

struct queue_pair_stock::attempt {
    initial_queue_pair made;
    result<void> outcome;
};

queue_pair_stock::queue_pair_stock(environment& env, rdma_context& rdma, counters& stats,
                                   queue_pair_recipe recipe, std::size_t wanted)
    : env_(env), rdma_(rdma), stats_(stats), recipe_(std::move(recipe)), wanted_(wanted) {}

void queue_pair_stock::fill() {
    if (making_) asked_meanwhile_ = true;
    if (closed_ || making_ || spares_.size() >= wanted_ || !rdma_.usable()) return;
    if (!rdma_.reserve_spare_entries(recipe_.entries)) return;
    making_ = true;
    rdma_.resource_born();
    auto a = std::make_shared<attempt>();
    env_.offload(
        blocking_work::make,
        [a, recipe = recipe_, port = port_, &rdma = rdma_] {
            const auto at = port != 0 ? result<std::uint8_t>(port) : rdma.first_active_port();
            if (at)
                a->outcome = recipe.make(rdma, *at, a->made);
            else
                a->outcome = at.error();
            if (!a->outcome) a->made.destroy();
        },
        [this, a] { made(*a); });
}

void queue_pair_stock::made(attempt& a) {
    making_ = false;
    if (!a.outcome) {
        // Not again at once: whoever needs one makes it himself, and has it tried again.
        ++stats_.spares_failed;
        log(log_level::warning,
            "spare_queue_pair=failed cause=" + quoted(a.outcome.error().message()));
        rdma_.return_entries(recipe_.entries);
        rdma_.resource_gone();
        if (std::exchange(asked_meanwhile_, false)) fill();
        return;
    }
    asked_meanwhile_ = false;
    if (closed_) return discard(std::move(a.made));
    spares_.push_back(std::move(a.made));
    fill();
}

initial_queue_pair queue_pair_stock::take() {
    if (timer_ == 0 && !closed_ && wanted_ != 0)
        timer_ = env_.at(env_.now() + refill_delay, [this] {
            timer_ = 0;
            fill();
        });
    if (spares_.empty()) return {};
    auto q = std::move(spares_.back());
    spares_.pop_back();
    ++stats_.spares_used;
    rdma_.resource_gone();  // the taker counts it as his own
    return q;
}

void queue_pair_stock::close() {
    closed_ = true;
    env_.cancel(std::exchange(timer_, 0));
    for (auto& q : std::exchange(spares_, {})) discard(std::move(q));
}

void queue_pair_stock::discard(initial_queue_pair q) {
    rdma_.return_entries(recipe_.entries);
    auto doomed = std::make_shared<initial_queue_pair>(std::move(q));
    // Nothing was ever posted on it: it needs no drain.
    env_.offload(
        blocking_work::destroy, [doomed] { doomed->destroy(); }, [this] { rdma_.resource_gone(); });
}

}  // namespace rvget::engine
