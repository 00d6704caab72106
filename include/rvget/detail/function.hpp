#pragma once
// A move-only callable for completion handlers (std::move_only_function is C++23).

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

namespace rvget::detail {

template <class Signature>
class unique_function;

/// Owns one callable, may be empty, is called at most as often as its target allows.
template <class R, class... Args>
class unique_function<R(Args...)> {
public:
    unique_function() = default;
    unique_function(std::nullptr_t) {}  // NOLINT(google-explicit-constructor)

    template <class F>
    requires(!std::same_as<std::remove_cvref_t<F>, unique_function> &&
             std::is_invocable_r_v<R, std::decay_t<F>&, Args...>)
        unique_function(F&& f)  // NOLINT(bugprone-forwarding-reference-overload): excluded above
        : target_(std::make_unique<model<std::decay_t<F>>>(std::forward<F>(f))) {}

    explicit operator bool() const noexcept { return target_ != nullptr; }
    R operator()(Args... args) { return target_->call(std::forward<Args>(args)...); }

private:
    struct concept_base {
        virtual ~concept_base() = default;
        virtual R call(Args... args) = 0;
    };
    template <class F>
    struct model final : concept_base {
        explicit model(F f) : f_(std::move(f)) {}
        R call(Args... args) override { return f_(std::forward<Args>(args)...); }
        F f_;
    };
    std::unique_ptr<concept_base> target_;
};

}  // namespace rvget::detail
