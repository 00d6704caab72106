// The functions of libc through which libibverbs, libnl and libmlx5 meet the kernel. What is not
// about the device goes on to the next definition of the same name.

#include <cerrno>
#include <cstdarg>
#include <cstring>

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "softmlx5/front/machine.hpp"
#include "softmlx5/front/uverbs_file.hpp"

namespace {

using softmlx5::front::machine;

constexpr const char* device_path = "/dev/infiniband/uverbs0";

template <class Function>
Function next(Function, const char* name) {
    return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

/// The machine starts with the first file; before that nothing can be ours.
bool started = false;

bool is_device(const char* path) { return path != nullptr && std::strcmp(path, device_path) == 0; }

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
    if (is_device(path)) {
        auto& m = machine::instance();
        started = true;
        return m.open_file();
    }
    mode_t mode = 0;
    if ((flags & (O_CREAT | O_TMPFILE)) != 0) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
    }
    static const auto real = next(&::open, "open");
    return real(path, flags, mode);
}

int stat(const char* path, struct stat* out) {
    static const auto real = next(&::stat, "stat");
    return real(is_device(path) ? "/dev/null" : path, out);
}

int socket(int domain, int type, int protocol) noexcept {
    // Then libibverbs reads the tree in SYSFS_PATH instead.
    if (domain == AF_NETLINK && protocol == NETLINK_RDMA) {
        errno = EPROTONOSUPPORT;
        return -1;
    }
    static const auto real = next(&::socket, "socket");
    return real(domain, type, protocol);
}

int ioctl(int fd, unsigned long request, ...) noexcept {
    va_list rest;
    va_start(rest, request);
    void* argument = va_arg(rest, void*);
    va_end(rest);
    if (started && request == RDMA_VERBS_IOCTL) {
        if (auto file = machine::instance().file_of(fd)) {
            const int error = file->control(*static_cast<ib_uverbs_ioctl_hdr*>(argument));
            if (error == 0) return 0;
            errno = error;
            return -1;
        }
    }
    static const auto real = next(&::ioctl, "ioctl");
    return real(fd, request, argument);
}

ssize_t read(int fd, void* to, size_t bytes) {
    if (started) {
        if (auto queue = machine::instance().queue_of(fd)) return queue->read(to, bytes);
    }
    static const auto real = next(&::read, "read");
    return real(fd, to, bytes);
}

int close(int fd) {
    if (started && machine::instance().close_descriptor(fd)) return 0;
    static const auto real = next(&::close, "close");
    return real(fd);
}

void* mmap(void* hint, size_t length, int protection, int flags, int fd, off_t offset) noexcept {
    if (started && fd >= 0) {
        if (auto file = machine::instance().file_of(fd)) {
            return file->map(hint, length, protection, flags, static_cast<std::uint64_t>(offset));
        }
    }
    // Called before anything can be looked up, by the sanitizers for one.
    return reinterpret_cast<void*>(
        ::syscall(SYS_mmap, hint, length, protection, flags, fd, offset));
}

int munmap(void* at, size_t length) noexcept {
    if (started && length == softmlx5::device::page_bytes) machine::instance().unmap_page(at);
    return static_cast<int>(::syscall(SYS_munmap, at, length));
}

}  // extern "C"
