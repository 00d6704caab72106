#pragma once
// Tries a device out: memory, queue pairs, READs between two of them, an event, a window.

#include "fabric/fabric.hpp"
#include "fabric/inventory/facts.hpp"

namespace rvget::diag {

/// One trial for each usable port's best GID, added to the devices' facts. Blocking: some
/// milliseconds per port, at most about three seconds where a device does not answer.
void try_devices(fabric::provider& provider, fabric::inventory::facts& facts);

}  // namespace rvget::diag
