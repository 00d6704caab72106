#include "metrics_endpoint.hpp"

#include <exception>

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

namespace rvget::tools {

metrics_endpoint::~metrics_endpoint() = default;
metrics_endpoint::metrics_endpoint(metrics_endpoint&&) noexcept = default;

result<metrics_endpoint> metrics_endpoint::open(const endpoint_address& at, const node& n) {
    metrics_endpoint e;
    e.source_ = n.metrics_source();
    try {
        // One thread answers; a second one, so that a client that says nothing holds up no other.
        e.exposer_ = std::make_unique<prometheus::Exposer>(at.to_string(), 2);
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
