#include "softmlx5/front/machine.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "softmlx5/core/bytes.hpp"
#include "softmlx5/front/trap.hpp"
#include "softmlx5/front/uverbs_file.hpp"

namespace softmlx5::front {

namespace {

constexpr std::size_t page_bytes = device::page_bytes;

time_point monotonic() {
    timespec t{};
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

watch_mode mode_asked() {
    const char* asked = std::getenv("SOFTMLX5_MODE");
    const std::string_view name = asked != nullptr ? asked : "";
    if (name == "trap") return watch_mode::trap;
    return name == "manual" ? watch_mode::manual : watch_mode::poll;
}

// The system calls themselves, since the functions are interposed.
void* plain_map(void* hint, std::size_t length, int protection, int flags, int fd,
                std::uint64_t offset) {
    return reinterpret_cast<void*>(
        ::syscall(SYS_mmap, hint, length, protection, flags, fd, offset));
}

}  // namespace

machine& machine::instance() {
    // Never destroyed: the device runs, and libraries close files, until the process ends.
    static auto* only = new machine;
    return *only;
}

machine::machine()
    : device_({.slot = wire_.slot(), .now = monotonic}),
      mode_(mode_asked()),
      memory_file_(static_cast<int>(::syscall(SYS_memfd_create, "softmlx5-uars", 1U))) {
    device_.on_departure = [this](packet&& p) { wire_.send(std::move(p)); };
    device_.on_completion_event = [this](std::uint32_t number) {
        for (const auto& [fd, file] : files_) file->completion_event(number);
    };
    device_.on_completion_queue_error = [this](std::uint32_t number) {
        for (const auto& [fd, file] : files_) file->asynchronous_event(false, number, 0);
    };
    device_.on_queue_pair_event = [this](std::uint32_t number, queue_pair_event what) {
        // ib_event_type: a request or an access was refused, or the first message came.
        const std::uint32_t type = what == queue_pair_event::request_error  ? 2
                                   : what == queue_pair_event::access_error ? 3
                                                                            : 4;
        for (const auto& [fd, file] : files_) file->asynchronous_event(true, number, type);
    };
    device_.violations().on_report = [](const violation& v) {
        std::fprintf(stderr, "softmlx5: violation: %s: %s\n", v.rule.c_str(), v.text.c_str());
        // For tools that nobody asks afterwards: what they did wrong must fail their test.
        if (std::getenv("SOFTMLX5_ABORT") != nullptr) std::abort();
    };
    if (mode_ == watch_mode::trap) install_trap_handlers();
    if (mode_ == watch_mode::manual) return;
    thread_ = std::thread([this] { run(); });
    thread_.detach();
}

bool machine::turn() {
    const auto held = device_.hold();
    bool any = false;
    if (mode_ != watch_mode::manual) {  // that is one process by itself
        for (auto& p : wire_.receive()) {
            any = true;
            device_.arrive(std::move(p));
        }
    }
    if (mode_ != watch_mode::trap) any |= device_.poll();
    return device_.step() || any;
}

void machine::run() {
    unsigned idle = 0;
    for (;;) {
        idle = turn() ? 0 : idle + 1;
        if (idle < 4) continue;
        // Sleeping, not yielding: a thread that sleeps soon runs again between programs that spin.
        const timespec pause{.tv_sec = 0, .tv_nsec = 5000};
        ::nanosleep(&pause, nullptr);
    }
}

int machine::open_file() {
    // A character device whose number the tree in SYSFS_PATH names: /dev/null.
    const int fd =
        static_cast<int>(::syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC));
    const auto held = device_.hold();
    if (fd >= 0) files_[fd] = std::make_shared<uverbs_file>(*this);
    return fd;
}

std::shared_ptr<uverbs_file> machine::file_of(int descriptor) {
    const auto held = device_.hold();
    const auto found = files_.find(descriptor);
    return found == files_.end() ? nullptr : found->second;
}

std::shared_ptr<event_queue> machine::queue_of(int descriptor) {
    const auto held = device_.hold();
    const auto found = queues_.find(descriptor);
    return found == queues_.end() ? nullptr : found->second;
}

std::shared_ptr<event_queue> machine::add_queue() {
    const auto held = device_.hold();
    auto made = std::make_shared<event_queue>();
    queues_[made->descriptor()] = made;
    return made;
}

bool machine::close_descriptor(int descriptor) {
    const auto held = device_.hold();
    if (queues_.erase(descriptor) > 0) return true;  // closed with the last that knows it
    if (files_.erase(descriptor) == 0) return false;
    ::syscall(SYS_close, descriptor);
    return true;
}

machine::uar_page machine::take_page() {
    const auto held = device_.hold();
    if (!free_pages_.empty()) {
        const auto page = free_pages_.back();
        free_pages_.pop_back();
        std::memset(page.device_side, 0, page_bytes);
        return page;
    }
    const auto offset = memory_bytes_;
    memory_bytes_ += page_bytes;
    if (::ftruncate(memory_file_, static_cast<off_t>(memory_bytes_)) != 0) std::abort();
    auto* at =
        plain_map(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_file_, offset);
    if (at == MAP_FAILED) std::abort();
    device_sides_[offset] = static_cast<std::byte*>(at);
    return {.device_side = static_cast<std::byte*>(at), .offset = offset};
}

void machine::give_back(const uar_page& page) {
    const auto held = device_.hold();
    free_pages_.push_back(page);
}

void* machine::map_page(void* hint, std::size_t length, int protection, int flags,
                        std::uint64_t offset, std::uint32_t uar) {
    const auto held = device_.hold();
    const auto side = device_sides_.find(offset);
    if (length != page_bytes || side == device_sides_.end()) {
        errno = EINVAL;
        return MAP_FAILED;
    }
    const int granted = mode_ == watch_mode::trap ? PROT_READ : protection | PROT_READ;
    auto* at = plain_map(hint, length, granted, flags, memory_file_, offset);
    if (at != MAP_FAILED) {
        mappings_[reinterpret_cast<std::uintptr_t>(at)] = {.uar = uar, .device_side = side->second};
    }
    return at;
}

void machine::unmap_page(void* at) {
    const auto held = device_.hold();
    mappings_.erase(reinterpret_cast<std::uintptr_t>(at));
}

namespace {

/// The store under way on this thread.
struct pending_store {
    std::byte* page = nullptr;
    std::byte* device_side = nullptr;
    std::uint32_t uar = 0;
    std::uint32_t offset = 0;
};
thread_local pending_store pending;

}  // namespace

bool machine::begin_store(void* at) {
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    const auto page = address & ~(page_bytes - 1);
    {
        const auto held = device_.hold();
        const auto found = mappings_.find(page);
        if (found == mappings_.end()) return false;
        pending = {.page = reinterpret_cast<std::byte*>(page),
                   .device_side = found->second.device_side,
                   .uar = found->second.uar,
                   .offset = static_cast<std::uint32_t>(address - page)};
    }
    ::mprotect(pending.page, page_bytes, PROT_READ | PROT_WRITE);
    return true;
}

void machine::end_store() {
    ::mprotect(pending.page, page_bytes, PROT_READ);
    const auto held = device_.hold();
    device_.store(pending.uar, pending.offset & ~7U,
                  load64(pending.device_side + (pending.offset & ~7U)));
    while (device_.step()) {
    }
}

}  // namespace softmlx5::front
