#include <utility>
#include <vector>

#include "engine/lease_key.hpp"

namespace rvget::engine {
namespace {

/// Registering and deregistering pin and unpin pages: on worker threads.
class exact_key final : public lease_key, public std::enable_shared_from_this<exact_key> {
public:
    exact_key(services& s, std::shared_ptr<const slot_memory> memory, registration r)
        : s_(s), memory_(std::move(memory)), registration_(std::move(r)) {}

    [[nodiscard]] wire::lease_mode mode() const noexcept override {
        return wire::lease_mode::exact;
    }
    [[nodiscard]] std::uint32_t remote_key() const noexcept override {
        return registration_.region->remote_key();
    }

    void revoke(unique_function<void()> proven) override {
        if (gone_) return proven();
        const bool first = proven_.empty();
        proven_.push_back(std::move(proven));
        if (!first) return;
        // The deregistration's return is the proof: what was under way is done or refused.
        s_.env.offload(
            blocking_work::destroy, [self = shared_from_this()] { self->registration_.end(); },
            [self = shared_from_this()] {
                self->gone_ = true;
                self->memory_.reset();
                self->s_.rdma.resource_gone();
                for (auto& f : std::exchange(self->proven_, {})) f();
            });
    }

private:
    services& s_;
    std::shared_ptr<const slot_memory> memory_;
    registration registration_;
    bool gone_ = false;
    std::vector<unique_function<void()>> proven_;  ///< some, while it is deregistered
};

}  // namespace

void make_exact_key(services& s, const std::shared_ptr<const slot_memory>& memory,
                    std::span<const std::byte> range, lease_key_made done) {
    using made = result<registration>;
    auto m = std::make_shared<made>(failure{device_errc::registration, "not registered"});
    s.rdma.resource_born();
    s.env.offload(
        blocking_work::make,
        [m, memory, range, &rdma = s.rdma] {
            // Registration only reads the bytes, for all that its signature can say.
            const std::span bytes(const_cast<std::byte*>(range.data()), range.size());
            *m = rdma.register_memory(bytes, fabric::access::remote_read);
        },
        [m, memory, &s, done = std::move(done)]() mutable {
            if (*m) return done(std::make_shared<exact_key>(s, memory, std::move(m->value())));
            s.rdma.resource_gone();
            done(m->error());
        });
}

}  // namespace rvget::engine
