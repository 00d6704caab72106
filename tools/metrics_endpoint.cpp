#include "metrics_endpoint.hpp"

#include <chrono>
#include <exception>
#include <string>
#include <vector>

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

namespace rvget::tools {

constexpr unsigned most_clients = 16;
constexpr std::chrono::milliseconds patience{2000};

metrics_endpoint::~metrics_endpoint() = default;
metrics_endpoint::metrics_endpoint(metrics_endpoint&&) noexcept = default;

result<metrics_endpoint> metrics_endpoint::open(const endpoint_address& at, const node& n) {
    metrics_endpoint e;
    e.source_ = n.metrics_source();
    try {
        // A thread for each client at once; one that has not said what it wants in time goes, so
        // that those who say nothing hold the others up for no longer.
        e.exposer_ = std::make_unique<prometheus::Exposer>(std::vector<std::string>{
            "listening_ports", at.to_string(), "num_threads", std::to_string(most_clients),
            "request_timeout_ms", std::to_string(patience.count())});
    } catch (const std::exception&) {  // of the web server below, and says nothing of the cause
        return failure{request_errc::io, "cannot serve metrics on " + at.to_string() +
                                             "; give an address of this machine and a free port"};
    }
    e.exposer_->RegisterCollectable(e.source_);
    auto in_use = at;
    if (const auto ports = e.exposer_->GetListeningPorts(); !ports.empty())
        in_use.port = static_cast<std::uint16_t>(ports.front());
    e.url_ = "http://" + in_use.to_string() + "/metrics";
    return e;
}

}  // namespace rvget::tools
