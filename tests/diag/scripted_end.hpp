#pragma once
// An end of a check without a device: it answers as one of a path that is well, until a test
// changes an answer.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <boost/json/array.hpp>

#include "diag/check/end.hpp"
#include "diag/described.hpp"

namespace rvget::diag {

class scripted_end final : public check_end {
public:
    /// Called with what was asked ("read"), the request and the answer that will be given.
    using change_function =
        std::function<void(const std::string&, const boost::json::object&, boost::json::object&)>;

    explicit scripted_end(end_point own) : own_(std::move(own)) {}
    void meet(scripted_end& peer) { peer_ = &peer, peer.peer_ = this; }

    boost::json::object ask(const boost::json::object& request) override {
        const std::string what(request.at("ask").as_string());
        auto answer = usual(what, request);
        if (change) change(what, request, answer);
        asked.push_back(request);
        return answer;
    }

    change_function change;
    std::vector<boost::json::object> asked;
    std::uint32_t number = 0;  ///< of the queue pair there is, and was last
    bool closed = false;

private:
    boost::json::object usual(const std::string& what, const boost::json::object& request) {
        if (what == "facts") {
            return {{"host", own_.host},
                    {"ends", boost::json::array{to_json(own_)}},
                    {"doctor", boost::json::array()},
                    {"firewall", ""},
                    {"addresses", {{own_.gid, own_.netdev}}}};
        }
        if (what == "make") {
            closed = false;
            return {{"number", ++number}, {"address", 4096}, {"key", 7}};
        }
        if (what == "connect") return {{"hop_limit", 64}};
        if (what == "read") {
            const auto bytes = request.at("bytes");
            return {{"median_us", 10},
                    {"status", peer_->closed ? "transport retry counter exceeded" : "success"},
                    {"wrong", peer_->closed ? bytes : 0},
                    {"written", peer_->closed ? 0 : bytes},
                    {"done", request.at("times")}};
        }
        if (what == "counters") return {{"counters", {{"rcvd_pkts", 1}}}};
        if (what == "port_counters") return {{"counters", {{"rx_oversize_pkts_phy", 0}}}};
        if (what == "udp_open") return {{"port", 9}};
        if (what == "udp_send") {
            peer_->arrived_ = request.at("sizes").as_array();
            return {{"refused", boost::json::array()}};
        }
        if (what == "udp_result") return {{"sizes", arrived_}, {"ttl", 64}};
        if (what == "cm_listen") return {{"port", 5}};
        if (what == "cm_connect") return {{"mtu", 4096}, {"ms", 3}};
        if (what == "neighbour") return {{"mac", peer_->own_.mac}};
        if (what == "route") {
            return {{"local", false}, {"netdev", own_.netdev},  {"source", own_.gid},
                    {"gateway", ""},  {"mac", peer_->own_.mac}, {"state", "reachable"}};
        }
        if (what == "close") closed = true;
        return {};
    }

    end_point own_;
    scripted_end* peer_ = nullptr;
    boost::json::array arrived_;
};

}  // namespace rvget::diag
