#include "lease_keys.hpp"

#include <algorithm>
#include <array>

namespace rvget::tools {

// In the order of the enumerators.
constexpr std::array<std::string_view, 4> names{"strongest", "window", "exact", "fence"};

std::string_view name_of(lease_key_choice keys) noexcept {
    return names[static_cast<std::size_t>(keys)];
}

std::optional<lease_key_choice> lease_keys_of(std::string_view name) noexcept {
    const auto at = std::ranges::find(names, name);
    if (at == names.end()) {
        return std::nullopt;
    }
    return static_cast<lease_key_choice>(at - names.begin());
}

}  // namespace rvget::tools
