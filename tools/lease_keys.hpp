#pragma once
// What the command calls the kinds of lease keys.

#include <optional>
#include <string_view>

#include <rvget/config.hpp>

namespace rvget::tools {

std::string_view name_of(lease_key_choice keys) noexcept;
/// None where no kind has that name.
std::optional<lease_key_choice> lease_keys_of(std::string_view name) noexcept;

}  // namespace rvget::tools
