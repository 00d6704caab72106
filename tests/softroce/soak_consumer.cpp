// One consumer of the soak: gets of every kind, side by side, until a second argument's time is
// over or SIGTERM asks for the end. Every byte that a get says it delivered is compared, every
// answer must come soon after the get's deadline, and the node must shut down proven quiet. Prints
// one line of counts as JSON; exit status 0 where nothing was wrong.
//
//     softroce_soak_consumer URLS SECONDS SEED      URLS: lines of "size url"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <future>
#include <iostream>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <rvget/node.hpp>

#include "support/pattern.hpp"

namespace {

using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;

/// How long after its deadline an answer may come: a guest shares one CPU with all the others.
constexpr auto slack = 10s;
constexpr std::size_t largest = (std::size_t{1} << 20) + 4097;

volatile std::sig_atomic_t asked_to_end = 0;

struct counts {
    std::atomic<std::uint64_t> rdma{0}, inlined{0}, chunked{0};
    std::atomic<std::uint64_t> cancelled{0}, late{0}, lost{0}, busy{0};
    // What must not happen.
    std::atomic<std::uint64_t> wrong_bytes{0}, hung{0}, unexpected{0};

    [[nodiscard]] bool clean() const { return wrong_bytes == 0 && hung == 0 && unexpected == 0; }
};

struct source {
    std::uint64_t bytes;
    rvget::url from;
};

/// What one thread does, one get at a time, into memory of its own.
class getter {
public:
    getter(rvget::node& n, const std::vector<source>& sources, counts& c, std::uint64_t seed)
        : node_(n), sources_(sources), counts_(c), random_(seed), memory_(largest) {
        if (auto r = node_.register_region(memory_)) region_ = std::move(*r);
    }

    void get_one() {
        const auto& from = sources_[below(sources_.size())];
        rvget::get_options o;
        o.deadline = std::array{20ms, 300ms, 3000ms, 10000ms}[below(4)];
        if (below(8) == 0) o.policy = rvget::path_policy::never;
        if (below(3) == 0 && from.bytes > 1) {
            o.offset = below(from.bytes);
            o.length = 1 + below(from.bytes - o.offset);
        }
        const bool cancel = below(8) == 0;
        switch (below(3)) {
            case 0:
                return run<rvget::get_result>(from, o, cancel, [&](auto&& token) {
                    node_.async_get(from.from, o, std::move(token));
                });
            case 1:
                return run<rvget::get_pinned_result>(from, o, cancel, [&](auto&& token) {
                    node_.async_get_pinned(from.from, o, std::move(token));
                });
            default:
                std::fill(memory_.begin(), memory_.end(), std::byte{0xee});
                return run<rvget::get_into_result>(from, o, cancel, [&](auto&& token) {
                    node_.async_get_into(from.from, memory_, o, std::move(token));
                });
        }
    }

    /// The region is the caller's again once what used it is over.
    [[nodiscard]] bool end() {
        const auto over = region_.unregister(5s);
        return over.wait_for(60s);
    }

private:
    std::uint64_t below(std::uint64_t n) { return random_() % n; }

    template <class R>
    struct answer {
        rvget::error_code code;
        R result;
    };

    template <class R, class Start>
    void run(const source& from, const rvget::get_options& o, bool cancel, Start start) {
        auto got = std::make_shared<std::promise<answer<R>>>();
        auto future = got->get_future();
        boost::asio::io_context context;
        boost::asio::cancellation_signal signal;
        start(boost::asio::bind_executor(
            context,
            boost::asio::bind_cancellation_slot(signal.slot(), [got](rvget::error_code ec, R r) {
                got->set_value({ec, std::move(r)});
            })));
        const auto limit = clock_type::now() + *o.deadline + slack;
        if (cancel) {
            context.run_for(std::chrono::milliseconds(below(30)));
            signal.emit(boost::asio::cancellation_type::terminal);
        }
        context.run_until(limit);
        if (future.wait_for(0s) != std::future_status::ready) {
            ++counts_.hung;
            std::cerr << "hung: no answer " << slack.count() << " s after the deadline\n";
            std::_Exit(3);  // the handler refers to this frame
        }
        auto a = future.get();
        if (a.code) return failed(a.code, cancel, quiet_of(a.result));
        note(a.result.report.path);
        const auto bytes = data_of(a.result);
        const auto expected = std::min(o.length.value_or(from.bytes), from.bytes - o.offset);
        if (bytes.size() != expected ||
            rvget::test::pattern_mismatch(bytes, o.offset) != bytes.size()) {
            ++counts_.wrong_bytes;
            std::cerr << "wrong bytes: " << bytes.size() << " of " << expected << " by "
                      << to_string(a.result.report.path) << " from offset " << o.offset << "\n";
        }
    }

