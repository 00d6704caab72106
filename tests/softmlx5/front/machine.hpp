#pragma once
// What stands for the kernel and the hardware of this process: the device, the thread that runs it,
// and the files through which libibverbs and libmlx5 reach it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "softmlx5/core/device.hpp"
#include "softmlx5/front/event_queue.hpp"
#include "softmlx5/front/wire.hpp"

namespace softmlx5::front {

class uverbs_file;

/// How doorbells are seen, see device.hpp. SOFTMLX5_MODE says `poll` (the default), `trap`, or
/// `manual`: as poll, but nothing happens until the test calls `turn`.
enum class watch_mode : std::uint8_t { poll, trap, manual };

class machine {
public:
    /// The one of this process. Started at first use.
    static machine& instance();
    /// Writes the tree that SYSFS_PATH shall name and sets that. Called before libibverbs looks.
    static void present();

    /// Lets the device take doorbells, packets and timers once. Whether there was anything to do.
    bool turn();
    [[nodiscard]] device& nic() noexcept { return device_; }
    [[nodiscard]] watch_mode mode() const noexcept { return mode_; }

    /// What open() of the device file does.
    int open_file();
    [[nodiscard]] std::shared_ptr<uverbs_file> file_of(int descriptor);
    [[nodiscard]] std::shared_ptr<event_queue> queue_of(int descriptor);
    /// Whether that was one of ours; then it is closed.
    bool close_descriptor(int descriptor);
    std::shared_ptr<event_queue> add_queue();

    /// A UAR page: the device's view of it, and its place in the memory file.
    struct uar_page {
        std::byte* device_side = nullptr;
        std::uint64_t offset = 0;
    };
    /// Whether UAR pages are to be had; without, as on a device whose pages are all taken.
    void set_pages_left(bool yes) noexcept { pages_left_ = yes; }
    [[nodiscard]] bool pages_left() const noexcept { return pages_left_; }
    uar_page take_page();
    void give_back(const uar_page& page);
    /// What mmap() of a UAR does.
    void* map_page(void* hint, std::size_t length, int protection, int flags, std::uint64_t offset,
                   std::uint32_t uar);
    void unmap_page(void* at);
    /// A fault at `at`: true if it was a store to a UAR page of ours, which now may proceed.
    bool begin_store(void* at);
    /// The store is done: the device sees it.
    void end_store();

private:
    machine();
    void run();

    struct mapping {
        std::uint32_t uar = 0;
        std::byte* device_side = nullptr;
    };

    wire wire_;
    device device_;
    watch_mode mode_;
    int memory_file_ = -1;
    std::uint64_t memory_bytes_ = 0;
    std::atomic<bool> pages_left_ = true;
    std::vector<uar_page> free_pages_;
    std::map<std::uint64_t, std::byte*> device_sides_;  ///< by offset
    std::map<std::uintptr_t, mapping> mappings_;
    std::map<int, std::shared_ptr<uverbs_file>> files_;
    std::map<int, std::shared_ptr<event_queue>> queues_;
    std::thread thread_;
};

}  // namespace softmlx5::front
