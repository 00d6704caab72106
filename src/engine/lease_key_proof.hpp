#pragma once
// Whether a device really does what a kind of lease key needs: it is tried out, not believed.

#include <rvget/error.hpp>

#include "wire/descriptor.hpp"

namespace rvget::engine {

class rdma_context;

/// Takes a pair of queue pairs of one port to each other, grants a key of `mode` over part of a
/// page, READs with it, compares the bytes, takes the key away and READs again, which must be
/// refused and leave the destination as it was. Blocking, some milliseconds; before the node
/// starts. The failure names the step that did not hold.
/// Precondition: the device is open.
result<void> prove_lease_key(rdma_context& rdma, wire::lease_mode mode);

}  // namespace rvget::engine
