#pragma once
// Metrics over HTTP, for Prometheus to scrape.

#include <memory>
#include <string>

#include <rvget/node.hpp>

namespace prometheus {
class Exposer;
}

namespace rvget::tools {

/// Serves GET /metrics while it lives, on threads of its own.
class metrics_endpoint {
public:
    /// Port 0 takes a free one. A failure (`io`) names the address.
    static result<metrics_endpoint> open(const endpoint_address& at, const node& n);
    ~metrics_endpoint();
    metrics_endpoint(metrics_endpoint&&) noexcept;
    metrics_endpoint& operator=(metrics_endpoint&&) = delete;

    /// "http://127.0.0.1:9464/metrics", with the port in use.
    [[nodiscard]] const std::string& url() const noexcept { return url_; }

private:
    metrics_endpoint() = default;
    std::shared_ptr<prometheus::Collectable> source_;
    std::unique_ptr<prometheus::Exposer> exposer_;
    std::string url_;
};

}  // namespace rvget::tools
