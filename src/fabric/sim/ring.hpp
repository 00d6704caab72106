#pragma once
// A queue whose elements are addressed by ever-growing positions. Grows by doubling and keeps its
// room, so that a steady queue never allocates.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace rvget::fabric::sim {

template <class T>
class ring {
public:
    [[nodiscard]] std::uint64_t front() const noexcept { return front_; }
    [[nodiscard]] std::uint64_t back() const noexcept { return back_; }  ///< one past the last
    [[nodiscard]] std::size_t size() const noexcept { return back_ - front_; }

    T& operator[](std::uint64_t position) noexcept { return slots_[position & mask()]; }
    const T& operator[](std::uint64_t position) const noexcept { return slots_[position & mask()]; }

    void push(const T& value) {
        if (size() == slots_.size()) grow();
        slots_[back_++ & mask()] = value;
    }
    void pop_until(std::uint64_t position) noexcept { front_ = position; }

private:
    [[nodiscard]] std::size_t mask() const noexcept { return slots_.size() - 1; }
    void grow() {
        std::vector<T> larger(slots_.empty() ? 8 : slots_.size() * 2);
        for (auto i = front_; i != back_; ++i) larger[i & (larger.size() - 1)] = (*this)[i];
        slots_ = std::move(larger);
    }

    std::vector<T> slots_;
    std::uint64_t front_ = 0;
    std::uint64_t back_ = 0;
};

}  // namespace rvget::fabric::sim
