#include "signal_watch.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <system_error>

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace rvget::tools {

signal_watch::signal_watch() {
    sigset_t watched;
    sigemptyset(&watched);
    for (const int signal : {SIGINT, SIGQUIT, SIGTERM, SIGHUP}) {
        sigaddset(&watched, signal);
    }
    if (const int error = pthread_sigmask(SIG_BLOCK, &watched, nullptr); error != 0) {
        throw std::system_error(error, std::generic_category(), "pthread_sigmask");
    }
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);  // a write beyond `ulimit -f` says EFBIG instead
    descriptor_ = ::signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    if (descriptor_ < 0) {
        throw std::system_error(errno, std::generic_category(), "signalfd");
    }
}

signal_watch::~signal_watch() { ::close(descriptor_); }

std::optional<int> signal_watch::received() {
    if (!received_) {
        signalfd_siginfo info{};
        if (::read(descriptor_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
            received_ = static_cast<int>(info.ssi_signo);
        }
    }
    return received_;
}

bool signal_watch::wait_for(int fd, short events, std::optional<time_point> until) {
    using std::chrono::milliseconds;
    std::array<pollfd, 2> set{{{fd, events, 0}, {descriptor_, POLLIN, 0}}};
    for (;;) {
        if (received()) {
            return false;
        }
        int patience = -1;
        if (until) {
            const auto left =
                std::chrono::ceil<milliseconds>(*until - std::chrono::steady_clock::now()).count();
            patience = static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX));
        }
        const int found = ::poll(set.data(), set.size(), patience);
        if (found == 0 && patience == 0) {
            return false;
        }
        // Only EINTR (a stop and continue) and a time that is not quite over bring it here again;
        // another error shows in the read or write that follows.
        if (found >= 0 ? set[0].revents != 0 : errno != EINTR) {
            return !received();
        }
    }
}

int signal_watch::wait() {
    while (!received()) {
        pollfd readable{descriptor_, POLLIN, 0};
        ::poll(&readable, 1, -1);
    }
    return *received_;
}

}  // namespace rvget::tools
