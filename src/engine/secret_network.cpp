#include "engine/secret_network.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "engine/secret_handshake.hpp"

namespace rvget::engine {
namespace {

using role = secret_handshake::role;

/// What all links of one network share.
struct secret_context {
    environment& env;
    const node_id self;
    const std::string secret;

    [[nodiscard]] secret_handshake handshake(role as) const {
        byte_writer fresh(sizeof(wire::random_bytes));
        while (fresh.size() < sizeof(wire::random_bytes)) fresh.u64(env.random());
        const auto bytes = std::move(fresh).take();
        wire::random_bytes random{};
        std::ranges::copy(bytes, random.begin());
        return {as, self, secret, random};
    }
};

class secret_link final : public control_link,
                          public control_link_events,
                          public std::enable_shared_from_this<secret_link> {
public:
    secret_link(const secret_context& context, role as, std::shared_ptr<control_link> inner)
        : handshake_(context.handshake(as)), inner_(std::move(inner)) {}

    // control_link
    void start(std::shared_ptr<control_link_events> events) override {
        events_ = std::move(events);
        inner_->start(shared_from_this());
        if (const auto first = handshake_.begin()) inner_->send(wire::encode(*first));
    }
    void send(std::vector<std::byte> head, frame_payload payload) override {
        if (proven())
            inner_->send(std::move(head), std::move(payload));
        else
            waiting_.emplace_back(std::move(head), std::move(payload));
    }
    void forget_destination(std::span<std::byte> destination) override {
        inner_->forget_destination(destination);
    }
    std::size_t queued_bytes() const override { return inner_->queued_bytes(); }
    void close(bool flush) override { inner_->close(flush && proven()); }
    std::string peer_name() const override { return inner_->peer_name(); }
    std::string peer_address() const override { return inner_->peer_address(); }
    std::string own_address() const override { return inner_->own_address(); }
    std::optional<node_id> proven_peer() const override {
        return proven() ? std::optional(handshake_.peer()) : std::nullopt;
    }

    // control_link_events
    void on_frame(std::span<const std::byte> head, std::span<const std::byte> payload) override {
        if (proven())
            events_->on_frame(head, payload);
        else if (!refused_)
            take(head);
    }
    std::span<std::byte> payload_destination(std::span<const std::byte> head,
                                             std::size_t payload_bytes) override {
        if (proven()) return events_->payload_destination(head, payload_bytes);
        refuse({connection_errc::protocol, "a payload before the proof of the secret"});
        return {};
    }
    void on_closed(const failure& why) override {
        const auto events = std::exchange(events_, nullptr);
        waiting_.clear();
        events->on_closed(refused_ ? *refused_ : explained(why));
    }

private:
    [[nodiscard]] bool proven() const noexcept { return handshake_.proven(); }

    void take(std::span<const std::byte> head) {
        const auto m = wire::decode_secret_message(head);
        if (!m) {
            return refuse({connection_errc::authentication,
                           "it does not prove the secret (" + m.error().detail + ")"});
        }
        auto reply = handshake_.next(*m);
        if (!reply) return refuse(reply.error());
        if (*reply) inner_->send(wire::encode(**reply));
        if (!proven()) return;
        for (auto& [waiting_head, payload] : std::exchange(waiting_, {}))
            inner_->send(std::move(waiting_head), std::move(payload));
    }

    void refuse(failure why) {
        if (refused_) return;
        why.detail = peer_name() + ": " + why.detail +
                     "; give both ends the same secret, and connect to who you mean";
        refused_ = std::move(why);
        inner_->close();
    }

    /// A peer that does not like this end's proof closes without a word.
    [[nodiscard]] failure explained(const failure& why) const {
        if (proven() || why.code != connection_errc::lost) return why;
        return {connection_errc::authentication,
                why.detail +
                    " before it had proved the secret; give both ends the same one, or "
                    "none"};
    }

    secret_handshake handshake_;
    std::shared_ptr<control_link> inner_;
    std::shared_ptr<control_link_events> events_;
    std::vector<std::pair<std::vector<std::byte>, frame_payload>> waiting_;
    std::optional<failure> refused_;
};

class secret_network final : public control_network {
public:
    secret_network(environment& env, control_network& inner, node_id self, std::string secret)
        : context_(new secret_context{env, self, std::move(secret)}), inner_(inner) {}

    void connect(const endpoint_address& to, time_point deadline, connected done) override {
        inner_.connect(to, deadline,
                       [context = context_, done = std::move(done)](
                           result<std::shared_ptr<control_link>> link) mutable {
                           if (link)
                               link =
                                   std::make_shared<secret_link>(*context, role::consumer, *link);
                           done(std::move(link));
                       });
    }
    result<endpoint_address> listen(const endpoint_address& at, accepted on_accept) override {
        return inner_.listen(at, [context = context_, on_accept = std::move(on_accept)](
                                     std::shared_ptr<control_link> link) mutable {
            on_accept(std::make_shared<secret_link>(*context, role::owner, std::move(link)));
        });
    }
    void stop_listening() override { inner_.stop_listening(); }

private:
    std::shared_ptr<const secret_context> context_;
    control_network& inner_;
};

}  // namespace

std::unique_ptr<control_network> make_secret_network(environment& env, control_network& inner,
                                                     node_id self, std::string secret) {
    return std::make_unique<secret_network>(env, inner, self, std::move(secret));
}

}  // namespace rvget::engine
