#include "fabric/fault/fault_provider.hpp"

#include <map>
#include <mutex>
#include <utility>

namespace rvget::fabric::fault {
namespace {

/// Counts the call, runs its hooks around it, and makes it fail, or its queue pair `on` break,
/// where the plan says so.
template <class Result, class Call>
Result run(plan& p, call kind, Call&& real, queue_pair* on = nullptr) {
    auto script = p.enter(kind);
    for (const auto& f : script.before) f();
    if (script.breaks && on != nullptr) (void)on->to_error();
    Result r = script.error ? Result(std::move(*script.error)) : Result(real());
    for (const auto& f : script.after) f();
    return r;
}

class fault_completion_queue final : public completion_queue {
public:
    fault_completion_queue(std::shared_ptr<completion_queue> beneath, std::shared_ptr<plan> p)
        : beneath_(std::move(beneath)), plan_(std::move(p)) {}

    result<std::size_t> poll(std::span<completion> out) override {
        if (lost_) return *lost_;
        auto polled = run<result<std::size_t>>(*plan_, call::poll, [&] { return take(out); });
        if (!polled) lost_ = polled.error();
        return polled;
    }
    result<void> arm() override {
        return run<result<void>>(*plan_, call::arm, [&] { return beneath_->arm(); });
    }
    [[nodiscard]] int event_descriptor() const noexcept override {
        return beneath_->event_descriptor();
    }
    void consume_events() noexcept override { beneath_->consume_events(); }

    [[nodiscard]] const std::shared_ptr<completion_queue>& beneath() const noexcept {
        return beneath_;
    }

    /// The completion of READ `id` of `q` is to be `status`; `q` stays alive until forget().
    void doom(queue_pair& q, std::uint64_t id, completion_status status) {
        const std::lock_guard lock(mutex_);
        doomed_.try_emplace(q.number(), doom_record{&q, id, status, false});
    }
    [[nodiscard]] bool is_doomed(std::uint32_t number) const {
        const std::lock_guard lock(mutex_);
        return doomed_.contains(number);
    }
    void forget(std::uint32_t number) {
        const std::lock_guard lock(mutex_);
        doomed_.erase(number);
    }

private:
    struct doom_record {
        queue_pair* real = nullptr;
        std::uint64_t id = 0;
        completion_status status = completion_status::success;
        bool failed = false;
    };

    result<std::size_t> take(std::span<completion> out) {
        auto polled = beneath_->poll(out);
        if (!polled) return polled;
        const std::lock_guard lock(mutex_);
        if (doomed_.empty()) return polled;
        for (auto& c : out.first(polled.value())) {
            const auto at = doomed_.find(c.queue_pair_number);
            if (at != doomed_.end()) spoil(c, at->second);
        }
        return polled;
    }

    /// What a NIC would have reported: the READ's own status, then flushes of the send side.
    static void spoil(completion& c, doom_record& d) {
        if (c.status != completion_status::success || c.kind == operation::receive) return;
        if (d.failed) {
            c.status = completion_status::flushed;
        } else if (c.kind == operation::read && c.id == d.id) {
            d.failed = true;
            c.status = d.status;
            if (d.status != completion_status::success) (void)d.real->to_error();
        }
    }

    std::shared_ptr<completion_queue> beneath_;
    std::shared_ptr<plan> plan_;
    std::optional<failure> lost_;  // polled from one thread at a time
    mutable std::mutex mutex_;     // queue pairs are destroyed on other threads
    std::map<std::uint32_t, doom_record> doomed_;
};

class fault_queue_pair final : public queue_pair {
public:
    fault_queue_pair(std::unique_ptr<queue_pair> beneath,
                     std::shared_ptr<fault_completion_queue> completions, std::shared_ptr<plan> p)
        : completions_(std::move(completions)), plan_(std::move(p)), beneath_(std::move(beneath)) {}

    ~fault_queue_pair() override {
        const auto script = plan_->enter(call::destroy_queue_pair);
        for (const auto& f : script.before) f();
        completions_->forget(beneath_->number());
        beneath_.reset();
        for (const auto& f : script.after) f();
    }

