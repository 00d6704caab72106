#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <system_error>
#include <utility>

#include "api/answers.hpp"
#include "api/node_impl.hpp"
#include "base/log.hpp"
#include "engine/quiet_state.hpp"

namespace rvget {

// ---- unregistration

class unregistration::state : public quiet::state {
public:
    std::atomic<bool> timed_out{false};

    void keep(buffer b) { kept_ = std::move(b); }
    buffer take() {
        const std::lock_guard lock(mutex_);
        return resolved() ? std::exchange(kept_, {}) : buffer{};
    }

private:
    std::mutex mutex_;
    buffer kept_;  ///< what register_owned took
};

unregistration::unregistration(std::shared_ptr<state> s) noexcept
    : quiet(s), state_(std::move(s)) {}

std::optional<unregister_outcome> unregistration::outcome() const noexcept {
    if (!resolved()) return std::nullopt;
    return state_ && state_->timed_out ? unregister_outcome::timed_out
                                       : unregister_outcome::drained;
}

buffer unregistration::take_buffer() const { return state_ ? state_->take() : buffer{}; }

// ---- region

struct region::impl {
    std::weak_ptr<node::impl> home;
    std::shared_ptr<fabric::memory_region> memory;  ///< none once it is unregistered
    std::span<std::byte> bytes;
    std::shared_ptr<unregistration::state> over = std::make_shared<unregistration::state>();
};

region::region() = default;
region::region(region&&) noexcept = default;

region& region::operator=(region&& other) noexcept {
    if (this != &other) {
        const region dropped(std::move(*this));
        impl_ = std::move(other.impl_);
    }
    return *this;
}

region::~region() {
    if (impl_ && impl_->memory) {
        log(log_level::warning,
            "region=dropped action=unregister cause=\"not unregistered before\"");
        static_cast<void>(unregister());
    }
}

std::span<std::byte> region::bytes() const noexcept {
    return impl_ ? impl_->bytes : std::span<std::byte>{};
}

unregistration region::unregister(std::optional<std::chrono::milliseconds> timeout) {
    if (!impl_) return {};
    auto memory = std::exchange(impl_->memory, nullptr);
    if (const auto n = impl_->home.lock(); n && memory) {
        auto& core = *n->core;
        core.consumer().regions().remove(*memory);  // at once; the rest on the strand
        const auto deadline = n->deadline_of(timeout);
        n->runtime->post(
            [&core, deadline, over = std::weak_ptr(impl_->over), memory = std::move(memory)] {
                core.unregister(memory, deadline, [over] {
                    if (const auto o = over.lock()) o->timed_out = true;
                });
            });
    }
    // What still uses it holds it; the last one deregisters and resolves this.
    return unregistration(impl_->over);
}

// ---- registering

namespace {

/// The end of a registration, wherever it takes place: deregistered, then told.
struct ending {
    engine::registration registered;
    detail::unique_function<void()> gone;

    ending(engine::registration r, detail::unique_function<void()> g)
        : registered(std::move(r)), gone(std::move(g)) {}
    ending(const ending&) = delete;
    ending& operator=(const ending&) = delete;
    ~ending() {
        try {
            finish();
        } catch (const std::exception& e) {
            log(log_level::error, "event=handler_failed cause=" + quoted(e.what()));
        }
    }
    void finish() {
        registered.end();
        if (auto f = std::exchange(gone, nullptr)) f();
    }
};

/// The pages of a dma-buf as this process sees them.
result<std::shared_ptr<void>> map_dmabuf(int descriptor, std::uint64_t offset, std::size_t length) {
    void* const at = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor,
                            static_cast<off_t>(offset));
    if (at != MAP_FAILED)
        return std::shared_ptr<void>(at, [length](void* p) { ::munmap(p, length); });
    const int error = errno;
    // What its exporter does not map cannot be served in chunks, which every slot must be able to.
    const bool unmappable = error == ENODEV || error == ENOTSUP;
    return failure{unmappable ? request_errc::not_supported : request_errc::invalid_argument,
                   "mapping " + std::to_string(length) + " bytes at " + std::to_string(offset) +
                       " of the dma-buf: " + std::generic_category().message(error) +
                       (unmappable ? "; copy into registered memory"
                                   : "; the descriptor is one that can be read and written, the "
                                     "offset a multiple of the page size")};
}

}  // namespace

