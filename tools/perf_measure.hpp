#pragma once
// Points measured one after the other, between an owner and nodes of this process.

#include <functional>
#include <optional>

#include <rvget/node.hpp>

#include "diag/perf_point.hpp"
#include "perf_load.hpp"
#include "perf_session.hpp"
#include "perf_settings.hpp"
#include "signal_watch.hpp"

namespace rvget::tools {

class perf_measure {
public:
    /// Starts the node that gets; `owner` and `signals` outlive this.
    static result<perf_measure> begin(const perf_settings& settings, perf_session& owner,
                                      signal_watch& signals);

    /// A node that gets what the settings say.
    static result<node> start_consumer(const perf_settings& s);

    [[nodiscard]] const node& consumer() const noexcept { return *node_; }

    /// Measures one point. Fails where not even a first transfer is possible; what goes wrong later
    /// is in the point's runs. After a signal the point has what was done until then, maybe no run.
    result<diag::perf_point> measure(perf_operation operation, std::uint64_t bytes,
                                     std::uint32_t depth, const perf_load::watcher& watch);

private:
    perf_measure(const perf_settings& settings, perf_session& owner, signal_watch& signals);

    result<void> warm_up(perf_load_settings load, const std::vector<url>& slots,
                         const diag::perf_pattern& pattern);
    result<diag::perf_run> run_once(const perf_load_settings& load, const std::vector<url>& slots,
                                    const diag::perf_pattern& pattern, diag::perf_point& point,
                                    const perf_load::watcher& watch);
    result<diag::perf_run> run_cold(perf_load_settings load, const std::vector<url>& slots,
                                    const diag::perf_pattern& pattern, diag::perf_point& point);

    const perf_settings* settings_;
    perf_session* owner_;
    signal_watch* signals_;
    std::optional<node> node_;
};

}  // namespace rvget::tools
