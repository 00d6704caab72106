#include "engine/drain_marker.hpp"

#include "base/log.hpp"

namespace rvget::engine {

bool post_drain_marker(services& s, fabric::queue_pair& queue_pair, std::uint64_t id,
                       const std::string& lane) {
    if (auto r = queue_pair.post_marker(id); !r) {
        ++s.stats.lanes_leaked;
        log(log_level::error,
            lane + " action=leak cause=" +
                quoted("cannot prove the queue pair quiet: " + r.error().message()));
        return false;
    }
    s.rdma.posted(1);
    s.env.expect_completions();
    return true;
}

}  // namespace rvget::engine
