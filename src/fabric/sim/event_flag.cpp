#include "fabric/sim/event_flag.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

namespace rvget::fabric::sim {

event_flag::~event_flag() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

void event_flag::raise() noexcept {
    if (raised_) return;
    raised_ = true;
    if (descriptor_ >= 0) ::eventfd_write(descriptor_, 1);
}

void event_flag::lower() noexcept {
    if (!raised_) return;
    raised_ = false;
    eventfd_t count = 0;
    if (descriptor_ >= 0) ::eventfd_read(descriptor_, &count);
}

int event_flag::descriptor() noexcept {
    if (descriptor_ < 0) {
        descriptor_ = ::eventfd(raised_ ? 1 : 0, EFD_NONBLOCK | EFD_CLOEXEC);
    }
    return descriptor_;
}

}  // namespace rvget::fabric::sim
