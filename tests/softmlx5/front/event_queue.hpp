#pragma once
// A file descriptor from which libibverbs reads events, as it would from the kernel. An eventfd
// carries the count, so that blocking, O_NONBLOCK and poll() work by themselves.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <vector>

namespace softmlx5::front {

class event_queue {
public:
    event_queue();
    ~event_queue();
    event_queue(const event_queue&) = delete;
    event_queue& operator=(const event_queue&) = delete;

    [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
    /// `owner` is the object that the event is about; `reported` counts events that were read.
    template <class Event>
    void push(const Event& event, std::uint64_t owner, std::uint32_t* reported) {
        std::vector<std::byte> bytes(sizeof event);
        std::memcpy(bytes.data(), &event, sizeof event);
        push_bytes(std::move(bytes), owner, reported);
    }
    /// What read() on the descriptor does.
    ssize_t read(void* to, std::size_t bytes);
    /// Takes back the events of an object that goes away.
    void forget(std::uint64_t owner);

private:
    struct entry {
        std::vector<std::byte> bytes;
        std::uint64_t owner = 0;
        std::uint32_t* reported = nullptr;
    };
    void push_bytes(std::vector<std::byte> bytes, std::uint64_t owner, std::uint32_t* reported);

    std::mutex mutex_;
    int descriptor_;
    std::deque<entry> entries_;
};

}  // namespace softmlx5::front
