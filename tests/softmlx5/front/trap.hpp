#pragma once
// Trap mode: UAR pages are read-only to the driver; each store faults, runs as a single step with
// the page open, and is then shown to the device. x86-64 only.

namespace softmlx5::front {

void install_trap_handlers();

}  // namespace softmlx5::front
