#include "engine/page_mapping.hpp"

#include <linux/mman.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>
#include <utility>

namespace rvget::engine {

namespace {

std::byte* map_pages(std::size_t bytes, int extra_flags) noexcept {
    void* const p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | extra_flags, -1, 0);
    return p == MAP_FAILED ? nullptr : static_cast<std::byte*>(p);
}

/// Ordinary pages, aligned so that the kernel can make each aligned 2 MiB one huge page.
std::byte* map_aligned(std::size_t bytes) noexcept {
    constexpr std::size_t alignment = page_mapping::huge_page_bytes;
    std::byte* const start = map_pages(bytes + alignment, 0);
    if (start == nullptr) {
        return nullptr;
    }
    const std::size_t front =
        (alignment - reinterpret_cast<std::uintptr_t>(start) % alignment) % alignment;
    if (front != 0) {
        ::munmap(start, front);
    }
    ::munmap(start + front + bytes, alignment - front);
    // Advice only: it fails where the kernel has no transparent huge pages.
    static_cast<void>(::madvise(start + front, bytes, MADV_HUGEPAGE));
    return start + front;
}

}  // namespace

std::size_t page_mapping::page_bytes() noexcept {
    static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    return bytes;
}

result<page_mapping> page_mapping::map(std::size_t bytes) {
    std::byte* start = nullptr;
    if (bytes % huge_page_bytes == 0) {
        // The size is named because the machine's default may be 1 GiB.
        start = map_pages(bytes, MAP_HUGETLB | MAP_HUGE_2MB);
        if (start == nullptr) {
            start = map_aligned(bytes);
        }
    } else {
        start = map_pages(bytes, 0);
    }
    if (start == nullptr) {
        const int error = errno;
        return failure{node_errc::out_of_memory,
                       "mmap of " + std::to_string(bytes) +
                           " bytes: " + std::generic_category().message(error) +
                           "; lower the registration budget or raise the memory limit"};
    }
    static_cast<void>(::madvise(start, bytes, MADV_DONTFORK));
    return page_mapping{std::span{start, bytes}};
}

page_mapping::page_mapping(std::span<std::byte> bytes) noexcept : bytes_(bytes) {}

page_mapping::page_mapping(page_mapping&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})) {}

page_mapping& page_mapping::operator=(page_mapping&& other) noexcept {
    page_mapping old(std::move(*this));
    bytes_ = std::exchange(other.bytes_, {});
    return *this;
}

page_mapping::~page_mapping() {
    if (!bytes_.empty()) {
        ::munmap(bytes_.data(), bytes_.size());
    }
}

}  // namespace rvget::engine
