#pragma once
// The addresses of a netdev.

#include <string>

namespace rvget::fabric::inventory {

/// The address of `netdev` to speak from, in numbers: `wanted` where it is one of its own, else its
/// first that is no link-local one; empty where it has none.
[[nodiscard]] std::string address_of(const std::string& netdev, const std::string& wanted);

}  // namespace rvget::fabric::inventory
