#pragma once
// What the direct path needs of libmlx5: queue pairs and completion queues that it may take over,
// and where their memory is. libmlx5 is looked up at run time: without it there is no direct path,
// and that is no error.

#include <memory>
#include <string>

#include <infiniband/verbs.h>

#include "fabric/fabric.hpp"
#include "fabric/mlx5/completion_ring.hpp"
#include "fabric/mlx5/send_queue.hpp"

namespace rvget::fabric::mlx5 {

/// The functions of libmlx5 in use. Values of this type stay valid until the process ends.
class library {
public:
    /// Null, with the reason in `why`, where it is not installed or lacks one of them.
    static const library* find(std::string& why);

    [[nodiscard]] bool supports(ibv_device* device) const;
    /// A queue pair that its owner may take over, and that the caller owns: answers never go into
    /// completions, whatever the environment says. The failure says what is in the way.
    [[nodiscard]] result<ibv_qp*> create_queue_pair(ibv_context* context,
                                                    ibv_qp_init_attr_ex& attr) const;
    /// Only before anything was posted to it, and only if nothing else uses its register: made in a
    /// parent domain with a thread domain of its own. The failure says what is in the way.
    [[nodiscard]] result<send_queue_memory> take_over(ibv_qp* queue_pair) const;
    /// From now on libmlx5 must neither poll nor arm it.
    [[nodiscard]] result<completion_ring_memory> take_over(ibv_cq* queue) const;

private:
    library() = default;

    struct functions;
    const functions* functions_ = nullptr;
};

}  // namespace rvget::fabric::mlx5
