#pragma once
// An owner that says what a test wants it to.

#include <functional>
#include <thread>
#include <utility>

#include "api/raw_peer.hpp"

namespace rvget::test {

inline constexpr node_id raw_id{7};

/// Serves one connection by a script; says hello first unless told otherwise.
class scripted_owner {
public:
    using script = std::function<void(const raw_socket&)>;
    explicit scripted_owner(script s, bool greet = true) {
        port_.listen();
        thread_ = std::thread([this, s = std::move(s), greet] {
            const auto peer = port_.accept();
            if (!peer.read_frame()) return;
            if (greet) peer.write(wire::frame{0, wire::hello{.node = raw_id}});
            s(peer);
        });
    }
    ~scripted_owner() { thread_.join(); }
    [[nodiscard]] url target() const { return {port_.address(), {raw_id, 99}}; }

private:
    raw_port port_;
    std::thread thread_;
};

}  // namespace rvget::test
