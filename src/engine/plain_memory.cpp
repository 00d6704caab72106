#include "engine/plain_memory.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

namespace rvget::engine {
namespace {

/// Sizes below this come from malloc, which recycles them well.
constexpr std::size_t smallest_recycled = std::size_t{64} << 10;
constexpr std::size_t largest_recycled = std::size_t{64} << 20;
constexpr std::size_t kept_bytes = std::size_t{128} << 20;

/// Free buffers by power of two. Leaked on purpose at exit: results may outlive static objects.
class recycler {
public:
    void* take(std::size_t class_bytes) {
        const std::lock_guard lock(mutex_);
        auto& list = lists_[index(class_bytes)];
        if (list.empty()) return nullptr;
        void* p = list.back();
        list.pop_back();
        kept_ -= class_bytes;
        return p;
    }

    void give(void* p, std::size_t class_bytes) noexcept {
        {
            const std::lock_guard lock(mutex_);
            auto& list = lists_[index(class_bytes)];
            if (kept_ + class_bytes <= kept_bytes && list.size() < list.capacity()) {
                list.push_back(p);
                kept_ += class_bytes;
                return;
            }
        }
        std::free(p);
    }

    static recycler& instance() {
        static auto* r = new recycler;
        return *r;
    }

private:
    recycler() {
        for (auto& list : lists_) list.reserve(64);
    }
    static std::size_t index(std::size_t class_bytes) {
        return static_cast<std::size_t>(std::countr_zero(class_bytes));
    }
    std::mutex mutex_;
    std::array<std::vector<void*>, 64> lists_;
    std::size_t kept_ = 0;
};

}  // namespace

buffer allocate_plain(std::size_t bytes) noexcept {
    const auto size = std::max<std::size_t>(bytes, 1);
    const bool recycled = size >= smallest_recycled && size <= largest_recycled;
    const auto class_bytes = recycled ? std::bit_ceil(size) : size;
    void* p = recycled ? recycler::instance().take(class_bytes) : nullptr;
    if (p == nullptr) p = std::malloc(class_bytes);
    if (p == nullptr) return {};
    try {
        std::shared_ptr<void> keep(p, [recycled, class_bytes](void* q) {
            if (recycled)
                recycler::instance().give(q, class_bytes);
            else
                std::free(q);
        });
        return {std::move(keep), {static_cast<std::byte*>(p), bytes}};
    } catch (const std::bad_alloc&) {
        return {};  // the deleter has run
    }
}

}  // namespace rvget::engine
