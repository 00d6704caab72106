#pragma once
// Where consumers that wire up by RDMA-CM knock: a listener for each address of the node's device
// that one was told, opened when it is first needed, and the requests that are expected, each known
// by a nonce that the owner told its consumer over the control connection. Who knocks without one
// is turned away and learns nothing else.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include <rvget/error.hpp>

#include "engine/environment.hpp"
#include "engine/rdma_context.hpp"
#include "wire/connect_data.hpp"

namespace rvget::engine {

class connection_desk {
public:
    /// Hears of the request that showed the nonce. Answering it may block: on a worker thread.
    using request_handler = unique_function<void(std::shared_ptr<fabric::connection>)>;

    connection_desk(environment& env, rdma_context& rdma) : env_(env), rdma_(rdma) {}
    /// As end().
    ~connection_desk();
    connection_desk(const connection_desk&) = delete;
    connection_desk& operator=(const connection_desk&) = delete;

    /// Sees to it that there is a listener at that numeric address; its port. Blocking
    /// (milliseconds); a worker thread.
    result<std::uint16_t> open(const std::string& address);

    /// On the strand: a nonce for one request, and who hears of it. It is good until forget().
    wire::connect_nonce expect(request_handler on_request);
    void forget(const wire::connect_nonce& nonce);
    /// On the strand: nobody is heard any more, and nothing is opened.
    void close();
    /// As close(), once nothing runs on the strand any more, and waits for the listeners' threads,
    /// after which the environment may go.
    void end();

private:
    struct counter {
        std::unique_ptr<fabric::connection_listener> listener;
        std::thread thread;
        bool dead = false;  ///< it ended with an error
    };
    void serve(const std::string& address, fabric::connection_listener& listener);
    void requested(const wire::connect_nonce& nonce, std::shared_ptr<fabric::connection> request);
    [[nodiscard]] result<counter> make_counter(const std::string& address);
    [[nodiscard]] static std::uint16_t port_of(const counter& c) { return c.listener->port(); }

    environment& env_;
    rdma_context& rdma_;
    std::map<wire::connect_nonce, request_handler> expected_;  ///< of the strand
    std::mutex mutex_;                                         ///< what follows
    std::set<wire::connect_nonce> good_;  ///< the keys of `expected_`, for the listeners' threads
    bool closed_ = false;
    std::map<std::string, counter> counters_;  ///< by address
};

}  // namespace rvget::engine
