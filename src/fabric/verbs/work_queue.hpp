#pragma once
// What was posted to one work queue (send or receive) and has not completed: gives every request a
// work-request id of its own, so that a completion finds its request again, and knows the room
// left.

#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "fabric/fabric.hpp"

namespace rvget::fabric::verbs {

class work_queue {
public:
    /// Who wants to hear of a request's completion.
    enum class purpose : std::uint8_t {
        caller,
        confirmation,  ///< ours: proves that an earlier success is one (see completion_queue.hpp)
        release,       ///< ours: its completion reports the phantoms before it
        phantom,       ///< the caller's, but never posted: flushed with the next release
    };
    /// Where the first byte of a READ comes from and goes to.
    struct first_byte {
        std::uintptr_t local = 0;
        std::uint64_t remote = 0;
        std::uint32_t local_key = 0;
        std::uint32_t remote_key = 0;
    };
    struct entry {
        std::uint64_t id = 0;
        operation kind = operation::other;
        work_queue::purpose purpose = purpose::caller;
        work_queue::first_byte first_byte = {};  ///< of a READ of any bytes, else all zero
        bool signalled = true;                   ///< completes by itself where all is well
    };

    /// `epoch` tells the requests of this queue pair from those of an earlier one with the same
    /// number, whose completions may still be in the completion queue. At most 31 bits.
    work_queue(std::uint32_t capacity, std::uint32_t epoch, bool receive)
        : entries_(std::bit_ceil(capacity)),
          capacity_(capacity),
          high_((std::uint64_t{receive} << 63) | (std::uint64_t{epoch & 0x7fffffff} << 32)) {}

    [[nodiscard]] std::uint32_t in_use() const noexcept { return next_ - first_; }
    [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
    /// Whether a completion is still to come of what was posted. What is unsignalled may be done
    /// and says nothing; it ends with the next that does.
    [[nodiscard]] bool completion_due() const noexcept {
        for (auto n = next_; n != first_; --n) {
            const auto& e = at(n - 1);
            if (e.signalled && e.purpose != purpose::phantom) return true;
        }
        return false;
    }

    /// Notes a request that is about to be posted and returns its work-request id.
    std::uint64_t add(const entry& e) noexcept {
        at(next_) = e;
        return high_ | next_++;
    }
    /// Takes back the latest `count`: they were not posted after all.
    void take_back(std::uint32_t count) noexcept { next_ -= count; }
    /// Makes phantoms of the latest `count`.
    void haunt(std::uint32_t count) noexcept {
        for (auto n = next_ - count; n != next_; ++n) at(n).purpose = purpose::phantom;
    }

    static bool is_receive(std::uint64_t work_request_id) noexcept { return work_request_id >> 63; }

    /// Ends the request and, since a work queue completes in order, all before it, calling
    /// `phantom(entry)` for each phantom among them. Null if the id is none of ours.
    template <class OnPhantom>
    const entry* complete(std::uint64_t work_request_id, OnPhantom&& phantom) {
        const auto sequence = static_cast<std::uint32_t>(work_request_id);
        if ((work_request_id ^ sequence) != high_ || sequence - first_ >= in_use()) return nullptr;
        if (at(sequence).purpose == purpose::release) {
            for (; first_ != sequence; ++first_) {
                if (at(first_).purpose == purpose::phantom) phantom(at(first_));
            }
        }
        first_ = sequence + 1;
        return &at(sequence);
    }

private:
    [[nodiscard]] const entry& at(std::uint32_t sequence) const noexcept {
        return entries_[sequence & (entries_.size() - 1)];
    }
    entry& at(std::uint32_t sequence) noexcept {
        return const_cast<entry&>(std::as_const(*this).at(sequence));
    }

    std::vector<entry> entries_;  ///< a power of two, so that sequence numbers may wrap
    std::uint32_t capacity_;
    std::uint64_t high_;
    std::uint32_t first_ = 0;  ///< the oldest not completed
    std::uint32_t next_ = 0;
};

}  // namespace rvget::fabric::verbs
