#pragma once
// A provider that shows an oracle what is posted on which queue pair, and else changes nothing.

#include <cstdint>
#include <memory>
#include <span>

#include "fabric/fabric.hpp"

namespace rvget::test {

/// May be called from a worker thread (made, gone, opened, registered) or the node's strand
/// (reads).
class nic_observer {
public:
    virtual void queue_pair_made(std::size_t node, std::uint32_t number) = 0;
    virtual void queue_pair_gone(std::size_t node, std::uint32_t number) = 0;
    virtual void reads_posted(std::size_t node, std::uint32_t number,
                              std::span<const fabric::read_request> requests) = 0;
    /// What a queue pair, which posted READs or not, or a registration grants.
    virtual void queue_pair_opened(std::size_t node, std::uint32_t number,
                                   fabric::access rights) = 0;
    virtual void memory_registered(std::size_t node, fabric::access rights) = 0;

protected:
    ~nic_observer() = default;
};

/// Owns `beneath`; borrows the observer.
[[nodiscard]] std::unique_ptr<fabric::provider> observe(std::unique_ptr<fabric::provider> beneath,
                                                        nic_observer& observer, std::size_t node);

}  // namespace rvget::test
