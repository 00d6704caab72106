#pragma once
// The one table of devices that misbehave in a known way.

#include "fabric/fabric.hpp"

namespace rvget::fabric {

/// The quirks of a device by its driver; a device that is not in the table has none.
[[nodiscard]] quirks quirks_of(const route::device_facts& device) noexcept;

}  // namespace rvget::fabric
