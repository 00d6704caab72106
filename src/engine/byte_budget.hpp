#pragma once
// A limit over bytes that many hold at once.

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

namespace rvget::engine {

/// Any thread. What holds bytes of it holds a claim, which gives them back when it goes; a claim
/// may outlive the budget.
class byte_budget {
    struct state {
        std::size_t limit;
        std::atomic<std::size_t> used{0};
        explicit state(std::size_t l) noexcept : limit(l) {}
    };

public:
    /// Move-only.
    class claim {
    public:
        claim() = default;
        claim(claim&& other) noexcept
            : of_(std::move(other.of_)), bytes_(std::exchange(other.bytes_, 0)) {}
        claim& operator=(claim&& other) noexcept {
            claim old(std::move(*this));
            of_ = std::move(other.of_);
            bytes_ = std::exchange(other.bytes_, 0);
            return *this;
        }
        ~claim() {
            if (of_) of_->used.fetch_sub(bytes_);
        }
        [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

    private:
        friend class byte_budget;
        claim(std::shared_ptr<state> of, std::size_t bytes) noexcept
            : of_(std::move(of)), bytes_(bytes) {}
        std::shared_ptr<state> of_;
        std::size_t bytes_ = 0;
    };

    explicit byte_budget(std::size_t limit) : state_(std::make_shared<state>(limit)) {}

    /// None where they do not fit.
    [[nodiscard]] std::optional<claim> take(std::size_t bytes) const noexcept {
        auto used = state_->used.load();
        do {
            if (used > state_->limit || bytes > state_->limit - used) return std::nullopt;
        } while (!state_->used.compare_exchange_weak(used, used + bytes));
        return claim(state_, bytes);
    }
    /// Over the limit too: for what is under way and must end.
    [[nodiscard]] claim take_regardless(std::size_t bytes) const noexcept {
        state_->used.fetch_add(bytes);
        return {state_, bytes};
    }
    [[nodiscard]] std::size_t used() const noexcept { return state_->used.load(); }
    [[nodiscard]] std::size_t limit() const noexcept { return state_->limit; }
    /// As of now.
    [[nodiscard]] std::size_t room() const noexcept {
        const auto now = used();
        return now < limit() ? limit() - now : 0;
    }

private:
    std::shared_ptr<state> state_;
};

}  // namespace rvget::engine
