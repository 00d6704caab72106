#include "fabric/verbs/memory.hpp"

#include <cerrno>

#include "fabric/verbs/text.hpp"

namespace rvget::fabric::verbs {

int access_flags(access rights) noexcept {
    int flags = 0;
    if (has(rights, access::local_write)) flags |= IBV_ACCESS_LOCAL_WRITE;
    if (has(rights, access::remote_read)) flags |= IBV_ACCESS_REMOTE_READ;
    if (has(rights, access::remote_write)) flags |= IBV_ACCESS_REMOTE_WRITE;
    if (has(rights, access::window_bind)) flags |= IBV_ACCESS_MW_BIND;
    return flags;
}

result<std::unique_ptr<memory_region>> region::make(std::shared_ptr<const context> parent,
                                                    std::span<std::byte> memory, access rights) {
    if (memory.empty()) {
        return failure{request_errc::invalid_argument,
                       parent->device + ": a memory region of 0 bytes cannot be registered"};
    }
    errno = 0;
    auto* mr = ibv_reg_mr(parent->domain.get(), memory.data(), memory.size(), access_flags(rights));
    if (mr == nullptr) return registration_failure(parent->device, memory.size(), errno);
    return std::unique_ptr<memory_region>(new region(std::move(parent), memory, mr));
}

result<std::unique_ptr<memory_region>> region::make_of_dmabuf(std::shared_ptr<const context> parent,
                                                              int descriptor, std::uint64_t offset,
                                                              std::span<std::byte> mapped,
                                                              access rights) {
    errno = 0;
    auto* mr = ibv_reg_dmabuf_mr(parent->domain.get(), offset, mapped.size(),
                                 reinterpret_cast<std::uintptr_t>(mapped.data()), descriptor,
                                 access_flags(rights));
    if (mr != nullptr)
        return std::unique_ptr<memory_region>(new region(std::move(parent), mapped, mr));
    // EOPNOTSUPP of a driver without it, ENOTTY and EPROTONOSUPPORT of a kernel without it.
    if (errno == EOPNOTSUPP || errno == ENOSYS || errno == ENOTTY || errno == EPROTONOSUPPORT)
        return failure{request_errc::not_supported,
                       parent->device + " cannot register a dma-buf (" + errno_text(errno) +
                           "); copy into registered memory"};
    return registration_failure(parent->device, mapped.size(), errno);
}

result<std::unique_ptr<memory_window>> window::make(std::shared_ptr<const context> parent) {
    errno = 0;
    auto* mw = ibv_alloc_mw(parent->domain.get(), IBV_MW_TYPE_2);
    if (mw == nullptr) {
        const bool unsupported = errno == EOPNOTSUPP || errno == ENOSYS;
        return failure{unsupported ? make_error_code(request_errc::not_supported)
                                   : make_error_code(device_errc::resource),
                       parent->device +
                           ": allocating a type-2 memory window: " + errno_text(errno) +
                           (unsupported ? ": this device has none; use one registration per lease"
                                        : "; see `ibv_devinfo -v` and `rdma link`")};
    }
    return std::unique_ptr<memory_window>(new window(std::move(parent), mw));
}

}  // namespace rvget::fabric::verbs
