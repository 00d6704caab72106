#pragma once
// Texts that the other end of a check told, or a file. A listener is anybody: what a person may
// copy into a shell must hold nothing that a shell takes for its own.

#include <string>
#include <string_view>
#include <type_traits>

#include "diag/described.hpp"

namespace rvget::diag {

/// The text that was found under `key`, as it may be used: a name, which commands are made of,
/// unless the key is known to hold words, which are only shown and lose what steers a terminal.
/// Throws std::invalid_argument for what can be no name.
[[nodiscard]] std::string taken(std::string_view key, std::string_view text);

/// Takes every text of a described value that stands under `key`, and every name of a counter.
template <class T>
void take(T& value, std::string_view key = {}) {
    if constexpr (std::is_same_v<T, std::string>) {
        value = taken(key, value);
    } else if constexpr (detail::is_vector<T>::value) {
        for (auto& one : value) take(one, key);
    } else if constexpr (detail::is_optional<T>::value) {
        if (value) take(*value, key);
    } else if constexpr (detail::is_map<T>::value) {
        for (const auto& [counter, n] : value) static_cast<void>(taken("counter", counter));
    } else if constexpr (!std::is_arithmetic_v<T>) {
        boost::mp11::mp_for_each<detail::members<T>>(
            [&](auto member) { take(value.*member.pointer, member.name); });
    }
}

}  // namespace rvget::diag
