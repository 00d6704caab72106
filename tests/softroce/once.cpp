// One get in a process of its own: prints how it went, or dies in the middle of it.
//
//     softroce_once URL [--die-at-post N] [--disable-rdma]

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "api/node_impl.hpp"
#include "fabric/fault/fault_provider.hpp"
#include "support/pattern.hpp"

int main(int argc, char** argv) {
    const auto from = rvget::url::parse(argc > 1 ? argv[1] : "");
    if (!from) return 2;
    auto plan = std::make_shared<rvget::fabric::fault::plan>();
    rvget::node_options o;
    o.first_arena_bytes = std::size_t{4} << 20;
    o.read_piece_bytes = 65536;  // so that a get takes several posts
    o.read_depth = 4;
    for (int i = 2; i < argc; ++i) {
        const std::string a = argv[i];
        if (a == "--die-at-post")
            plan->before(rvget::fabric::fault::call::post_reads,
                         std::strtoull(argv[++i], nullptr, 10), [] { std::raise(SIGKILL); });
        if (a == "--disable-rdma") o.rdma_disabled = true;
    }
    const auto provider = rvget::fabric::fault::make_fault_provider(
        rvget::fabric::make_provider(rvget::node_options::from_environment().mlx5), plan);
    auto node = rvget::start_node_on(provider.get(), o);
    if (!node) return 1;
    auto got = node.value().get(from.value());
    if (!got) {
        std::cout << "error " << got.error().message() << std::endl;
        return 1;
    }
    const auto& r = got.value();
    const bool right = rvget::test::pattern_mismatch(r.data.bytes()) == r.data.size();
    std::cout << to_string(r.report.path) << ' ' << to_string(r.report.reason) << ' '
              << (right ? "right" : "wrong") << ' ' << r.data.size() << ' ' << r.report.detail
              << std::endl;
    return right ? 0 : 1;
}
