#pragma once
// The consumer's end of one control connection to an owner: greets, matches replies to requests,
// keeps the bulk lane, and sends lease ends without making anybody wait.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/read_lane.hpp"
#include "engine/services.hpp"
#include "wire/frames.hpp"

namespace rvget::engine {

/// Lives on the strand. One per TCP connection: a new connection is a new object.
class consumer_connection final : public control_link_events,
                                  public std::enable_shared_from_this<consumer_connection> {
public:
    /// A reply frame with its payload (empty where it went to the destination given), or why there
    /// is none.
    using replied = unique_function<void(const failure&, wire::body*, std::span<const std::byte>)>;
    using event = unique_function<void(const failure&)>;

    consumer_connection(services& s, endpoint_address to, event on_closed);
    ~consumer_connection() override;

    /// Connects and greets. Either `on_up` runs, once, or the connection is closed instead.
    void open(unique_function<void()> on_up);
    /// Takes no more gets; says goodbye and closes when the last READ is over.
    void close(const std::string& why);

    [[nodiscard]] bool up() const noexcept { return state_ == state::up; }
    [[nodiscard]] node_id owner() const noexcept { return owner_; }
    [[nodiscard]] const endpoint_address& address() const noexcept { return to_; }

    /// Sends a request; `done` runs once. The payload of the reply goes to `into` if it has exactly
    /// that size, until forget_destination() is called.
    std::uint64_t request(wire::body body, replied done, std::span<std::byte> into = {});
    /// Nothing is written into the request's destination from now on; its reply is still delivered.
    void forget_destination(std::uint64_t request_id);

    /// Tells the owner that a lease is over: with the next acquire, or alone within 1 ms.
    void end_lease(std::uint64_t lease);
    /// The lease ends that an acquire takes along.
    [[nodiscard]] std::vector<std::uint64_t> take_ended_leases();

    /// The lane to offer, or why there is none now. A lane that is missing is made; while it is
    /// being made `ready` is kept and called when it can be offered or failed, and the result is
    /// `wait`.
    struct lane_answer {
        std::shared_ptr<read_lane> lane;
        bool wait = false;
        reason why = reason::ok;
        std::string detail;
    };
    /// A lane that is wired up by RDMA-CM is waited for at most `wireup_wait`, unless `patient`.
    lane_answer lane_for_get(bool patient, unique_function<void()> ready);
    /// What came of warm(): `ok` where READs can be posted, else why they cannot, and the sentence.
    struct readiness {
        reason why = reason::ok;
        std::string detail;
    };
    using warmed = std::function<void(const failure&, const readiness&)>;
    /// Brings both ends of the lane up, or waits for whoever does so already; `done` runs once. The
    /// failure is that of the connection.
    void warm(warmed done);
    /// A READ begins, or is over and its lease ended: the goodbye waits for the last.
    void read_begins() noexcept { ++reads_; }
    void read_over();
    /// What a reply says of the owner's end of a lane.
    void learn_owner_end(std::optional<std::uint32_t> generation,
                         const std::optional<wire::queue_pair_facts>& facts);
    [[nodiscard]] bool closing() const noexcept { return closing_.has_value(); }
    /// A READ over the lane brought its bytes: after the next failure another is made at once.
    void lane_worked() noexcept { lane_backoff_ = duration{0}; }

    // control_link_events
    void on_frame(std::span<const std::byte> head, std::span<const std::byte> payload) override;
    std::span<std::byte> payload_destination(std::span<const std::byte> head,
                                             std::size_t payload_bytes) override;
    void on_closed(const failure& why) override;

private:
    enum class state : std::uint8_t { idle, connecting, greeting, up, closed };
    static constexpr duration first_lane_backoff = std::chrono::milliseconds(100);
    struct pending {
        replied done;
        std::span<std::byte> into;
    };

    void connected(std::shared_ptr<control_link> link);
    void greeted(const wire::hello& m);
    void deliver(wire::frame& f, std::span<const std::byte> payload);
    void protocol_error(const std::string& what);
    void end(connection_errc code, const std::string& why);
    [[nodiscard]] std::optional<lane_answer> refusal() const;
    void start_lane();
    void lane_failed(reason why, const failure& f);
    void ask_for_owner_end();
    void owner_end_told(std::uint32_t generation, const wire::pong* m);
    void owner_awaits(const wire::pong* m);
    void tell_warmed(const failure& f, const readiness& r);
    void lane_taken_down(const wire::lane_down& m);
    void say_goodbye();
    void lane_settled();
    void send_ended_leases();
    void log_end(const failure& why) const;
    void watch_for_silence();

    services& s_;
    const endpoint_address to_;
    unique_function<void()> on_up_;
    event on_closed_;
    state state_ = state::idle;
    std::shared_ptr<control_link> link_;
    environment::timer_id timer_ = 0;
    node_id owner_;
    std::uint16_t version_ = 0;  ///< that both speak, once it is up
    std::uint64_t next_request_ = 1;
    std::unordered_map<std::uint64_t, pending> pending_;
    /// An owner's process that stands still is told by nothing else: its kernel acknowledges all.
    time_point heard_{};  ///< the last frame, or the first request after everything was answered
    environment::timer_id silence_timer_ = 0;
    bool silence_said_ = false;
    std::optional<wire::frame> announced_;  ///< decoded when its payload was announced
    bool filled_ = false;                   ///< that payload goes to the destination of its pull
    std::optional<std::string> closing_;    ///< why, once it was asked to close
    std::size_t reads_ = 0;
    std::optional<failure> goodbye_;  ///< why this end closed, or the owner said it would

    std::vector<std::uint64_t> ended_leases_;
    environment::timer_id ended_timer_ = 0;

    std::shared_ptr<read_lane> lane_;
    std::uint32_t next_generation_ = 1;
    time_point lane_retry_at_{};
    duration lane_backoff_ = first_lane_backoff;
    reason lane_why_ = reason::ok;
    std::string lane_detail_;
    std::vector<unique_function<void()>> lane_waiters_;
    std::vector<warmed> warmers_;  ///< wait for the lane to be up or to fail
    bool owner_knows_no_cm_ = false;
    bool by_cm_;                          ///< how the next lane is wired up
    time_point cm_begun_{};               ///< the lane's owner was asked where to connect
    environment::timer_id cm_timer_ = 0;  ///< wakes those who do not wait any longer
    std::uint32_t asked_generation_ = 0;  ///< of the lane whose owner's end a ping has asked for
};

}  // namespace rvget::engine
