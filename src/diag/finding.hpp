#pragma once
// What a check says about one subject: values, rendered elsewhere.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/value.hpp>

namespace rvget::diag {

/// In the order of severity.
enum class outcome : std::uint8_t { pass, skip, warn, fail, error };
std::string_view to_string(outcome o) noexcept;

struct finding {
    std::string id;  ///< "net.mtu_step"; stable, never used again for something else
    diag::outcome outcome = diag::outcome::pass;
    std::string subject;  ///< "host", "mlx5_0", "mlx5_0/1", "eth0"
    boost::json::value observed;
    std::string expected;
    std::string message;           ///< of a skip: the reason
    std::vector<std::string> fix;  ///< commands to run, in order, each a line of a shell
    std::vector<std::string> evidence;
};

/// Whether a word of --only or --skip names this id: exactly, or as a group ("net").
[[nodiscard]] bool selects(std::string_view word, std::string_view id) noexcept;

/// The exit status of a run (the same for all diagnostic commands): 0 nothing failed, 1 warnings
/// and `strict` (or `nagios`), 2 a failure, 3 nothing could be judged.
[[nodiscard]] int exit_status_of(const std::vector<finding>& findings, bool strict, bool nagios);

}  // namespace rvget::diag
