#pragma once
// An opened device with its one protection domain: what every other verbs object keeps alive.

#include <memory>
#include <string>

#include <infiniband/verbs.h>

#include "fabric/fabric.hpp"

namespace rvget::fabric::verbs {

/// Calls an ibv_ destroy function. Its result is dropped: a destructor can do nothing about it, and
/// a kernel that refuses keeps the object until the process ends.
template <auto Destroy>
struct destroyer {
    template <class T>
    void operator()(T* object) const noexcept {
        (void)Destroy(object);
    }
};
template <class T, auto Destroy>
using owned = std::unique_ptr<T, destroyer<Destroy>>;

struct context {
    std::string device;
    fabric::quirks quirks;
    // In this order: the domain goes before the context it belongs to.
    owned<ibv_context, ibv_close_device> handle;
    owned<ibv_pd, ibv_dealloc_pd> domain;
};

}  // namespace rvget::fabric::verbs
