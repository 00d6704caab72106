#pragma once
// Connections by RDMA-CM (librdmacm) for queue pairs of libibverbs.

#include <memory>
#include <string>

#include "fabric/connection.hpp"

namespace rvget::fabric::cm {

/// As device::listen() and device::connect(), for the device of that name.
result<std::unique_ptr<connection_listener>> listen(const std::string& device,
                                                    const std::string& address);
result<std::unique_ptr<connection>> connect(const std::string& device,
                                            const connection_target& target,
                                            const connection_terms& terms,
                                            std::chrono::milliseconds limit);

}  // namespace rvget::fabric::cm
