#include "fabric/mlx5/takeover.hpp"

#include <bit>
#include <cerrno>
#include <cstdlib>

#include <dlfcn.h>

#include <infiniband/mlx5dv.h>

#include "fabric/verbs/text.hpp"

namespace rvget::fabric::mlx5 {

// Our table of offsets says what the installed header says.
static_assert(sizeof(mlx5_wqe_ctrl_seg) == layout::unit);
static_assert(sizeof(mlx5_cqe64) == layout::entry);
static_assert(offsetof(mlx5_cqe64, byte_cnt) == layout::entry_bytes);
static_assert(offsetof(mlx5_cqe64, sop_drop_qpn) == layout::entry_queue_pair);
static_assert(offsetof(mlx5_cqe64, wqe_counter) == layout::entry_counter);
static_assert(offsetof(mlx5_cqe64, op_own) == layout::entry_owner);
static_assert(offsetof(mlx5_err_cqe, vendor_err_synd) == layout::entry_vendor);
static_assert(offsetof(mlx5_err_cqe, syndrome) == layout::entry_syndrome);
static_assert(MLX5_OPCODE_NOP == layout::operation_nop);
static_assert(MLX5_OPCODE_SEND == layout::operation_send);
static_assert(MLX5_OPCODE_SEND_IMM == layout::operation_send_immediate);
static_assert(MLX5_OPCODE_RDMA_READ == layout::operation_read);
static_assert(MLX5_OPCODE_ATOMIC_CS == layout::operation_compare_swap);
static_assert(MLX5_OPCODE_ATOMIC_FA == layout::operation_fetch_add);
static_assert(MLX5_WQE_CTRL_CQ_UPDATE == layout::mode_signalled);
static_assert(MLX5_WQE_CTRL_SOLICITED == layout::mode_solicited);
static_assert(MLX5_WQE_CTRL_FENCE == layout::mode_fence);
static_assert(MLX5_INLINE_SEG == layout::inline_flag);
static_assert(MLX5_CQE_REQ_ERR == layout::code_request_error);
static_assert(MLX5_CQE_INVALID == layout::code_invalid);

struct library::functions {
    decltype(&mlx5dv_is_supported) is_supported = nullptr;
    decltype(&mlx5dv_create_qp) create_qp = nullptr;
    decltype(&mlx5dv_init_obj) init_obj = nullptr;
};

const library* library::find(std::string& why) {
    // Never unloaded: libibverbs has the same file open for its provider.
    void* opened = ::dlopen("libmlx5.so.1", RTLD_NOW);
    if (opened == nullptr) {
        const char* said = ::dlerror();
        why = said != nullptr ? said : "libmlx5.so.1 cannot be loaded";
        return nullptr;
    }
    static const functions found{
        .is_supported = reinterpret_cast<decltype(&mlx5dv_is_supported)>(
            ::dlsym(opened, "mlx5dv_is_supported")),
        .create_qp =
            reinterpret_cast<decltype(&mlx5dv_create_qp)>(::dlsym(opened, "mlx5dv_create_qp")),
        .init_obj =
            reinterpret_cast<decltype(&mlx5dv_init_obj)>(::dlsym(opened, "mlx5dv_init_obj"))};
    if (found.is_supported == nullptr || found.create_qp == nullptr || found.init_obj == nullptr) {
        why = "libmlx5.so.1 lacks mlx5dv_is_supported, mlx5dv_create_qp or mlx5dv_init_obj";
        return nullptr;
    }
    static const library only = [] {
        library l;
        l.functions_ = &found;
        return l;
    }();
    return &only;
}

bool library::supports(ibv_device* device) const { return functions_->is_supported(device); }

result<ibv_qp*> library::create_queue_pair(ibv_context* context, ibv_qp_init_attr_ex& attr) const {
    const auto refused = [&](const std::string& why) {
        return failure{device_errc::resource, std::string(ibv_get_device_name(context->device)) +
                                                  ": no queue pair to be written directly: " + why +
                                                  "; verbs are used"};
    };
    // libmlx5 looks here each time, and then makes one that expects a checksum in every request.
    if (const char* sign = std::getenv("MLX5_QP_SIGNATURE"); sign != nullptr) {
        return refused("MLX5_QP_SIGNATURE is set");
    }
    mlx5dv_qp_init_attr direct{};
    direct.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
    direct.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
    errno = 0;
    auto* made = functions_->create_qp(context, &attr, &direct);
    if (made == nullptr) return refused("mlx5dv_create_qp: " + verbs::errno_text(errno));
    return made;
}

result<send_queue_memory> library::take_over(ibv_qp* queue_pair) const {
    const auto refused = [&](const std::string& why) {
        return failure{device_errc::resource,
                       std::string(ibv_get_device_name(queue_pair->context->device)) +
                           ": queue pair " + std::to_string(queue_pair->qp_num) +
                           " cannot be written directly: " + why + "; verbs are used"};
    };
    mlx5dv_qp out{};
    mlx5dv_obj object{};
    object.qp = {.in = queue_pair, .out = &out};
    if (const int error = functions_->init_obj(&object, MLX5DV_OBJ_QP)) {
        return refused("mlx5dv_init_obj fails with errno " + std::to_string(error));
    }
    if (out.sq.stride != layout::block || !std::has_single_bit(out.sq.wqe_cnt)) {
        return refused("its ring has " + std::to_string(out.sq.wqe_cnt) + " blocks of " +
                       std::to_string(out.sq.stride) + " bytes");
    }
    if (out.bf.reg == nullptr) return refused("it has no doorbell register");
    return send_queue_memory{.ring = static_cast<std::byte*>(out.sq.buf),
                             .blocks = out.sq.wqe_cnt,
                             .record = reinterpret_cast<std::uint32_t*>(out.dbrec),
                             .registers = static_cast<std::byte*>(out.bf.reg),
                             .half_bytes = out.bf.size,
                             .number = queue_pair->qp_num};
}

result<completion_ring_memory> library::take_over(ibv_cq* queue) const {
    const auto refused = [&](const std::string& why) {
        return failure{device_errc::resource,
                       std::string(ibv_get_device_name(queue->context->device)) +
                           ": a completion queue cannot be read directly: " + why +
                           "; verbs are used"};
    };
    mlx5dv_cq out{};
    mlx5dv_obj object{};
    object.cq = {.in = queue, .out = &out};
    if (const int error = functions_->init_obj(&object, MLX5DV_OBJ_CQ)) {
        return refused("mlx5dv_init_obj fails with errno " + std::to_string(error));
    }
    if (!std::has_single_bit(out.cqe_cnt) || (out.cqe_size != 64 && out.cqe_size != 128)) {
        return refused("it has " + std::to_string(out.cqe_cnt) + " entries of " +
                       std::to_string(out.cqe_size) + " bytes");
    }
    return completion_ring_memory{.ring = static_cast<const std::byte*>(out.buf),
                                  .entries = out.cqe_cnt,
                                  .entry_bytes = out.cqe_size,
                                  .record = reinterpret_cast<std::uint32_t*>(out.dbrec),
                                  .registers = static_cast<std::byte*>(out.cq_uar),
                                  .number = out.cqn};
}

}  // namespace rvget::fabric::mlx5
