// The smallest program outside this project: one value of the public interface, there and back.
#include <iostream>

#include <rvget/error.hpp>
#include <rvget/handle.hpp>
#include <rvget/path.hpp>

int main() {
    const rvget::handle made{rvget::node_id{0x0123456789abcdef}, 42};
    const auto parsed = rvget::handle::parse(made.to_string());
    if (!parsed || *parsed != made) {
        std::cerr << "a handle does not survive its own text form\n";
        return 1;
    }
    const auto refused = rvget::handle::parse("not a handle");
    if (refused || refused.error().code != rvget::request_errc::malformed_handle) {
        std::cerr << "text that is no handle was taken for one\n";
        return 1;
    }
    std::cout << to_string(rvget::path::rdma) << '\n';
}
