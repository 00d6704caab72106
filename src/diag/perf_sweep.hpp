#pragma once
// The same sizes in several ways ("arms"), a few transfers each, the first of them apart.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <boost/json/object.hpp>

#include "diag/spread.hpp"

namespace rvget::diag {

struct sweep_transfer {
    std::string arm;
    std::uint64_t size_bytes = 0;
    std::uint64_t repetition = 0;
    bool pinned = false;
    std::string path;  ///< "rdma/ok"
    std::chrono::nanoseconds took{0};
};

/// One size in one way: the first transfer pays what only a first one does (connection, queue pair,
/// first touches), the warm ones are all others.
struct sweep_cell {
    std::string arm;
    std::uint64_t size_bytes = 0;
    double first_us = 0;
    spread warm_us;
    std::uint64_t warm_count = 0;    ///< 0: there is no `warm_us`
    std::vector<std::string> paths;  ///< each different one
};

/// In the order in which sizes and arms were first met. Each cell's first repetition is 0.
[[nodiscard]] std::vector<sweep_cell> summarise(const std::vector<sweep_transfer>& transfers);

[[nodiscard]] boost::json::object to_json(const sweep_transfer& t);
/// A record per size: each arm's cell, and how many times as long as the first arm it took.
[[nodiscard]] std::vector<boost::json::object> to_json(const std::vector<sweep_cell>& cells);
/// The same as a table: a line per size.
[[nodiscard]] std::string to_text(const std::vector<sweep_cell>& cells);

}  // namespace rvget::diag
