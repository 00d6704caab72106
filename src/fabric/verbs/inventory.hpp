#pragma once
// From libibverbs and sysfs to plain facts.

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include <infiniband/verbs.h>

#include "fabric/fabric.hpp"

namespace rvget::fabric::verbs {

/// The driver behind an RDMA device as rdma-core names it ("mlx5", "rxe"), empty if unknown.
/// `sysfs` is /sys, or a tree made up for a test.
[[nodiscard]] std::string driver_of(const std::filesystem::path& sysfs, std::string_view device,
                                    bool iwarp);

/// What is known without opening: name, GUID and driver; no ports.
[[nodiscard]] route::device_facts facts_unopened(ibv_device* device);

/// Everything; opening succeeded.
[[nodiscard]] result<route::device_facts> facts_of(ibv_context* context);

/// The ports as they are now, with the GID entries in use. Entries that `known` has in the same
/// place take their netdev's name from there: each wire-up looks at the table, and reading a name
/// takes four system calls.
[[nodiscard]] result<std::vector<route::port_facts>> ports_of(
    ibv_context* context, bool iwarp, unsigned count,
    std::span<const route::port_facts> known = {});

}  // namespace rvget::fabric::verbs
