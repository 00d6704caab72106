#include "softmlx5/front/event_queue.hpp"

#include <cerrno>

#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace softmlx5::front {

namespace {

// The system calls themselves: the functions of these names are interposed.
ssize_t plain_read(int fd, void* to, std::size_t bytes) {
    return ::syscall(SYS_read, fd, to, bytes);
}

}  // namespace

event_queue::event_queue() : descriptor_(::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC)) {}

event_queue::~event_queue() { ::syscall(SYS_close, descriptor_); }

void event_queue::push_bytes(std::vector<std::byte> bytes, std::uint64_t owner,
                             std::uint32_t* reported) {
    const std::lock_guard held(mutex_);
    entries_.push_back({.bytes = std::move(bytes), .owner = owner, .reported = reported});
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::syscall(SYS_write, descriptor_, &one, sizeof one);
}

ssize_t event_queue::read(void* to, std::size_t bytes) {
    for (;;) {
        std::uint64_t one = 0;
        if (plain_read(descriptor_, &one, sizeof one) < 0) return -1;
        const std::lock_guard held(mutex_);
        if (entries_.empty()) continue;  // forgotten between the two
        auto& first = entries_.front();
        if (bytes < first.bytes.size()) {
            errno = EINVAL;
            return -1;
        }
        const auto size = first.bytes.size();
        std::memcpy(to, first.bytes.data(), size);
        if (first.reported != nullptr) ++*first.reported;
        entries_.pop_front();
        return static_cast<ssize_t>(size);
    }
}

void event_queue::forget(std::uint64_t owner) {
    const std::lock_guard held(mutex_);
    const auto count = std::erase_if(entries_, [&](const entry& e) { return e.owner == owner; });
    // As many counts are taken off, unless a reader was faster: then it finds nothing and waits on.
    for (std::size_t i = 0; i < count; ++i) {
        const int flags = static_cast<int>(::syscall(SYS_fcntl, descriptor_, 3 /* F_GETFL */, 0));
        ::syscall(SYS_fcntl, descriptor_, 4 /* F_SETFL */, flags | 04000 /* O_NONBLOCK */);
        std::uint64_t one = 0;
        plain_read(descriptor_, &one, sizeof one);
        ::syscall(SYS_fcntl, descriptor_, 4, flags);
    }
}

}  // namespace softmlx5::front
