#pragma once
// One end of a check, told what to do by requests: what it is, a queue pair for a probe, READs, UDP
// datagrams. The asking end drives its own and the other one alike.

#include <memory>
#include <string>

#include <boost/json/object.hpp>

#include "diag/check/observations.hpp"
#include "fabric/fabric.hpp"

namespace rvget::diag {

/// After so long a probe's timers give up a peer that is silent, 4.096 us x 2^14 x (4 + 1), as they
/// are configured: a device may take four times as long
/// (InfiniBand specification, 9.7.6.1.3).
inline constexpr std::uint64_t silence_ms = 336;

/// Answers requests; a failure is {"error": "..."} in the answer, never an exception.
class check_end {
public:
    virtual ~check_end() = default;
    /// Blocking; each request is bounded to a few seconds.
    virtual boost::json::object ask(const boost::json::object& request) = 0;
};

/// An end on this machine.
[[nodiscard]] std::unique_ptr<check_end> make_local_end();

}  // namespace rvget::diag
