// A program outside this project: one node stages bytes, another gets them over loopback.
#include <algorithm>
#include <cstddef>
#include <iostream>
#include <vector>

#include <rvget/node.hpp>

int main() {
    std::vector<std::byte> staged(100'000);
    for (std::size_t i = 0; i < staged.size(); ++i) {
        staged[i] = static_cast<std::byte>(i * 7 % 251);
    }
    rvget::node_options options;
    options.listen = rvget::endpoint_address{"127.0.0.1", 0};
    auto owner = rvget::node::start(options).value();
    auto consumer = rvget::node::start({}).value();

    const auto handle = owner.stage(staged).value();
    const auto got = consumer.get(owner.url_of(handle)).value();
    if (!std::ranges::equal(got.data.bytes(), staged)) {
        std::cerr << "what was got is not what was staged\n";
        return 1;
    }
    std::cout << got.data.size() << " bytes, path=" << to_string(got.report.path) << '\n';
}
