// What barriers_test.py looks at: each hook of the platform alone, and what is made of them.
// Compiled for each target, never run.

#include "fabric/mlx5/completion_ring.hpp"
#include "fabric/mlx5/platform.hpp"
#include "fabric/mlx5/send_queue.hpp"

using namespace rvget::fabric::mlx5;

extern "C" {

void before_record() { hardware::before_record(); }
void before_register() { hardware::before_register(); }
void after_register() { hardware::after_register(); }
void after_owner() { hardware::after_owner(); }
void before_consumer() { hardware::before_consumer(); }
[[gnu::flatten]] void post(send_queue<>& sends) { sends.ring(); }
[[gnu::flatten]] ring_poll poll(completion_ring<>& ring, ring_completion& out) {
    return ring.poll(out);
}
[[gnu::flatten]] void publish(completion_ring<>& ring) { ring.publish(); }
[[gnu::flatten]] void arm(completion_ring<>& ring) { ring.arm(); }

}  // extern "C"
