#pragma once
// A decorator over any provider that counts every call of the seam and breaks the one that a test
// chose: fails it, runs a hook around it, or turns a READ's completion into an error.
//
//     auto plan = std::make_shared<fault::plan>();
//     plan->fail(fault::call::register_memory, 2, {device_errc::registration, "memlock"});
//     auto provider = fault::make_fault_provider(std::move(real), plan);

#include <memory>

#include "fabric/fabric.hpp"
#include "fabric/fault/plan.hpp"

namespace rvget::fabric::fault {

/// Owns `beneath`. Memory regions and windows are those of `beneath` itself; completion queues must
/// go back to devices of the same decorated provider.
[[nodiscard]] std::unique_ptr<provider> make_fault_provider(std::unique_ptr<provider> beneath,
                                                            std::shared_ptr<plan> plan);

}  // namespace rvget::fabric::fault
