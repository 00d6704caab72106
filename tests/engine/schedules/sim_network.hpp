#pragma once
// Simulated control connections between the nodes of one world. Frames, and the pieces of their
// payloads, arrive in steps of their own; order holds within one direction only.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/control_link.hpp"
#include "engine/schedules/sim_environment.hpp"
#include "wire/frames.hpp"

namespace rvget::test {

class sim_network;

/// Names one end of one connection for the oracles.
struct link_end {
    std::uint32_t connection = 0;
    std::size_t node = 0;
    std::size_t peer = 0;
    bool connector = false;
};

/// Sees every frame go out and come in, whole, and every write of a payload.
class wire_observer {
public:
    virtual void frame_sent(const link_end& from, const wire::frame& f) = 0;
    virtual void frame_delivered(const link_end& to, const wire::frame& f) = 0;
    /// Payload bytes were handed over that nothing keeps until they are written.
    virtual void payload_unkept(const link_end& from) = 0;
    /// The engine has closed this end, or is about to hear that it is closed.
    virtual void link_over(const link_end& end) = 0;
    /// Payload bytes are about to be written where the engine said.
    virtual void payload_written(const link_end& to, std::span<const std::byte> into) = 0;

protected:
    ~wire_observer() = default;
};

class sim_link final : public engine::control_link, public std::enable_shared_from_this<sim_link> {
public:
    sim_link(sim_network& in, const link_end& self) : in_(in), self_(self) {}

    // --- Driving -------------------------------------------------------------------------------

    [[nodiscard]] const link_end& self() const noexcept { return self_; }
    [[nodiscard]] bool over() const noexcept { return told_; }
    /// Whether a frame, a piece of a payload or the end could arrive here.
    [[nodiscard]] bool runnable() const noexcept;
    [[nodiscard]] std::string describe() const;
    void step();
    /// The connection breaks: what is under way is lost.
    void cut();
    /// The node is gone: it is told nothing any more.
    void abandon();
    void stop();

    // --- engine::control_link ------------------------------------------------------------------

    void start(std::shared_ptr<engine::control_link_events> events) override;
    void send(std::vector<std::byte> head, engine::frame_payload payload) override;
    void forget_destination(std::span<std::byte> destination) override;
    [[nodiscard]] std::size_t queued_bytes() const override { return 0; }
    void close(bool flush) override;
    [[nodiscard]] std::string peer_name() const override;
    [[nodiscard]] std::string peer_address() const override;
    [[nodiscard]] std::string own_address() const override;

private:
    friend class sim_network;
    struct frame_in_flight {
        std::vector<std::byte> head;
        engine::frame_payload payload;
        wire::frame decoded;
        std::uint64_t sent_in_step = 0;
    };

    void begin_payload();
    void more_payload();
    void finish_frame(bool tell_payload);
    void tell_closed();

    sim_network& in_;
    const link_end self_;
    std::weak_ptr<sim_link> peer_;
    std::shared_ptr<engine::control_link_events> events_;
    std::deque<frame_in_flight> inbox_;
    bool fin_ = false;      ///< the peer sends nothing more
    bool broken_ = false;   ///< cut
    bool closing_ = false;  ///< this end has closed
    bool told_ = false;     ///< on_closed has returned, or the node is gone

    bool in_payload_ = false;
    bool forgotten_ = false;
    std::span<std::byte> into_;
    std::vector<std::byte> own_;
    std::size_t received_ = 0;
};

/// All control connections of one world. Borrows the environments.
class sim_network {
public:
    explicit sim_network(wire_observer& observer) : observer_(observer) {}

    void add_node(sim_environment& env) { environments_.push_back(&env); }
    [[nodiscard]] std::unique_ptr<engine::control_network> network_of(std::size_t node);
    [[nodiscard]] static std::string address_of(std::size_t node);
    [[nodiscard]] static endpoint_address endpoint_of(std::size_t node);

    /// Ends of connections that are not over.
    [[nodiscard]] const std::vector<std::shared_ptr<sim_link>>& ends() const noexcept {
        return ends_;
    }
    [[nodiscard]] std::size_t connects() const noexcept { return connects_.size(); }
    [[nodiscard]] std::size_t connector(std::size_t index) const { return connects_[index].node; }
    void step_connect(std::size_t index);
    void collect();  ///< forgets ends that are over
    /// Breaks a connection between two nodes, if there is one.
    void cut(std::size_t a, std::size_t b);
    void abandon(std::size_t node);
    /// The node's strand stops for ever: everybody who waits is told so.
    void stop(std::size_t node);
    void refuse_connections_to(std::size_t node, bool refused);

    std::uint64_t step_number = 0;   ///< counted by the driver
    std::size_t piece_bytes = 2048;  ///< of a payload, at most, in one step

private:
    friend class sim_link;
    class node_network;
    struct pending_connect {
        std::uint64_t id = 0;
        std::size_t node = 0;
        endpoint_address to;
        engine::environment::timer_id timer = 0;
        engine::control_network::connected done;
    };
    struct listener {
        engine::control_network::accepted on_accept;
        bool refusing = false;
    };

    wire_observer& observer_;
    std::vector<sim_environment*> environments_;
    std::vector<std::shared_ptr<sim_link>> ends_;
    std::vector<pending_connect> connects_;
    std::map<std::size_t, std::shared_ptr<listener>> listeners_;
    std::uint64_t next_connect_ = 1;
    std::uint32_t next_connection_ = 1;
};

}  // namespace rvget::test
