#pragma once
// The owner's end of one control connection: greets, answers acquires and pulls, keeps the lanes
// that its consumer wired. Lives on after the connection as long as a lease of it is active.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/owner.hpp"
#include "engine/serve_lane.hpp"
#include "engine/services.hpp"
#include "wire/frames.hpp"

namespace rvget::engine {

class owner_connection final : public control_link_events,
                               public lease_holder,
                               public std::enable_shared_from_this<owner_connection> {
public:
    /// What its node hears of it.
    struct handlers {
        /// It has greeted and, where that is asked for, proved who it is. False: no room for it.
        unique_function<bool(const owner_connection&)> greeted;
        unique_function<void(const owner_connection&, const failure& why)> closed;
    };

    owner_connection(services& s, owner& o, std::shared_ptr<control_link> link, handlers h);
    ~owner_connection() override;

    void start();
    /// Ends it without a word, because of `why`.
    void drop(const failure& why);
    /// Says goodbye and closes; leases that are active keep their deadlines.
    void close(const std::string& why);

    // lease_holder
    void fence(std::uint32_t generation, unique_function<void()> proven) override;
    void lease_ended() override;
    [[nodiscard]] node_id consumer() const override { return consumer_; }
    [[nodiscard]] bool reachable() const override { return open_; }

    [[nodiscard]] bool greeted() const noexcept { return greeted_; }
    [[nodiscard]] std::string peer_name() const { return link_->peer_name(); }

    // control_link_events
    void on_frame(std::span<const std::byte> head, std::span<const std::byte> payload) override;
    std::span<std::byte> payload_destination(std::span<const std::byte> head,
                                             std::size_t payload_bytes) override;
    void on_closed(const failure& why) override;

private:
    void handle(std::uint64_t id, wire::hello& m);
    void handle(std::uint64_t id, wire::acquire& m);
    void handle(std::uint64_t id, wire::detach& m);
    void handle(std::uint64_t id, wire::renew& m);
    void handle(std::uint64_t id, wire::pull& m);
    void handle(std::uint64_t id, wire::metadata_request& m);
    void handle(std::uint64_t id, wire::reference& m);
    void handle(std::uint64_t id, wire::lane_down& m);
    void handle(std::uint64_t id, wire::goodbye& m);
    void handle(std::uint64_t id, wire::ping& m);
    /// Frames that only an owner sends.
    template <class Other>
    void handle(std::uint64_t, Other&) {
        protocol_error("a frame that only an owner sends");
    }

    std::shared_ptr<serve_lane> lane_for(const wire::lane_offer& offer);
    void answer_pings();
    void answer_ping(std::uint64_t id, const wire::lane_offer& offer, const serve_lane* lane);
    /// What a decision needs to know of the offer, the lane and this node.
    [[nodiscard]] decision_facts facts_of(const std::optional<wire::lane_offer>& offer,
                                          const serve_lane* lane) const;
    [[nodiscard]] std::string detail_of(reason why, const serve_lane* lane) const;
    void answer(std::uint64_t id, const wire::acquire& m, const std::shared_ptr<serve_lane>& lane,
                bool may_wait);
    void wait_for_lane(std::uint64_t id, const wire::acquire& m,
                       const std::shared_ptr<serve_lane>& lane);
    void lane_settled(const serve_lane& lane, const std::string& gid);
    /// A key for `range` of a slot's memory, for READs through `lane`.
    void make_key(const std::shared_ptr<serve_lane>& lane,
                  const std::shared_ptr<const slot_memory>& memory,
                  std::span<const std::byte> range, lease_key_made done);
    /// The end of an acquire that is answered RDMA, once its key is there or refused.
    void answer_rdma(std::uint64_t id, const wire::acquire& m, wire::acquire_reply reply,
                     std::uint32_t generation, result<std::shared_ptr<lease_key>> key);
    void grant(wire::acquire_reply& reply, const wire::acquire& m, std::shared_ptr<lease_key> key,
               std::uint32_t generation);
    /// Gives a lease whose lane failed a key for another, at its consumer's request.
    void rekey(std::uint64_t id, const wire::renew& m);
    void rekeyed(std::uint64_t id, const wire::renew& m, const serve_lane& lane,
                 const owner::leased_bytes& range, const std::shared_ptr<lease_key>& key);
    [[nodiscard]] bool serves(const serve_lane& lane) const;
    [[nodiscard]] bool behind_with_chunks() const;
    void give_up(std::uint32_t generation, reason tell, unique_function<void()> proven);
    void checksum_first(std::uint64_t id, const wire::acquire& m);
    void send(std::uint64_t id, wire::body body, frame_payload payload = {});
    void protocol_error(const std::string& what);
    void destroy_lanes_if_over();

    services& s_;
    owner& owner_;
    std::shared_ptr<control_link> link_;
    handlers handlers_;
    std::optional<failure> why_;  ///< this end closed
    bool greeted_ = false;
    bool rdma_known_ = false;  ///< the version that both speak has offers and lanes
    bool open_ = true;
    bool closing_ = false;
    bool end_is_known_ = false;  ///< a goodbye was said, or this end says why it closed
    node_id consumer_;
    environment::timer_id handshake_timer_ = 0;
    std::size_t leases_ = 0;
    std::uint32_t newest_generation_ = 0;
    std::map<std::uint32_t, std::shared_ptr<serve_lane>> lanes_;
    /// Acquires that wait for their lane, in the order in which they came.
    struct waiting_acquire {
        std::uint64_t request = 0;
        wire::acquire acquire;
        std::shared_ptr<serve_lane> lane;
        environment::timer_id timer = 0;
    };
    std::map<std::uint64_t, waiting_acquire> waiting_;
    std::uint64_t next_waiting_ = 1;
    /// Pings that wait for the lane that they offer.
    struct waiting_ping {
        std::uint64_t request = 0;
        wire::lane_offer offer;
        std::shared_ptr<serve_lane> lane;
    };
    std::vector<waiting_ping> pings_;
    std::size_t checksums_running_ = 0;
    std::unordered_map<std::uint64_t, std::uint32_t> checksums_;  ///< by request, until answered
    std::unordered_map<std::uint64_t, std::uint32_t>
        references_;  ///< by slot, held by the consumer
};

}  // namespace rvget::engine
