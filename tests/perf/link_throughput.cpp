// Pulls bytes in chunks over a control link on loopback and compares with iperf3's single stream in
// the same run:
//   link_throughput [total MiB, 1024] [chunk KiB, 512] [chunks ahead, 4] [rounds, 3] [--no-iperf3]
// Prints one line per round and the ratio of the best rounds; ends with 1 where the ratio is below
// 0.8. Owner and consumer are two processes; the consumer's destination is reused, as iperf3's is.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "engine/runtime.hpp"

namespace {

using namespace rvget;
using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

struct settings {
    std::size_t total = std::size_t{1024} << 20;
    std::size_t chunk = std::size_t{512} << 10;
    int ahead = 4;
    int rounds = 3;
    bool iperf3 = true;
};

/// Answers each frame with one chunk of the same bytes.
struct owner : engine::control_link_events {
    owner(std::shared_ptr<engine::control_link> l, std::size_t chunk)
        : link(std::move(l)), bytes(std::make_shared<std::vector<std::byte>>(chunk)) {}
    void on_frame(std::span<const std::byte> head, std::span<const std::byte>) override {
        link->send({head.begin(), head.end()}, {*bytes, bytes});
    }
    std::span<std::byte> payload_destination(std::span<const std::byte>, std::size_t) override {
        return {};
    }
    void on_closed(const failure&) override { closed.set_value(); }
    std::shared_ptr<engine::control_link> link;
    std::shared_ptr<std::vector<std::byte>> bytes;
    std::promise<void> closed;
};

struct consumer : engine::control_link_events {
    consumer(std::shared_ptr<engine::control_link> l, const settings& s)
        : link(std::move(l)),
          destination(s.chunk),
          to_ask(s.total / s.chunk),
          to_come(s.total / s.chunk) {}
    void ask() {
        if (to_ask > 0) {
            --to_ask;
            link->send(std::vector<std::byte>(26), {});  // as long as a pull
        }
    }
    void on_frame(std::span<const std::byte>, std::span<const std::byte>) override {
        ask();
        if (--to_come == 0) done.set_value();
    }
    std::span<std::byte> payload_destination(std::span<const std::byte>, std::size_t) override {
        return destination;
    }
    void on_closed(const failure&) override {}
    std::shared_ptr<engine::control_link> link;
    std::vector<std::byte> destination;
    std::size_t to_ask;
    std::size_t to_come;
    std::promise<void> done;
};

/// The owner's process: tells its port through `to`, serves one link, ends with it.
int serve(const settings& s, int to) {
    engine::runtime rt;
    std::promise<std::shared_ptr<owner>> accepted;
    rt.post([&] {
        const auto at = rt.network().listen({"127.0.0.1", 0}, [&](auto link) {
            auto o = std::make_shared<owner>(link, s.chunk);
            link->start(o);
            accepted.set_value(o);
        });
        const std::uint16_t port = at.value().port;
        if (::write(to, &port, sizeof port) != sizeof port) std::abort();
    });
    accepted.get_future().get()->closed.get_future().wait();
    return 0;
}

double pull(const settings& s) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    const pid_t child = ::fork();
    if (child == 0) {
        ::_exit(serve(s, ends[1]));
    }
    std::uint16_t port = 0;
    if (::read(ends[0], &port, sizeof port) != sizeof port) std::abort();
    ::close(ends[0]);
    ::close(ends[1]);

    engine::runtime rt;
    std::promise<std::shared_ptr<consumer>> begun;
    steady::time_point start;
    rt.post([&] {
        rt.network().connect({"127.0.0.1", port}, rt.env().now() + 10s, [&](auto link) {
            auto c = std::make_shared<consumer>(link.value(), s);
            c->link->start(c);
            start = steady::now();
            for (int i = 0; i < s.ahead; ++i) c->ask();
            begun.set_value(c);
        });
    });
    auto c = begun.get_future().get();
    c->done.get_future().wait();
    const std::chrono::duration<double> took = steady::now() - start;
    rt.stop();
    ::waitpid(child, nullptr, 0);
    return static_cast<double>(s.total / s.chunk * s.chunk) / took.count();
}

/// Bytes per second of iperf3's receiver; 0 where it cannot run.
double iperf3(std::size_t total) {
    const std::string port = std::to_string(20'000 + ::getpid() % 20'000);
    const std::string command = "iperf3 -s -1 -D -p " + port +
                                " >/dev/null 2>&1; "
                                "for i in 1 2 3 4 5 6 7 8 9; do iperf3 -c 127.0.0.1 -p " +
                                port + " -n " + std::to_string(total) +
                                " -f m -J 2>/dev/null && break; done";
    FILE* out = ::popen(command.c_str(), "r");
    std::string text;
    std::array<char, 4096> part;
    while (const std::size_t n = std::fread(part.data(), 1, part.size(), out)) {
        text.append(part.data(), n);
    }
    ::pclose(out);
    const auto at = text.rfind("\"sum_received\"");
    const auto value = at == std::string::npos ? at : text.find("\"bits_per_second\":", at);
    return value == std::string::npos ? 0 : std::atof(text.c_str() + value + 18) / 8;
}

}  // namespace

int main(int argc, char** argv) {
    settings s;
    std::vector<std::size_t> numbers;
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], "--no-iperf3") == 0) {
            s.iperf3 = false;
        } else {
            numbers.push_back(std::strtoull(argv[i], nullptr, 10));
        }
    }
    if (numbers.size() > 0) s.total = numbers[0] << 20;
    if (numbers.size() > 1) s.chunk = numbers[1] << 10;
    if (numbers.size() > 2) s.ahead = static_cast<int>(numbers[2]);
    if (numbers.size() > 3) s.rounds = static_cast<int>(numbers[3]);

    double link_best = 0;
    double iperf3_best = 0;
    for (int round = 0; round < s.rounds; ++round) {
        const double link = pull(s);
        const double other = s.iperf3 ? iperf3(s.total) : 0;
        std::printf("round=%d chunk_kib=%zu link_mib_per_s=%.0f iperf3_mib_per_s=%.0f\n", round,
                    s.chunk >> 10, link / (1 << 20), other / (1 << 20));
        link_best = std::max(link_best, link);
        iperf3_best = std::max(iperf3_best, other);
    }
    if (iperf3_best == 0) {
        std::printf("ratio=unknown\n");
        return s.iperf3 ? 2 : 0;
    }
    std::printf("ratio=%.2f\n", link_best / iperf3_best);
    return link_best >= 0.8 * iperf3_best ? 0 : 1;
}
