#pragma once
// What one end of a Reliable Connection queue pair must know of the other end. What does not fit in
// the stated bits or is no path MTU is neither encoded nor decoded (wire/frames.hpp).

#include <array>
#include <cstdint>

namespace rvget::wire {

struct queue_pair_facts {
    std::uint32_t number = 0;        ///< 24 bits
    std::uint32_t starting_psn = 0;  ///< 24 bits, random
    std::array<std::uint8_t, 16> gid{};
    std::uint16_t lid = 0;        ///< InfiniBand only, else 0
    std::uint32_t path_mtu = 0;   ///< 256, 512, 1024, 2048 or 4096; both ends use the smaller
    std::uint8_t read_depth = 0;  ///< READs this end asks for (reader) or can answer (owner)
    friend bool operator==(const queue_pair_facts&, const queue_pair_facts&) = default;
};

}  // namespace rvget::wire
