#pragma once
// Many gets under one call: their acquires follow each other without waiting, a bounded number of
// gets at a time, so that a large batch neither empties the pool nor fills the owner's lease table.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <rvget/handle.hpp>

#include "engine/transfer.hpp"

namespace rvget::engine {

class consumer;

/// Lives on the strand.
class get_batch final : public std::enable_shared_from_this<get_batch> {
public:
    struct item {
        endpoint_address at;
        node_id owner;
        transfer_request request;
    };
    /// One answer an item, in their order.
    using answered = unique_function<void(std::vector<transfer_answer>)>;
    static constexpr std::size_t most_at_once = 64;

    /// The gets are operations of `c`, numbered from `first`.
    get_batch(consumer& c, std::vector<item> items, std::uint64_t first, answered done);
    ~get_batch();
    get_batch(const get_batch&) = delete;
    get_batch& operator=(const get_batch&) = delete;

    void start() { pump(); }
    /// Answers what has not ended yet with `why`.
    void abandon(const failure& why);

private:
    void pump();
    void ended(std::size_t index, transfer_answer a);
    void finish_if_over();

    consumer& consumer_;
    std::vector<item> items_;
    std::uint64_t first_;
    answered done_;
    std::vector<transfer_answer> answers_;
    std::size_t next_ = 0;  ///< the first that has not begun
    std::size_t over_ = 0;
    bool pumping_ = false;  ///< gets that end while they begin are counted, not recursed into
};

}  // namespace rvget::engine
