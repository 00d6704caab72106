#include "base/random.hpp"

#include <cerrno>

#include <sys/random.h>

#include <boost/system/system_error.hpp>

namespace rvget {

void fill_random(std::span<std::byte> out) {
    while (!out.empty()) {
        // A signal may cut a read of more than 256 bytes short, or end it before the first byte.
        const ssize_t got = ::getrandom(out.data(), out.size(), 0);
        if (got > 0) {
            out = out.subspan(static_cast<std::size_t>(got));
        } else if (errno != EINTR) {
            throw boost::system::system_error(errno, boost::system::system_category(), "getrandom");
        }
    }
}

std::uint64_t random_u64() {
    std::uint64_t value = 0;
    while (value == 0) {
        fill_random(std::as_writable_bytes(std::span(&value, 1)));
    }
    return value;
}

}  // namespace rvget
