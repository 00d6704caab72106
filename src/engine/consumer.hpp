#pragma once
// The consumer: its connections to owners, one per address, and the gets that run over them.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/consumer_connection.hpp"
#include "engine/get_batch.hpp"
#include "engine/region_table.hpp"
#include "engine/services.hpp"
#include "engine/transfer.hpp"

namespace rvget::engine {

/// Lives on the strand.
class consumer {
public:
    explicit consumer(services& s);
    ~consumer();
    consumer(const consumer&) = delete;
    consumer& operator=(const consumer&) = delete;

    /// Starts a get under `operation` (chosen by the caller, for cancel).
    void get(const endpoint_address& at, node_id owner, transfer_request request,
             transfer::answered done, std::uint64_t operation);
    /// Many gets under one `operation`: `most_at_once` of them at a time, each with an answer of
    /// its own; `done` when the last has ended, at the latest at `deadline`. The gets themselves
    /// are operations too, numbered from `first`.
    void get_all(std::vector<get_batch::item> items, time_point deadline, get_batch::answered done,
                 std::uint64_t operation, std::uint64_t first);
    void cancel(std::uint64_t operation);
    /// Answers what runs under `operation`, if anything does, with `why`.
    void abandon(std::uint64_t operation, const failure& why);
    /// Abandons every get whose READs go into `region`.
    void abandon_into(const fabric::memory_region& region);

    /// Connects (or finds the connection) and tells which owner is there. `operation` as for get.
    void connect(const endpoint_address& to, time_point deadline,
                 unique_function<void(const failure&, node_id)> done, std::uint64_t operation);
    /// The same, and brings the connection's lane up on both ends. Where `owner` is given another
    /// one there is a failure.
    void warm(const endpoint_address& at, std::optional<node_id> owner, time_point deadline,
              unique_function<void(const failure&, warm_result)> done, std::uint64_t operation);
    /// Sends one request to `owner` at `at` and hands over the reply. `operation` as for get.
    void ask(const endpoint_address& at, node_id owner, wire::body request, time_point deadline,
             unique_function<void(const failure&, const wire::body*)> done,
             std::uint64_t operation);

    [[nodiscard]] region_table& regions() noexcept { return regions_; }
    [[nodiscard]] const region_table& regions() const noexcept { return regions_; }
    /// Connections to owners that are not up yet, and that are.
    [[nodiscard]] std::size_t connecting() const;
    [[nodiscard]] std::size_t connected_count() const;

    /// Answers every get with `stopped` and closes every connection; more calls are refused.
    void stop();

private:
    using connected = unique_function<void(const failure&, std::shared_ptr<consumer_connection>)>;
    struct peer {
        std::shared_ptr<consumer_connection> connection;
        std::vector<connected> waiting;
    };

    void with_connection(const endpoint_address& to, connected done);
    /// Calls `done` with what the returned function is called with first; with a failure at
    /// `deadline`, at a cancel of `operation` and at the end.
    template <class T>
    std::function<void(const failure&, T)> answer_once(
        const endpoint_address& at, time_point deadline, std::uint64_t operation,
        unique_function<void(const failure&, T)> done);

    services& s_;
    region_table regions_;
    bool stopped_ = false;
    std::map<std::string, peer> peers_;
    std::unordered_map<std::uint64_t, std::weak_ptr<transfer>> running_;
    std::unordered_map<std::uint64_t, std::function<void(const failure&)>> asking_;
};

}  // namespace rvget::engine
