#pragma once
// Packets between the processes of a machine: each has a slot, which its queue pairs' numbers name,
// and listens on an abstract Unix socket of that slot.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "softmlx5/core/packet.hpp"

namespace softmlx5::front {

class wire {
public:
    /// Takes the first free slot. SOFTMLX5_NET names a network of its own.
    wire();
    ~wire();
    wire(const wire&) = delete;
    wire& operator=(const wire&) = delete;

    [[nodiscard]] std::uint8_t slot() const noexcept { return slot_; }
    /// Lost where nobody has that slot.
    void send(packet&& p);
    /// What arrived since. Also pushes out what could not be sent at once.
    std::vector<packet> receive();

private:
    struct outgoing {
        int socket = -1;
        std::deque<std::vector<std::byte>> waiting;
        std::size_t sent = 0;  ///< of the first
    };
    struct incoming {
        int socket = -1;
        std::vector<std::byte> bytes;
    };
    [[nodiscard]] std::string name_of(unsigned slot) const;
    void push(outgoing& to);

    std::string network_;
    int listener_ = -1;
    std::uint8_t slot_ = 0;
    std::map<unsigned, outgoing> outgoing_;
    std::vector<incoming> incoming_;
};

}  // namespace softmlx5::front