    [[nodiscard]] std::uint32_t number() const noexcept override { return beneath_->number(); }
    result<void> to_init(access remote_rights) override {
        return call_void(call::to_init, [&] { return beneath_->to_init(remote_rights); });
    }
    result<void> to_ready_to_receive(const receive_parameters& p) override {
        return call_void(call::to_ready_to_receive,
                         [&] { return beneath_->to_ready_to_receive(p); });
    }
    result<void> to_ready_to_send(const send_parameters& p) override {
        return call_void(call::to_ready_to_send, [&] { return beneath_->to_ready_to_send(p); });
    }
    result<void> to_error() override {
        return call_void(call::to_error, [&] { return beneath_->to_error(); });
    }
    [[nodiscard]] result<queue_pair_state> state() const override {
        return run<result<queue_pair_state>>(*plan_, call::query_state,
                                             [&] { return beneath_->state(); });
    }

    result<void> post_reads(std::span<const read_request> requests) override {
        return call_void(call::post_reads, [&] { return post_counted(requests); });
    }
    result<void> post_send(const send_request& request) override {
        return call_void(call::post_send, [&] {
            auto r = request;
            r.signalled = signalled(r.signalled);
            return beneath_->post_send(r);
        });
    }
    result<void> post_receive(const receive_request& request) override {
        return call_void(call::post_receive, [&] { return beneath_->post_receive(request); });
    }
    result<void> post_marker(std::uint64_t id) override {
        return call_void(call::post_marker, [&] { return beneath_->post_marker(id); });
    }
    result<void> post_bind(std::uint64_t id, memory_window& window, const memory_region& region,
                           std::span<const std::byte> range, access rights,
                           bool is_signalled) override {
        return call_void(call::post_bind, [&] {
            return beneath_->post_bind(id, window, region, range, rights, signalled(is_signalled));
        });
    }
    result<void> post_invalidate(std::uint64_t id, memory_window& window,
                                 bool is_signalled) override {
        return call_void(call::post_invalidate, [&] {
            return beneath_->post_invalidate(id, window, signalled(is_signalled));
        });
    }

private:
    template <class Call>
    result<void> call_void(call kind, Call&& real) {
        return run<result<void>>(*plan_, kind, std::forward<Call>(real), beneath_.get());
    }

    /// Behind a READ that is to fail every request must be seen to be flushed.
    [[nodiscard]] bool signalled(bool asked) const {
        return asked || completions_->is_doomed(beneath_->number());
    }

    result<void> post_counted(std::span<const read_request> requests) {
        const auto number = beneath_->number();
        const bool already = completions_->is_doomed(number);
        const auto doomed = plan_->count_reads(requests.size());
        if (!already && !doomed) return beneath_->post_reads(requests);
        std::vector<read_request> visible(requests.begin(), requests.end());
        if (doomed && !doomed->status) {
            visible[doomed->index].remote_key ^= 0x5a5a5a00U;
            return beneath_->post_reads(visible);
        }
        if (doomed) completions_->doom(*beneath_, requests[doomed->index].id, *doomed->status);
        for (std::size_t i = already ? 0 : doomed->index; i < visible.size(); ++i) {
            visible[i].signalled = true;
        }
        auto posted = beneath_->post_reads(visible);
        if (!posted && !already) completions_->forget(number);
        return posted;
    }

    std::shared_ptr<fault_completion_queue> completions_;
    std::shared_ptr<plan> plan_;
    std::unique_ptr<queue_pair> beneath_;
};

class fault_device final : public device {
public:
    fault_device(std::shared_ptr<device> beneath, std::shared_ptr<plan> p)
        : beneath_(std::move(beneath)), plan_(std::move(p)) {}

