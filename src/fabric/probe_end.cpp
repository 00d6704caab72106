#include "fabric/probe_end.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <thread>

#include <poll.h>

namespace rvget::fabric {

namespace {

using clock = std::chrono::steady_clock;
constexpr std::uint64_t drain_marker = ~std::uint64_t{0};

/// Waits for a completion, for an event where the device has them.
result<std::optional<completion>> next(completion_queue& queue, clock::time_point until) {
    std::array<completion, 1> one{};
    bool armed = false;
    for (;;) {
        const auto got = queue.poll(one);
        if (!got) return got.error();
        if (*got == 1) return std::optional(one[0]);
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(until - clock::now());
        if (left.count() <= 0) return std::optional<completion>();
        if (!armed) {
            if (auto done = queue.arm(); !done) return done.error();
            armed = true;  // once more before sleeping: what came before raises no event
            continue;
        }
        pollfd readable{queue.event_descriptor(), POLLIN, 0};
        // Never long: rxe may lose an event together with a queue pair in error.
        ::poll(&readable, 1, static_cast<int>(std::min<long>(left.count(), 20)));
        queue.consume_events();
        armed = false;
    }
}

std::byte pattern_byte(std::uint32_t seed, std::size_t offset) noexcept {
    const auto mixed = (static_cast<std::uint32_t>(offset) + seed * 0x9e37'79b9U) * 0x85eb'ca6bU;
    return static_cast<std::byte>(mixed >> 24);
}

}  // namespace

result<std::unique_ptr<probe_end>> probe_end::make(device& device, std::uint8_t port,
                                                   std::size_t bytes, access rights) {
    std::unique_ptr<probe_end> made(new probe_end);
    made->served_ = std::make_unique<std::byte[]>(bytes);
    made->sink_ = std::make_unique<std::byte[]>(bytes);
    made->bytes_ = bytes;
    made->drained_by_destruction_ = device.quirks().drains_by_destruction;
    auto served = device.register_memory(made->served(), rights);
    if (!served) return served.error();
    // The response of an iWARP READ is a remote write to who asked for it.
    const auto sink_rights = device.facts().is_iwarp() ? access::local_write | access::remote_write
                                                       : access::local_write;
    auto sink = device.register_memory({made->sink_.get(), bytes}, sink_rights);
    if (!sink) return sink.error();
    auto completions = device.create_completion_queue(16);
    if (!completions) return completions.error();
    auto pair = device.create_queue_pair(
        *completions, port, {.send_requests = 8, .binds = has(rights, access::window_bind)});
    if (!pair) return pair.error();
    made->served_region_ = std::move(*served);
    made->sink_region_ = std::move(*sink);
    made->completions_ = std::move(*completions);
    made->queue_pair_ = std::move(*pair);
    if (auto init = made->queue_pair_->to_init(access::remote_read); !init) {
        return init.error();
    }
    return made;
}

bool probe_end::drain() {
    if (outstanding_ == 0 || drained_by_destruction_) return true;
    if (!queue_pair_->to_error() || !queue_pair_->post_marker(drain_marker)) return false;
    const auto until = clock::now() + std::chrono::seconds(2);
    for (;;) {
        const auto got = next(*completions_, until);
        if (!got || !*got) return false;
        if ((*got)->id == drain_marker) return true;
    }
}

probe_end::~probe_end() {
    if (queue_pair_ && !drain()) {
        // The NIC may still write or read: neither memory nor registration may go.
        static_cast<void>(sink_.release());
        static_cast<void>(sink_region_.release());
        static_cast<void>(served_.release());
        static_cast<void>(served_region_.release());
        static_cast<void>(window_.release());
        static_cast<void>(queue_pair_.release());
    }
    window_.reset();  // first: rxe blocks for 50 s in destroying a queue pair with a window bound
    queue_pair_.reset();
}

std::uint64_t probe_end::address() const { return std::bit_cast<std::uintptr_t>(served_.get()); }

void probe_end::fill(std::uint32_t seed) {
    for (std::size_t i = 0; i < bytes_; ++i) served_[i] = pattern_byte(seed, i);
}

result<void> probe_end::connect(const receive_parameters& receive, std::uint32_t starting_psn,
                                const retry_parameters& retry) {
    if (auto done = queue_pair_->to_ready_to_receive(receive); !done) return done;
    return queue_pair_->to_ready_to_send(
        {.starting_psn = starting_psn, .initiator_depth = 1, .retry = retry});
}

result<std::optional<completion>> probe_end::await(std::uint64_t id, clock::time_point until) {
    for (;;) {
        auto got = next(*completions_, until);
        if (!got || !*got) return got;
        if ((*got)->id != id) continue;
        --outstanding_;
        return got;
    }
}

result<void> probe_end::succeeds(std::uint64_t id, const char* step,
                                 std::chrono::milliseconds limit) {
    ++outstanding_;
    const auto got = await(id, clock::now() + limit);
    if (!got) return got.error();
    if (!*got)
        return failure{device_errc::query_failed, std::string(step) + ": no completion in time"};
    if ((*got)->status == completion_status::success) return {};
    return failure{device_errc::query_failed, std::string(step) + " ended with \"" +
                                                  std::string(to_string((*got)->status)) + "\""};
}

result<std::uint32_t> probe_end::bind_window(device& device, std::chrono::milliseconds limit) {
    auto window = device.allocate_window();
    if (!window) return window.error();
    window_ = std::move(*window);
    const auto id = next_id_++;
    if (auto posted = queue_pair_->post_bind(id, *window_, *served_region_, served(),
                                             access::remote_read, true);
        !posted)
        return posted.error();
    if (auto bound = succeeds(id, "binding a memory window", limit); !bound) return bound.error();
    return window_->remote_key();
}

result<void> probe_end::invalidate_window(std::chrono::milliseconds limit) {
    const auto id = next_id_++;
    if (auto posted = queue_pair_->post_invalidate(id, *window_, true); !posted) return posted;
    return succeeds(id, "invalidating a memory window", limit);
}

bool probe_end::raises_event(std::uint64_t address, std::uint32_t key,
                             std::chrono::milliseconds limit) {
    completions_->consume_events();
    const read_request request{.id = next_id_++,
                               .local = sink_.get(),
                               .local_key = sink_region_->local_key(),
                               .remote_address = address,
                               .remote_key = key,
                               .bytes = 1};
    if (!completions_->arm() || !queue_pair_->post_reads({&request, 1})) return false;
    ++outstanding_;
    pollfd readable{completions_->event_descriptor(), POLLIN, 0};
    const bool raised = ::poll(&readable, 1, static_cast<int>(limit.count())) == 1;
    completions_->consume_events();
    const auto got = next(*completions_, clock::now() + limit);
    if (!got || !*got) return false;
    --outstanding_;
    return raised && (*got)->status == completion_status::success;
}

probe_end::outcome probe_end::read(std::uint64_t address, std::uint32_t key, std::uint32_t bytes,
                                   std::uint32_t seed, std::chrono::milliseconds limit) {
    outcome o;
    // The complement of what must come: a byte that was not written is seen as wrong.
    for (std::size_t i = 0; i < bytes; ++i) sink_[i] = ~pattern_byte(seed, i);
    const read_request request{.id = next_id_++,
                               .local = sink_.get(),
                               .local_key = sink_region_->local_key(),
                               .remote_address = address,
                               .remote_key = key,
                               .bytes = bytes};
    const auto begun = clock::now();
    if (!queue_pair_->post_reads({&request, 1})) {
        o.posted = false;
        o.status = completion_status::other;
        return o;
    }
    ++outstanding_;
    if (const auto got = await(request.id, begun + limit); got && *got) {
        o.status = (*got)->status;
        o.vendor_error = (*got)->vendor_error;
    }
    o.took = std::chrono::duration_cast<std::chrono::microseconds>(clock::now() - begun);
    // Bytes count where the completion is here, or the queue pair failed: nobody writes any more.
    for (std::size_t i = 0; o.status && i < bytes; ++i) {
        if (sink_[i] != ~pattern_byte(seed, i)) ++o.touched;
        if (sink_[i] == pattern_byte(seed, i)) {
            ++o.written;
        } else if (o.wrong_bytes++ == 0) {
            o.first_wrong = i;
        }
    }
    return o;
}

}  // namespace rvget::fabric