std::shared_ptr<fabric::memory_region> node::impl::share(engine::registration registered,
                                                         detail::unique_function<void()> gone) {
    auto* const raw = registered.region.get();
    auto end = std::make_shared<ending>(std::move(registered), std::move(gone));
    return {raw,
            [home = std::weak_ptr(runtime), end = std::move(end)](fabric::memory_region*) mutable {
                const auto last = std::exchange(end, nullptr);
                if (const auto r = home.lock())
                    r->post([last, &env = r->env()] {
                        env.offload(
                            engine::blocking_work::destroy, [last] { last->registered.end(); },
                            [last] { last->finish(); });
                    });
            }};
}

result<void> node::impl::can_register(std::size_t bytes) const {
    if (bytes == 0) return failure{request_errc::invalid_argument, "an empty region"};
    if (stopping) return stopped();
    if (!rdma->usable())
        return failure{device_errc::none,
                       "no RDMA device to register with: " + rdma->why_not_detail()};
    return {};
}

region node::impl::make_region(engine::registration registered, std::shared_ptr<void> keep) {
    region out;
    out.impl_ = std::make_unique<region::impl>();
    out.impl_->home = weak_from_this();
    out.impl_->bytes = registered.region->bytes();
    out.impl_->memory =
        share(std::move(registered), [over = out.impl_->over, keep = std::move(keep)]() mutable {
            keep.reset();
            over->resolve();
        });
    core->consumer().regions().add(out.impl_->memory);
    return out;
}

result<region> node::register_region(std::span<std::byte> memory) {
    if (auto can = impl_->can_register(memory.size()); !can) return can.error();
    auto& rdma = *impl_->rdma;
    auto registered = rdma.register_memory(memory, rdma.local_rights());
    if (!registered) return registered.error();
    return impl_->make_region(std::move(registered.value()), nullptr);
}

result<region> node::register_owned(buffer&& memory) {
    auto made = register_region(memory.bytes());
    if (made) made->impl_->over->keep(std::move(memory));
    return made;
}

result<region> node::register_dmabuf(int descriptor, std::uint64_t offset, std::size_t length) {
    if (auto can = impl_->can_register(length); !can) return can.error();
    auto mapped = map_dmabuf(descriptor, offset, length);
    if (!mapped) return mapped.error();
    const std::span bytes(static_cast<std::byte*>(mapped->get()), length);
    auto& rdma = *impl_->rdma;
    auto registered = rdma.register_dmabuf(descriptor, offset, bytes, rdma.local_rights());
    if (!registered) return registered.error();
    return impl_->make_region(std::move(registered.value()), std::move(mapped.value()));
}

// ---- staging

result<handle> node::stage_region(const region& in, std::size_t offset, std::size_t length) {
    const auto* const r = in.impl_.get();
    if (r == nullptr || !r->memory || r->home.lock() != impl_)
        return failure{request_errc::invalid_argument,
                       "not a region of this node, or one that has been unregistered"};
    if (offset > r->bytes.size() || length > r->bytes.size() - offset)
        return failure{request_errc::invalid_argument,
                       std::to_string(length) + " bytes at " + std::to_string(offset) +
                           " do not lie in a region of " + std::to_string(r->bytes.size())};
    if (impl_->stopping) return stopped();
    auto m = std::make_shared<engine::slot_memory>();
    if (length == 0) {
        m->why_plain = reason::zero_length;
        return impl_->add_slot(std::move(m));
    }
    const auto bytes = r->bytes.subspan(offset, length);
    if (impl_->core->consumer().regions().is_taken(bytes))
        return failure{request_errc::buffer_busy,
                       "part of these bytes is still being filled by a get; await its answer, or "
                       "its quiet after a cancel or deadline"};
    auto& rdma = *impl_->rdma;
    if (!rdma.usable()) return failure{device_errc::none, rdma.why_not_detail()};
    m->region = r->memory;
    m->bytes = bytes;
    m->pinned = true;
    if (impl_->options.listen && rdma.lease_keys() == wire::lease_mode::fence) {
        auto opened = rdma.register_memory(bytes, fabric::access::remote_read);
        if (!opened) return opened.error();
        m->remote_key = opened.value().region->remote_key();
        // The region is not back before this is gone too.
        m->shared_key = impl_->share(std::move(opened.value()), [keep = r->memory] {});
    }
    return impl_->add_slot(std::move(m));
}

}  // namespace rvget
