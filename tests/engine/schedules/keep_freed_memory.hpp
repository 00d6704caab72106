#pragma once
// Worlds come and go by the thousand, and each needs the same few hundred KiB again.

#include <malloc.h>

namespace rvget::test {

/// Half of the time of a schedule would go to the kernel, which hands the pages out anew each time.
inline void keep_freed_memory() {
    ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
    ::mallopt(M_TOP_PAD, 16 << 20);
    ::mallopt(M_MMAP_THRESHOLD, 64 << 20);
}

}  // namespace rvget::test