    [[nodiscard]] const route::device_facts& facts() const noexcept override {
        return beneath_->facts();
    }
    [[nodiscard]] const fabric::quirks& quirks() const noexcept override {
        return beneath_->quirks();
    }
    [[nodiscard]] fabric::fast_path fast_path() const override { return beneath_->fast_path(); }
    result<void> refresh() override {
        return run<result<void>>(*plan_, call::refresh, [&] { return beneath_->refresh(); });
    }
    result<std::unique_ptr<memory_region>> register_memory(std::span<std::byte> memory,
                                                           access rights) override {
        return run<result<std::unique_ptr<memory_region>>>(*plan_, call::register_memory, [&] {
            return beneath_->register_memory(memory, rights);
        });
    }
    result<std::unique_ptr<memory_region>> register_dmabuf(int descriptor, std::uint64_t offset,
                                                           std::span<std::byte> mapped,
                                                           access rights) override {
        return run<result<std::unique_ptr<memory_region>>>(*plan_, call::register_memory, [&] {
            return beneath_->register_dmabuf(descriptor, offset, mapped, rights);
        });
    }
    result<std::shared_ptr<completion_queue>> create_completion_queue(
        std::uint32_t entries) override {
        using made = result<std::shared_ptr<completion_queue>>;
        return run<made>(*plan_, call::create_completion_queue, [&]() -> made {
            auto real = beneath_->create_completion_queue(entries);
            if (!real) return real;
            return std::shared_ptr<completion_queue>(
                std::make_shared<fault_completion_queue>(std::move(*real), plan_));
        });
    }
    result<std::unique_ptr<queue_pair>> create_queue_pair(
        std::shared_ptr<completion_queue> completions, std::uint8_t port,
        const queue_pair_options& options) override {
        using made = result<std::unique_ptr<queue_pair>>;
        return run<made>(*plan_, call::create_queue_pair, [&]() -> made {
            auto decorated =
                std::dynamic_pointer_cast<fault_completion_queue>(std::move(completions));
            if (decorated == nullptr) {
                return failure(device_errc::resource,
                               "fault: create queue pair: the completion queue is not of this "
                               "decorated device");
            }
            auto real = beneath_->create_queue_pair(decorated->beneath(), port, options);
            if (!real) return real;
            return std::unique_ptr<queue_pair>(
                std::make_unique<fault_queue_pair>(std::move(*real), std::move(decorated), plan_));
        });
    }
    result<std::unique_ptr<memory_window>> allocate_window() override {
        return run<result<std::unique_ptr<memory_window>>>(
            *plan_, call::allocate_window, [&] { return beneath_->allocate_window(); });
    }
    result<std::unique_ptr<connection_listener>> listen(const std::string& address) override {
        return run<result<std::unique_ptr<connection_listener>>>(
            *plan_, call::listen, [&] { return beneath_->listen(address); });
    }
    result<std::unique_ptr<connection>> connect(const connection_target& target,
                                                const connection_terms& terms,
                                                std::chrono::milliseconds limit) override {
        return run<result<std::unique_ptr<connection>>>(
            *plan_, call::connect, [&] { return beneath_->connect(target, terms, limit); });
    }
    [[nodiscard]] int event_descriptor() const noexcept override {
        return beneath_->event_descriptor();
    }
    std::optional<async_event> next_event() override { return beneath_->next_event(); }

private:
    std::shared_ptr<device> beneath_;
    std::shared_ptr<plan> plan_;
};

class fault_provider final : public provider {
public:
    fault_provider(std::unique_ptr<provider> beneath, std::shared_ptr<plan> p)
        : beneath_(std::move(beneath)), plan_(std::move(p)) {}

    [[nodiscard]] std::string_view name() const noexcept override { return beneath_->name(); }
    [[nodiscard]] result<std::vector<route::device_facts>> list() override {
        return run<result<std::vector<route::device_facts>>>(*plan_, call::list,
                                                             [&] { return beneath_->list(); });
    }
    result<std::shared_ptr<device>> open(std::string_view device_name) override {
        using opened = result<std::shared_ptr<device>>;
        return run<opened>(*plan_, call::open, [&]() -> opened {
            auto real = beneath_->open(device_name);
            if (!real) return real;
            return std::shared_ptr<device>(std::make_shared<fault_device>(std::move(*real), plan_));
        });
    }

private:
    std::unique_ptr<provider> beneath_;
    std::shared_ptr<plan> plan_;
};

}  // namespace

std::unique_ptr<provider> make_fault_provider(std::unique_ptr<provider> beneath,
                                              std::shared_ptr<plan> plan) {
    return std::make_unique<fault_provider>(std::move(beneath), std::move(plan));
}

}  // namespace rvget::fabric::fault
