#include <cstring>
#include <future>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <vector>

#include <prometheus/text_serializer.h>
#include <boost/system/system_error.hpp>

#include "api/answers.hpp"
#include "api/explain.hpp"
#include "api/node_impl.hpp"
#include "base/random.hpp"
#include "engine/plain_memory.hpp"
#include "engine/tls.hpp"

namespace rvget {

using namespace std::chrono_literals;

namespace {

/// Collects nothing once the node has gone.
class node_metrics final : public prometheus::Collectable {
public:
    explicit node_metrics(std::weak_ptr<node::impl> n) : node_(std::move(n)) {}
    std::vector<prometheus::MetricFamily> Collect() const override {
        const auto n = node_.lock();
        return n ? metric_families(n->snapshot_now()) : std::vector<prometheus::MetricFamily>{};
    }

private:
    std::weak_ptr<node::impl> node_;
};

}  // namespace

// ---- start and end

result<node> node::start(node_options options) {
    const auto provider = fabric::make_provider(options.mlx5);
    return impl::start(std::move(options), nullptr, provider.get());
}

result<node> node::start(node_options options, boost::asio::io_context& context) {
    const auto provider = fabric::make_provider(options.mlx5);
    return impl::start(std::move(options), &context, provider.get());
}

result<node> start_node_on(fabric::provider* provider, node_options options,
                           boost::asio::io_context* context) {
    return node::impl::start(std::move(options), context, provider);
}

result<node> node::impl::start(node_options options, boost::asio::io_context* context,
                               fabric::provider* provider) {
    if (auto valid = options.validate(); !valid) return valid.error();
    engine::runtime_options ro;
    if (options.tls.enabled()) {
        auto tls = engine::tls_context::open(options.tls);
        if (!tls) return tls.error();
        ro.tls = std::move(*tls);
    }
    auto i = std::make_shared<impl>();
    i->options = std::move(options);
    i->rdma = engine::rdma_context::open(provider, i->options);
    ro.spin = i->options.spin;
    ro.worker_threads = i->options.worker_threads;
    ro.max_accepted = i->options.max_consumers + i->options.max_handshakes;
    ro.peer_timeout = i->options.peer_timeout;
    try {
        i->runtime = context != nullptr ? std::make_shared<engine::runtime>(*context, ro)
                                        : std::make_shared<engine::runtime>(ro);
    } catch (const boost::system::system_error& e) {
        return failure{e.code(), std::string("the node cannot start: ") + e.what() +
                                     "; where descriptors are out, raise `ulimit -n`"};
    } catch (const std::system_error& e) {
        return failure{node_errc::internal, std::string("the node cannot start a thread: ") +
                                                e.what() +
                                                "; raise `ulimit -u` or the pids limit of its "
                                                "cgroup, or lower `ulimit -s`"};
    }
    // The constructor only watches and draws the id; the strand is not running anything of ours
    // yet.
    i->core = std::make_shared<engine::node_core>(i->runtime->env(), i->runtime->network(),
                                                  i->options, i->rdma);
    i->id = i->core->id();
    i->metrics_source = std::make_shared<node_metrics>(i);
    auto at = i->core->start();
    if (!at) {
        i->runtime->stop();
        i->shut_down = true;
        return at.error();
    }
    i->address = std::move(at.value());
    return node(std::move(i));
}

namespace {

/// For memory that a NIC may still touch, and what refers to it. Reachable from here, so that a
/// leak checker tells it from an oversight.
void keep_for_ever(std::shared_ptr<const void> what) {
    struct shelf {
        std::mutex mutex;
        std::vector<std::shared_ptr<const void>> kept;
    };
    static auto* const s = new shelf;
    const std::lock_guard lock(s->mutex);
    s->kept.push_back(std::move(what));
}

}  // namespace

node::impl::~impl() {
    if (!shut_down) shutdown(1s);
}

bool node::impl::shutdown(std::chrono::milliseconds deadline) {
    const std::lock_guard lock(shutdown_mutex);
    if (shut_down) return *shut_down;
    if (!core) return true;  // it never started
    stopping = true;
    deadline = bounded(deadline);
    auto quiet = std::make_shared<std::promise<bool>>();
    auto answer = quiet->get_future();
    runtime->post([this, quiet, deadline] {
        core->shutdown(runtime->env().now() + deadline,
                       [quiet](bool proven) { quiet->set_value(proven); });
    });
    // An embedder whose io_context no longer runs cannot answer: that is not proven quiet.
    const bool proven = answer.wait_for(deadline + 1s) == std::future_status::ready && answer.get();
    runtime->stop();
    if (!proven) {
        core->abandon();
        keep_for_ever(core);
        keep_for_ever(rdma);
    }
    last_statistics = count();
    last_snapshot = snapshot();
    shut_down = proven;
    return proven;
}

node::node(std::shared_ptr<impl> i) noexcept : impl_(std::move(i)) {}
node::node(node&&) noexcept = default;
node& node::operator=(node&&) noexcept = default;
node::~node() = default;

node_id node::id() const noexcept { return impl_->id; }
std::optional<endpoint_address> node::address() const { return impl_->address; }
boost::asio::any_io_executor node::get_executor() const { return impl_->runtime->executor(); }
bool node::shutdown(std::chrono::milliseconds deadline) { return impl_->shutdown(deadline); }

namespace {

lease_key_choice choice_of(wire::lease_mode m) noexcept {
    switch (m) {
        case wire::lease_mode::window:
            return lease_key_choice::window;
        case wire::lease_mode::exact:
            return lease_key_choice::exact;
        case wire::lease_mode::fence:
            break;
    }
    return lease_key_choice::fence;
}

}  // namespace

rdma_status node::rdma() const { return impl_->rdma_now(); }

result<route_explanation> node::explain(const std::string& host) const {
    return explain_route(host, [&rdma = *impl_->rdma](const route::control_path& way) {
        route::choice none;
        if (!rdma.usable()) {
            none.refusal = rdma.why_not_detail();
            return none;
        }
        auto choice = rdma.choose(way);
        if (choice) return std::move(*choice);
        none.refusal = choice.error().message();
        return none;
    });
}

rdma_status node::impl::rdma_now() const {
    const auto& r = *rdma;
    if (!r.usable()) return {.reason = r.why_not(), .detail = r.why_not_detail()};
    const auto path = r.device()->fast_path();
    return {.usable = true,
            .device = r.device()->facts().name,
            .fast_path = path.name,
            .fast_path_detail = path.detail,
            .lease_keys = choice_of(r.lease_keys()),
            .lease_keys_detail = r.lease_keys_detail()};
}

template <class F>
auto node::impl::on_strand(F f) {
    using R = decltype(f());
    auto promise = std::make_shared<std::promise<R>>();
    auto answer = promise->get_future();
    runtime->post([promise, f = std::move(f)]() mutable { promise->set_value(f()); });
    return answer;
}

namespace {

failure no_such_slot() {
    return {request_errc::not_found, "this node has no such slot: never staged, or released"};
}

/// What the strand answers; `stopped` where it no longer runs (the promise dies unanswered).
template <class R>
result<R> wait(std::future<result<R>> answer) {
    try {
        return answer.get();
    } catch (const std::future_error&) {
        return stopped();
    }
}

}  // namespace

node_statistics node::impl::count() const {
    const auto& c = core->stats();
    return {.leases_granted = c.leases_granted,
            .leases_released = c.leases_released,
            .leases_expired = c.leases_expired,
            .leases_active = c.leases_active,
            .slots = core->owner().slot_count(),
            .gets_answered = c.gets_answered,
            .gets_failed = c.gets_failed,
            .gets_rekeyed = c.gets_rekeyed,
            .bytes_copied = c.bytes_copied,
            .registered_bytes = rdma->usable() ? rdma->memory().stats().registered_bytes : 0,
            .queue_pairs_made = c.lanes_made,
            .queue_pairs_failed = c.lanes_failed,
            .spare_queue_pairs = core->spare_queue_pairs(),
            .spare_queue_pairs_used = c.spares_used};
}

node_statistics node::statistics() const {
    auto now = wait(
        impl_->on_strand([i = impl_.get()]() -> result<node_statistics> { return i->count(); }));
    if (now) return now.value();
    const std::lock_guard lock(impl_->shutdown_mutex);
    return impl_->last_statistics;
}

metrics_snapshot node::impl::snapshot() const {
    const auto& c = *core;
    return {c.stats(),
            c.connections(),
            rdma->usable() ? rdma->memory().stats() : engine::pool::statistics{},
            rdma_now(),
            core->owner().slot_count(),
            core->consumer().regions().size(),
            core->spare_queue_pairs()};
}

metrics_snapshot node::impl::snapshot_now() {
    auto now = wait(on_strand([this]() -> result<metrics_snapshot> { return snapshot(); }));
    if (now) return now.value();
    const std::lock_guard lock(shutdown_mutex);
    return last_snapshot;
}

std::string node::metrics() const {
    return prometheus::TextSerializer().Serialize(impl_->metrics_source->Collect());
}

std::shared_ptr<prometheus::Collectable> node::metrics_source() const {
    return impl_->metrics_source;
}

// ---- owner

struct staging::impl {
    engine::slot_memory memory;
    std::span<std::byte> bytes;
    node_id made_by;
};

staging::staging() = default;
staging::~staging() = default;
staging::staging(staging&&) noexcept = default;
staging& staging::operator=(staging&&) noexcept = default;

std::span<std::byte> staging::bytes() const noexcept {
    return impl_ ? impl_->bytes : std::span<std::byte>{};
}
bool staging::pinned() const noexcept { return impl_ && impl_->memory.pinned; }
reason staging::why_plain() const noexcept {
    return impl_ ? impl_->memory.why_plain : reason::zero_length;
}
const std::string& staging::why_plain_detail() const noexcept {
    static const std::string none;
    return impl_ ? impl_->memory.why_plain_detail : none;
}

result<staging> node::make_staging(std::size_t bytes, bool pinned) {
    if (impl_->stopping) return stopped();
    staging s;
    s.impl_ = std::make_shared<staging::impl>();
    s.impl_->made_by = impl_->id;
    auto& m = s.impl_->memory;
    auto& rdma = *impl_->rdma;
    if (!pinned) {
        m.why_plain = reason::plain;
    } else if (bytes == 0) {
        m.why_plain = reason::zero_length;
    } else if (!rdma.usable()) {
        m.why_plain = rdma.why_not();
        m.why_plain_detail = rdma.why_not_detail();
    } else {
        auto block = rdma.memory().obtain(bytes);
        if (block) {
            m.block = std::move(*block);
            m.remote_key = m.block.remote_key();
            m.pinned = true;
            s.impl_->bytes = m.block.bytes().first(bytes);
        } else {
            m.why_plain = block.error().why;
            m.why_plain_detail = block.error().detail;
        }
    }
    if (!m.pinned) {
        m.plain = engine::allocate_plain(bytes);
        if (m.plain.data() == nullptr)
            return failure{node_errc::out_of_memory,
                           std::to_string(bytes) + " bytes of plain memory to stage"};
        s.impl_->bytes = m.plain.bytes();
    }
    m.bytes = s.impl_->bytes;
    return s;
}

result<handle> node::stage(staging filled) {
    if (!filled.impl_) return failure{request_errc::invalid_argument, "nothing to stage"};
    if (impl_->stopping) return stopped();
    // Another one's device does not know this memory.
    if (filled.impl_->made_by != impl_->id)
        return failure{request_errc::invalid_argument,
                       "this memory was made for another node; stage it there"};
    return impl_->add_slot({filled.impl_, &filled.impl_->memory});
}

handle node::impl::add_slot(std::shared_ptr<const engine::slot_memory> memory) {
    const handle h{id, random_u64()};
    // In order with everything else on the strand: whoever learns the handle finds the slot.
    runtime->post([this, h, memory = std::move(memory)]() mutable {
        core->owner().add_slot(h.slot, std::move(memory));
    });
    return h;
}

namespace {

result<handle> stage_copy(node& n, std::span<const std::byte> bytes, bool pinned) {
    auto s = n.make_staging(bytes.size(), pinned);
    if (!s) return s.error();
    if (!bytes.empty()) std::memcpy(s.value().bytes().data(), bytes.data(), bytes.size());
    return n.stage(std::move(s.value()));
}

}  // namespace

result<handle> node::stage(std::span<const std::byte> bytes) {
    return stage_copy(*this, bytes, false);
}

result<handle> node::stage_pinned(std::span<const std::byte> bytes) {
    return stage_copy(*this, bytes, true);
}

url node::url_of(const handle& h) const {
    if (!impl_->address) throw std::logic_error("rvget: url_of() of a node that does not listen");
    return {*impl_->address, h};
}

result<slot_metadata> node::metadata(const handle& own) {
    return wait(impl_->on_strand([i = impl_.get(), own]() -> result<slot_metadata> {
        const auto* s = own.owner == i->id ? i->core->owner().find(own.slot) : nullptr;
        if (s == nullptr) return no_such_slot();
        return slot_metadata{s->memory->bytes.size(), s->references, s->leases, s->memory->pinned};
    }));
}

result<std::uint32_t> node::add_reference(const handle& own) {
    return wait(impl_->on_strand([i = impl_.get(), own]() -> result<std::uint32_t> {
        const auto n = own.owner == i->id ? i->core->owner().add_reference(own.slot) : std::nullopt;
        return n ? result<std::uint32_t>(*n) : no_such_slot();
    }));
}

result<std::uint32_t> node::release(const handle& own) {
    return wait(impl_->on_strand([i = impl_.get(), own]() -> result<std::uint32_t> {
        const auto n = own.owner == i->id ? i->core->owner().release(own.slot) : std::nullopt;
        return n ? result<std::uint32_t>(*n) : no_such_slot();
    }));
}

// ---- consumer

node::operation node::next_operation() noexcept { return impl_->next_operation++; }

time_point node::impl::deadline_of(std::optional<std::chrono::milliseconds> asked) {
    return runtime->env().now() + bounded(asked.value_or(options.default_deadline));
}

engine::transfer_request node::impl::request_for(const url& from, const get_options& o,
                                                 engine::destination_kind kind,
                                                 std::span<std::byte> into) {
    engine::transfer_request r;
    r.slot = from.handle.slot;
    r.offset = o.offset;
    r.length = o.length.value_or(wire::whole_length);
    r.policy = o.policy.value_or(options.policy);
    r.kind = kind;
    r.into = into;
    r.checksum = o.checksum;
    r.deadline = deadline_of(o.deadline);
    return r;
}

void node::impl::begin(operation op, const url& from, const get_options& o,
                       engine::destination_kind kind, std::span<std::byte> into,
                       engine::transfer::answered done) {
    const auto r = request_for(from, o, kind, into);
    runtime->post([this, from, r, op, done = std::move(done)]() mutable {
        core->consumer().get(from.address, from.handle.owner, r, std::move(done), op);
    });
}

void node::begin_get(operation o, const url& from, const get_options& options,
                     callback<get_result> done) {
    impl_->begin(o, from, options, engine::destination_kind::owned, {},
                 [once = answer_once(std::move(done))](engine::transfer_answer a) mutable {
                     once(a.error.code, {std::move(a.data), std::move(a.report)});
                 });
}

void node::begin_get_pinned(operation o, const url& from, const get_options& options,
                            callback<get_pinned_result> done) {
    impl_->begin(o, from, options, engine::destination_kind::pinned, {},
                 [once = answer_once(std::move(done))](engine::transfer_answer a) mutable {
                     once(a.error.code, {std::move(a.data), std::move(a.report)});
                 });
}

void node::begin_get_into(operation o, const url& from, std::span<std::byte> destination,
                          const get_options& options, callback<get_into_result> done) {
    impl_->begin(o, from, options, engine::destination_kind::into, destination,
                 [once = answer_once(std::move(done))](engine::transfer_answer a) mutable {
                     once(a.error.code, {a.bytes, std::move(a.report), a.quiet});
                 });
}

template <class Reply, class R>
void node::impl::ask(operation op, const url& of, const call_options& o, wire::body request,
                     R (*answer_of)(const Reply&), told<R> done) {
    const auto deadline = deadline_of(o.deadline);
    runtime->post([this, op, of, deadline, request = std::move(request), answer_of,
                   done = std::move(done)]() mutable {
        core->consumer().ask(
            of.address, of.handle.owner, std::move(request), deadline,
            [done = std::move(done), of, answer_of](const failure& f,
                                                    const wire::body* body) mutable {
                if (f.code) return done(f, {});
                const auto* reply = std::get_if<Reply>(body);
                if (reply == nullptr)
                    return done(
                        {connection_errc::protocol,
                         of.address.to_string() + " answered a request by another kind of frame"},
                        {});
                if (!reply->found)
                    return done({request_errc::not_found,
                                 "the owner at " + of.address.to_string() +
                                     " has no such slot, or no reference of this node's to it: it "
                                     "was never staged or has been released"},
                                {});
                done({}, answer_of(*reply));
            },
            op);
    });
}

void node::impl::ask_metadata(operation op, const url& of, const call_options& o,
                              told<slot_metadata> done) {
    ask<wire::metadata_reply, slot_metadata>(
        op, of, o, wire::metadata_request{of.handle.slot},
        [](const wire::metadata_reply& m) {
            return slot_metadata{m.bytes, m.references, m.leases, m.pinned};
        },
        std::move(done));
}

void node::impl::ask_reference(operation op, const url& of, const call_options& o,
                               wire::reference_change change, told<std::uint32_t> done) {
    ask<wire::reference_reply, std::uint32_t>(
        op, of, o, wire::reference{of.handle.slot, change},
        [](const wire::reference_reply& r) { return r.references; }, std::move(done));
}

void node::impl::ask_owner(operation op, const endpoint_address& to, const call_options& o,
                           told<node_id> done) {
    const auto deadline = deadline_of(o.deadline);
    runtime->post([this, op, to, deadline, done = std::move(done)]() mutable {
        core->consumer().connect(
            to, deadline,
            [done = std::move(done)](const failure& f, node_id owner) mutable { done(f, owner); },
            op);
    });
}

void node::impl::ask_warm(operation op, const endpoint_address& to, std::optional<node_id> owner,
                          const call_options& o, told<warm_result> done) {
    const auto deadline = deadline_of(o.deadline);
    runtime->post([this, op, to, owner, deadline, done = std::move(done)]() mutable {
        core->consumer().warm(to, owner, deadline, std::move(done), op);
    });
}

namespace {

/// Makes of a callback one that takes the sentence too, which an asynchronous form has no room for.
template <class R>
auto code_only(detail::unique_function<void(error_code, R)> done) {
    return [once = answer_once(std::move(done))](const failure& f, R r) mutable {
        once(f.code, std::move(r));
    };
}

}  // namespace

void node::begin_metadata(operation o, const url& of, const call_options& options,
                          callback<slot_metadata> done) {
    impl_->ask_metadata(o, of, options, code_only(std::move(done)));
}

void node::begin_add_reference(operation o, const url& of, const call_options& options,
                               callback<std::uint32_t> done) {
    impl_->ask_reference(o, of, options, wire::reference_change::add, code_only(std::move(done)));
}

void node::begin_release(operation o, const url& of, const call_options& options,
                         callback<std::uint32_t> done) {
    impl_->ask_reference(o, of, options, wire::reference_change::release,
                         code_only(std::move(done)));
}

void node::begin_connect(operation o, const endpoint_address& to, const call_options& options,
                         callback<node_id> done) {
    impl_->ask_owner(o, to, options, code_only(std::move(done)));
}

void node::begin_warm(operation o, const endpoint_address& to, std::optional<node_id> owner,
                      const call_options& options, callback<warm_result> done) {
    impl_->ask_warm(o, to, owner, options, code_only(std::move(done)));
}

void node::cancel(const std::weak_ptr<impl>& weak, operation o) {
    const auto i = weak.lock();
    if (i) i->runtime->post([i = i.get(), o] { i->core->consumer().cancel(o); });
}

namespace {

/// Runs `begin` with a callback that takes a failure and a result, and waits for its answer.
template <class R, class Begin>
result<R> blocking(Begin begin) {
    auto promise = std::make_shared<std::promise<result<R>>>();
    auto answer = promise->get_future();
    begin([promise = std::move(promise)](const failure& f, R r) {
        promise->set_value(f.code ? result<R>(f) : result<R>(std::move(r)));
    });
    return wait(std::move(answer));
}

/// Makes of such a callback one for the asynchronous gets, whose sentence is in the report.
template <class Done>
auto with_report(Done done) {
    return [done = std::move(done)](error_code ec, auto r) mutable {
        failure f(ec, ec ? std::move(r.report.detail) : std::string());
        done(f, std::move(r));
    };
}

}  // namespace

result<get_result> node::get(const url& from, const get_options& o) {
    return blocking<get_result>(
        [&](auto done) { begin_get(next_operation(), from, o, with_report(std::move(done))); });
}

result<get_pinned_result> node::get_pinned(const url& from, const get_options& o) {
    return blocking<get_pinned_result>([&](auto done) {
        begin_get_pinned(next_operation(), from, o, with_report(std::move(done)));
    });
}

result<get_into_result> node::get_into(const url& from, std::span<std::byte> destination,
                                       const get_options& o, quiet* still_written) {
    return blocking<get_into_result>([&](auto done) {
        begin_get_into(next_operation(), from, destination, o,
                       with_report([still_written, done = std::move(done)](
                                       const failure& f, get_into_result r) mutable {
                           if (still_written != nullptr) *still_written = r.quiet;
                           done(f, std::move(r));
                       }));
    });
}

result<slot_metadata> node::metadata(const url& of, const call_options& o) {
    return blocking<slot_metadata>(
        [&](auto done) { impl_->ask_metadata(next_operation(), of, o, std::move(done)); });
}

result<std::uint32_t> node::add_reference(const url& of, const call_options& o) {
    return blocking<std::uint32_t>([&](auto done) {
        impl_->ask_reference(next_operation(), of, o, wire::reference_change::add, std::move(done));
    });
}

result<std::uint32_t> node::release(const url& of, const call_options& o) {
    return blocking<std::uint32_t>([&](auto done) {
        impl_->ask_reference(next_operation(), of, o, wire::reference_change::release,
                             std::move(done));
    });
}

result<node_id> node::connect(const endpoint_address& to, const call_options& o) {
    return blocking<node_id>(
        [&](auto done) { impl_->ask_owner(next_operation(), to, o, std::move(done)); });
}

result<warm_result> node::warm(const endpoint_address& to, const call_options& o) {
    return blocking<warm_result>(
        [&](auto done) { impl_->ask_warm(next_operation(), to, {}, o, std::move(done)); });
}

result<warm_result> node::warm(const url& of, const call_options& o) {
    return blocking<warm_result>([&](auto done) {
        impl_->ask_warm(next_operation(), of.address, of.handle.owner, o, std::move(done));
    });
}

}  // namespace rvget
