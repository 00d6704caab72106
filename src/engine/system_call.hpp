#pragma once
// What every use of a socket by system calls has in common.

#include <cerrno>
#include <string>

#include <sys/types.h>

#include <rvget/error.hpp>

namespace rvget::engine {

/// Repeats `call` while a signal interrupts it.
template <class Call>
ssize_t uninterrupted(Call call) {
    for (;;) {
        const ssize_t n = call();
        if (n >= 0 || errno != EINTR) return n;
    }
}

/// What the system says of an error number.
inline std::string system_text(int error) {
    return error_code(error, boost::system::system_category()).message();
}

}  // namespace rvget::engine
