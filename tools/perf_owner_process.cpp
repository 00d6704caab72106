#include "perf_owner_process.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <boost/json/parse.hpp>

namespace rvget::tools {
namespace {

/// The first line that comes through `fd`; empty where it ends without one, or at a signal.
std::string first_line(int fd, signal_watch& signals) {
    std::string line;
    char c = 0;
    while (signals.wait_for(fd, POLLIN) && ::read(fd, &c, 1) == 1) {
        if (c == '\n') return line;
        line += c;
    }
    return {};
}

}  // namespace

perf_owner_process::perf_owner_process(int process, int output) noexcept
    : process_(process), output_(output) {}

perf_owner_process::perf_owner_process(perf_owner_process&& other) noexcept
    : process_(std::exchange(other.process_, -1)),
      output_(std::exchange(other.output_, -1)),
      address_(std::move(other.address_)) {}

perf_owner_process::~perf_owner_process() {
    if (process_ <= 0) return;
    ::kill(process_, SIGTERM);
    // It ends its leases first; its parent's end must not leave it behind.
    ::waitpid(process_, nullptr, 0);
    ::close(output_);
}

result<perf_owner_process> perf_owner_process::start(const endpoint_address& listen,
                                                     const route_pins& pins,
                                                     std::uint64_t most_bytes,
                                                     signal_watch& signals) {
    std::vector<std::string> words{
        "rvget", "perf",     "--json",           "--keep",   "--idle",
        "30",    "--listen", listen.to_string(), "--budget", std::to_string(most_bytes)};
    if (!pins.device.empty()) words.insert(words.end(), {"--device", pins.device});
    if (!pins.gid.empty()) words.insert(words.end(), {"--gid", pins.gid});
    if (pins.gid_index) words.insert(words.end(), {"--gid-index", std::to_string(*pins.gid_index)});
    std::vector<char*> argv(words.size() + 1);  // the last one stays null
    std::ranges::transform(words, argv.begin(), [](std::string& word) { return word.data(); });

    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
        return failure{node_errc::internal, std::string("no pipe: ") + std::strerror(errno)};
    }
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    pid_t process = -1;
    const int error =
        ::posix_spawn(&process, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    if (error != 0) {
        ::close(ends[0]);
        return failure{node_errc::internal,
                       std::string("cannot start an owner: ") + std::strerror(error)};
    }
    perf_owner_process started(process, ends[0]);
    const auto line = first_line(ends[0], signals);
    boost::json::error_code wrong;
    const auto told = boost::json::parse(line, wrong);
    const auto* o = wrong ? nullptr : told.if_object();
    const auto* at = o == nullptr ? nullptr : o->if_contains("address");
    auto address = endpoint_address::parse(
        at != nullptr && at->is_string() ? std::string_view(at->get_string()) : "");
    if (!address) {
        return failure{connection_errc::connect_failed,
                       "the owner that was started on " + listen.to_string() +
                           " did not come up; see what it said, or give another --on"};
    }
    started.address_ = std::move(*address);
    return started;
}

}  // namespace rvget::tools
