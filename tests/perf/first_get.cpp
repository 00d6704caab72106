// The processes behind tests/perf/wireup: how long the first get of a consumer takes whose control
// connection is up.
//
//     first_get owner ADDRESS PORT BYTES SPARES      prints a URL, serves until its input ends
//     first_get consumer URL BYTES COUNT HOW SPARES  prints one JSON object: medians in
//     microseconds
//
// Each get has a node of its own in the one process, which has a region to READ into and has asked
// for the slot's metadata. HOW is when it makes its queue pair: lazy, prepared
// (node_options::eagerness), or warm: by async_warm before; or cm: lazy, and by RDMA-CM. "first" is
// its first get, "again" its second, with all there is. Between what is measured both ends get a
// moment in which to finish what goes on behind.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/io_context.hpp>

#include <rvget/node.hpp>

#include "support/pattern.hpp"

namespace {

using namespace std::chrono_literals;

rvget::node_options options() {
    rvget::node_options o;
    o.first_arena_bytes = std::size_t{1} << 20;  // guests are slow to touch memory
    o.wireup_wait = 10s;                         // it is measured, not given up
    return o;
}

int own(const char* address, const char* port, std::size_t bytes, std::uint32_t spares) {
    auto o = options();
    o.spare_queue_pairs = spares;
    o.listen = rvget::endpoint_address{address, static_cast<std::uint16_t>(std::atoi(port))};
    auto node = rvget::node::start(o).value();
    auto s = node.make_staging(bytes).value();
    rvget::test::fill_pattern(s.bytes());
    const auto h = node.stage(std::move(s)).value();
    std::cout << node.url_of(h).to_string() << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
    }
    return node.shutdown(2s) ? 0 : 1;
}

/// One consumer, on this thread alone but for what its node keeps for calls that block.
class consumer {
public:
    consumer(const rvget::url& from, std::size_t bytes, const std::string& how,
             std::uint32_t spares)
        : from_(from), memory_(bytes), node_(start(context_, how, spares)) {
        ask([&](auto done) { node_.async_metadata(from_, std::move(done)); });
        if (how == "warm") ask([&](auto done) { node_.async_warm(from_, {}, std::move(done)); });
        region_.emplace(node_.register_region(memory_).value());
        settle();
    }
    ~consumer() {
        // Both want the context to run while they wait.
        std::thread runs([&] { context_.run_for(5s); });
        if (!region_->unregister().wait_for(2s) || !node_.shutdown(2s)) {
            std::fputs("first_get: a consumer does not end\n", stderr);
            std::_Exit(1);
        }
        context_.stop();
        runs.join();
    }
    consumer(const consumer&) = delete;
    consumer& operator=(const consumer&) = delete;

    double get_us() {
        std::fill(memory_.begin(), memory_.end(), std::byte{0});
        const auto begin = std::chrono::steady_clock::now();
        auto end = begin;
        ask([&](auto done) {
            node_.async_get_into(
                from_, memory_, {},
                [&, done](rvget::error_code ec, const rvget::get_into_result& r) mutable {
                    end = std::chrono::steady_clock::now();
                    right_ = right_ && r.report.path == rvget::path::rdma;
                    done(ec, 0);
                });
        });
        right_ = right_ && rvget::test::pattern_mismatch(memory_) == memory_.size();
        settle();
        return std::chrono::duration<double, std::micro>(end - begin).count();
    }
    /// Every byte arrived, and by READ.
    [[nodiscard]] bool right() const { return right_; }

private:
    static rvget::node start(boost::asio::io_context& context, const std::string& how,
                             std::uint32_t spares) {
        auto o = options();
        o.eagerness =
            how == "prepared" ? rvget::wireup_eagerness::prepared : rvget::wireup_eagerness::lazy;
        o.wireup = how == "cm" ? rvget::wireup_choice::cm : rvget::wireup_choice::exchange;
        o.spare_queue_pairs = spares;
        return rvget::node::start(o, context).value();
    }
    template <class Begin>
    void ask(Begin begin) {
        bool over = false;
        begin([&](rvget::error_code ec, auto&&) {
            right_ = right_ && !ec;
            over = true;
        });
        while (!over && right_) right_ = context_.run_one_for(30s) != 0;
    }
    void settle() { context_.run_for(60ms); }

    rvget::url from_;
    std::vector<std::byte> memory_;
    boost::asio::io_context context_;
    rvget::node node_;
    std::optional<rvget::region> region_;
    bool right_ = true;
};

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

int consume(const std::string& text, std::size_t bytes, int count, const std::string& how,
            std::uint32_t spares) {
    const auto from = rvget::url::parse(text).value();
    std::vector<double> first;
    std::vector<double> again;
    for (int i = 0; i < count; ++i) {
        consumer c(from, bytes, how, spares);
        first.push_back(c.get_us());
        again.push_back(c.get_us());
        if (!c.right()) {
            std::fputs("first_get: a get failed, or did not bring its bytes by READ\n", stderr);
            return 1;
        }
    }
    std::printf("{\"first\": %.3f, \"again\": %.3f}\n", median(first), median(again));
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string role = argc > 1 ? argv[1] : "";
    const auto spares = static_cast<std::uint32_t>(argc > 2 ? std::atoi(argv[argc - 1]) : 0);
    if (role == "owner" && argc == 6)
        return own(argv[2], argv[3], std::strtoull(argv[4], nullptr, 10), spares);
    if (role == "consumer" && argc == 7 && std::atoi(argv[4]) > 0)
        return consume(argv[2], std::strtoull(argv[3], nullptr, 10), std::atoi(argv[4]), argv[5],
                       spares);
    return 2;
}
