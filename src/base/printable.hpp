#pragma once
// Text that came from elsewhere, on its way to a person.

#include <string>
#include <string_view>

namespace rvget {

/// The text as UTF-8 that neither forges a line nor steers a terminal: control characters and bytes
/// that are no UTF-8 become \xNN. What came as such stays as it is.
std::string printable(std::string_view text);

}  // namespace rvget
