// Makes a program that knows nothing of it see the device: LD_PRELOAD=libsoftmlx5.so.

#include "softmlx5/front/machine.hpp"

namespace {

__attribute__((constructor)) void present_at_load() { softmlx5::front::machine::present(); }

}  // namespace