    static const rvget::quiet* quiet_of(const rvget::get_into_result& r) { return &r.quiet; }
    template <class R>
    static const rvget::quiet* quiet_of(const R&) {
        return nullptr;
    }
    template <class R>
    [[nodiscard]] std::span<const std::byte> data_of(const R& r) const {
        if constexpr (std::is_same_v<R, rvget::get_into_result>)
            return std::span<const std::byte>(memory_).first(r.bytes);
        else
            return r.data.bytes();
    }

    void note(rvget::path p) {
        if (p == rvget::path::rdma)
            ++counts_.rdma;
        else if (p == rvget::path::chunked)
            ++counts_.chunked;
        else
            ++counts_.inlined;
    }

    void failed(const rvget::error_code& code, bool cancel, const rvget::quiet* quiet) {
        using rvget::request_errc;
        if (code == request_errc::cancelled && cancel) {
            ++counts_.cancelled;
        } else if (code == request_errc::deadline_exceeded) {
            ++counts_.late;
        } else if (code == request_errc::busy) {
            ++counts_.busy;
        } else if (code == rvget::connection_errc::lost ||
                   code == rvget::connection_errc::connect_failed ||
                   code.category() == rvget::lease_category()) {
            ++counts_.lost;  // links go down, and peers with them
            std::this_thread::sleep_for(10ms);
        } else {
            ++counts_.unexpected;
            std::cerr << "unexpected: " << code.message() << "\n";
        }
        if (quiet != nullptr && !quiet->wait_for(60s)) {
            ++counts_.hung;
            std::cerr << "hung: a destination is not quiet after 60 s\n";
            std::_Exit(3);
        }
    }

    rvget::node& node_;
    const std::vector<source>& sources_;
    counts& counts_;
    std::mt19937_64 random_;
    std::vector<std::byte> memory_;
    rvget::region region_;
};

std::vector<source> read_urls(const char* file) {
    std::vector<source> sources;
    std::ifstream lines(file);
    std::uint64_t bytes = 0;
    std::string text;
    while (lines >> bytes >> text) sources.push_back({bytes, rvget::url::parse(text).value()});
    return sources;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) return 2;
    const auto sources = read_urls(argv[1]);
    if (sources.empty()) return 2;
    const auto end = clock_type::now() + std::chrono::seconds(std::atoi(argv[2]));
    const auto seed = std::strtoull(argv[3], nullptr, 10);
    std::signal(SIGTERM, [](int) { asked_to_end = 1; });
    sigset_t end_signal;
    sigemptyset(&end_signal);
    sigaddset(&end_signal, SIGTERM);
    pthread_sigmask(SIG_UNBLOCK, &end_signal, nullptr);  // blocked by who started it

    auto o = rvget::node_options::from_environment();
    o.first_arena_bytes = std::size_t{4} << 20;
    auto started = rvget::node::start(o);
    if (!started) {
        std::cerr << started.error().message() << "\n";
        return 1;
    }
    counts c;
    std::atomic<bool> regions_back{true};
    {
        std::vector<std::jthread> threads;
        for (std::uint64_t i = 0; i < 2; ++i)
            threads.emplace_back([&, i] {
                getter g(*started, sources, c, seed * 2 + i);
                while (asked_to_end == 0 && clock_type::now() < end && c.clean()) g.get_one();
                if (!g.end()) regions_back = false;
            });
    }
    const bool quiet = started->shutdown(20s);
    std::cout << "{\"rdma\": " << c.rdma << ", \"inline\": " << c.inlined
              << ", \"chunked\": " << c.chunked << ", \"cancelled\": " << c.cancelled
              << ", \"late\": " << c.late << ", \"lost\": " << c.lost << ", \"busy\": " << c.busy
              << ", \"wrong_bytes\": " << c.wrong_bytes << ", \"unexpected\": " << c.unexpected
              << ", \"regions_back\": " << (regions_back ? "true" : "false")
              << ", \"quiet\": " << (quiet ? "true" : "false") << "}" << std::endl;
    return c.clean() && regions_back && quiet ? 0 : 1;
}
