// The owner process of the Soft-RoCE suite: stages one payload of each size, publishes the URLs and
// answers questions through files in the directory that both hosts share.
//
//     softroce_owner SHARE [--large] [--region] [--rdma-disabled] [--lease-timeout MS]
//         [--all-by-rdma] [--port PORT] [--peer-timeout MS] [--size BYTES]...
//
// With --region the payloads lie in memory of its own that it registers. The question `break` has
// the queue pair of its next lease go to error; `log` asks for the warnings since the last such
// question.

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <rvget/log.hpp>

#include "api/node_impl.hpp"
#include "fabric/fault/fault_provider.hpp"
#include "softroce/payload_sizes.hpp"
#include "support/pattern.hpp"

namespace {

namespace fs = std::filesystem;

/// Whole or not at all: the reader polls for the name.
void publish(const fs::path& name, const std::string& text) {
    const fs::path temporary = name.string() + ".new";
    std::ofstream(temporary) << text;
    fs::rename(temporary, name);
}

std::string statistics_line(const rvget::node& n) {
    const auto s = n.statistics();
    std::ostringstream out;
    out << s.leases_granted << ' ' << s.leases_released << ' ' << s.leases_expired << ' '
        << s.leases_active << ' ' << s.slots << '\n';
    return out.str();
}

/// What this process and its kernel hold: descriptors, resident KiB, and RDMA objects.
std::string resources_line() {
    std::ostringstream out;
    out << std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()) << ' ';
    std::ifstream statm("/proc/self/statm");
    std::uint64_t all = 0;
    std::uint64_t resident = 0;
    statm >> all >> resident;
    out << resident * 4 << ' ';
    std::array<char, 256> line{};
    if (auto* const pipe = popen("rdma resource show", "r")) {
        while (std::fgets(line.data(), line.size(), pipe) != nullptr) out << line.data();
        pclose(pipe);
    }
    return out.str();
}

/// What the library warned of since it was asked last; it is on standard error too.
class warnings {
public:
    warnings() {
        rvget::set_log_sink([this](rvget::log_level level, std::string_view line) {
            if (level < rvget::log_level::warning) return;
            std::cerr << "owner: " << line << '\n';
            const std::lock_guard lock(mutex_);
            lines_.append(line).append("\n");
        });
    }
    ~warnings() { rvget::set_log_sink({}); }
    std::string take() {
        const std::lock_guard lock(mutex_);
        return std::exchange(lines_, {});
    }

private:
    std::mutex mutex_;
    std::string lines_;
};

}  // namespace

int main(int argc, char** argv) {
    const fs::path share = argc > 1 ? argv[1] : ".";
    rvget::node_options o;
    o.listen = rvget::endpoint_address{std::getenv("RVGET_ADDR"), 0};
    o.first_arena_bytes = std::size_t{4} << 20;
    // A guest on a busy machine is slow; whether it is in time is not what the suite is about.
    o.wireup_wait = std::chrono::seconds(10);
    std::vector<std::uint64_t> sizes(rvget::test::payload_sizes.begin(),
                                     rvget::test::payload_sizes.end());
    bool in_region = false;
    warnings said;
    for (int i = 2; i < argc; ++i) {
        const std::string a = argv[i];
        if (a == "--region") in_region = true;
        if (a == "--large") sizes.push_back(rvget::test::large_payload);
        if (a == "--rdma-disabled") o.rdma_disabled = true;
        if (a == "--size") sizes.push_back(std::strtoull(argv[++i], nullptr, 10));
        if (a == "--all-by-rdma") {
            o.inline_max = 0;
            o.rdma_min_bytes = 1;
        }
        if (a == "--port") o.listen->port = static_cast<std::uint16_t>(atoi(argv[++i]));
        if (a == "--peer-timeout") o.peer_timeout = std::chrono::milliseconds(atoi(argv[++i]));
        if (a == "--lease-timeout") o.lease_timeout = std::chrono::milliseconds(atoi(argv[++i]));
    }
    namespace fault = rvget::fabric::fault;
    auto plan = std::make_shared<fault::plan>();
    const auto provider = fault::make_fault_provider(rvget::fabric::make_provider(o.mlx5), plan);
    auto started = rvget::start_node_on(provider.get(), o);
    if (!started) {
        std::cerr << started.error().message() << '\n';
        return 1;
    }
    auto& node = started.value();
    std::vector<rvget::handle> handles;
    std::ostringstream urls;
    std::vector<std::byte> memory(in_region ? sizes.back() : 0);
    rvget::test::fill_pattern(memory);
    rvget::region registered;
    if (in_region) registered = node.register_region(memory).value();
    for (const auto size : sizes) {
        if (in_region) {
            handles.push_back(node.stage_region(registered, 0, size).value());
        } else {
            auto s = node.make_staging(size);
            if (!s) return 1;
            rvget::test::fill_pattern(s.value().bytes());
            handles.push_back(node.stage(std::move(s.value())).value());
        }
        urls << size << ' ' << node.url_of(handles.back()).to_string() << '\n';
    }
    publish(share / "urls", urls.str());

    for (;;) {
        // Guests cannot notify each other about a shared file, so it is looked for.
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        for (const std::string question :
             {"statistics", "resources", "release", "break", "log", "quit"}) {
            const auto ask = share / ("ask." + question);
            if (!fs::exists(ask)) continue;
            fs::remove(ask);
            if (question == "release")
                for (const auto& h : handles) static_cast<void>(node.release(h));
            if (question == "break")
                plan->break_queue_pair(fault::call::post_bind,
                                       plan->count(fault::call::post_bind) + 1);
            publish(share / ("answer." + question), question == "resources" ? resources_line()
                                                    : question == "log"     ? said.take()
                                                                        : statistics_line(node));
            if (question != "quit") continue;
            if (in_region && !registered.unregister().wait_for(std::chrono::seconds(5))) return 4;
            return node.shutdown(std::chrono::seconds(5)) ? 0 : 3;
        }
    }
}
