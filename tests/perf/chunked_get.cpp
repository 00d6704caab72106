// The two processes behind tests/perf/chunked: one stages bytes, the other gets them in chunks into
// memory that is already touched, again and again on request.
//
//     chunked_get owner BYTES             prints a URL, serves until its standard input ends
//     chunked_get consumer URL BYTES      for each line on standard input: one get, prints seconds

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include <rvget/node.hpp>

#include "support/pattern.hpp"

namespace {

int own(std::size_t bytes) {
    rvget::node_options o;
    o.listen = rvget::endpoint_address{"127.0.0.1", 0};
    o.rdma_disabled = true;
    auto node = rvget::node::start(o).value();
    auto s = node.make_staging(bytes, false).value();
    rvget::test::fill_pattern(s.bytes());
    const auto h = node.stage(std::move(s)).value();
    std::cout << node.url_of(h).to_string() << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
    }
    return node.shutdown(std::chrono::seconds(2)) ? 0 : 1;
}

int consume(const std::string& text, std::size_t bytes) {
    rvget::node_options o;
    o.rdma_disabled = true;
    auto node = rvget::node::start(o).value();
    const auto from = rvget::url::parse(text).value();
    std::vector<std::byte> memory(bytes);
    for (std::string line; std::getline(std::cin, line);) {
        const auto begin = std::chrono::steady_clock::now();
        const auto got = node.get_into(from, memory);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        if (!got || got.value().bytes != bytes || got.value().report.copied_bytes != 0) return 1;
        std::cout << took.count() << std::endl;
    }
    return rvget::test::pattern_mismatch(memory) == bytes ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string role = argc > 1 ? argv[1] : "";
    if (role == "owner" && argc == 3) return own(std::strtoull(argv[2], nullptr, 10));
    if (role == "consumer" && argc == 4)
        return consume(argv[2], std::strtoull(argv[3], nullptr, 10));
    return 2;
}
