#pragma once
// Queue pairs made through libibverbs and libmlx5 on the software ConnectX, in one process.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "softmlx5/front/machine.hpp"

namespace softmlx5::testing {

template <class T>
T* made(T* object, const char* what) {
    if (object == nullptr) throw std::runtime_error(std::string("cannot make ") + what);
    return object;
}
inline void good(int error, const char* what) {
    if (error != 0)
        throw std::runtime_error(std::string(what) + ": errno " + std::to_string(error));
}

/// Some of these functions are inline in verbs.h, so that their addresses are no template arguments
/// of what a header declares.
struct destroyer {
    void operator()(ibv_context* p) const noexcept { ibv_close_device(p); }
    void operator()(ibv_pd* p) const noexcept { ibv_dealloc_pd(p); }
    void operator()(ibv_td* p) const noexcept { ibv_dealloc_td(p); }
    void operator()(ibv_mr* p) const noexcept { ibv_dereg_mr(p); }
    void operator()(ibv_cq* p) const noexcept { ibv_destroy_cq(p); }
    void operator()(ibv_qp* p) const noexcept { ibv_destroy_qp(p); }
    void operator()(ibv_comp_channel* p) const noexcept { ibv_destroy_comp_channel(p); }
};
template <class T>
using owned = std::unique_ptr<T, destroyer>;

/// The opened device, a domain, and memory that both ends may use.
class opened {
public:
    static constexpr std::size_t bytes = 1 << 14;

    opened() {
        front::machine::present();
        int count = 0;
        auto** list = ibv_get_device_list(&count);
        if (list == nullptr || count == 0) throw std::runtime_error("there is no device");
        context.reset(made(ibv_open_device(list[0]), "a context"));
        ibv_free_device_list(list);
        domain.reset(made(ibv_alloc_pd(context.get()), "a domain"));
        here.resize(bytes);
        there.resize(bytes);
        here_region.reset(
            made(ibv_reg_mr(domain.get(), here.data(), bytes, IBV_ACCESS_LOCAL_WRITE), "a region"));
        there_region.reset(made(
            ibv_reg_mr(domain.get(), there.data(), bytes,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND),
            "a region"));
    }
    /// Runs the device until it rests.
    static void settle() {
        auto& m = front::machine::instance();
        if (m.mode() == front::watch_mode::manual) {
            while (m.turn()) {
            }
        }
    }

    std::vector<std::byte> here;
    std::vector<std::byte> there;
    owned<ibv_context> context;
    owned<ibv_pd> domain;
    owned<ibv_mr> here_region;
    owned<ibv_mr> there_region;
};

struct end_options {
    std::uint32_t requests = 16;
    std::uint32_t pieces = 4;
    std::uint32_t inline_bytes = 64;
    std::uint32_t entries = 31;
    bool new_api = false;  ///< ibv_wr_*
    ibv_comp_channel* channel = nullptr;
};

/// One queue pair in a thread domain of its own, with a completion queue for sends and one for
/// receives.
class end {
public:
    explicit end(opened& on, const end_options& options = {}) : on_(on) {
        ibv_td_init_attr thread_attr{};
        thread.reset(made(ibv_alloc_td(on.context.get(), &thread_attr), "a thread domain"));
        ibv_parent_domain_init_attr parent_attr{};
        parent_attr.pd = on.domain.get();
        parent_attr.td = thread.get();
        parent.reset(made(ibv_alloc_parent_domain(on.context.get(), &parent_attr), "a domain"));
        const auto entries = static_cast<int>(options.entries);
        sends.reset(
            made(ibv_create_cq(on.context.get(), entries, nullptr, options.channel, 0), "a queue"));
        receives.reset(made(ibv_create_cq(on.context.get(), 63, nullptr, nullptr, 0), "a queue"));
        ibv_qp_init_attr_ex attr{};
        attr.send_cq = sends.get();
        attr.recv_cq = receives.get();
        attr.cap = {.max_send_wr = options.requests,
                    .max_recv_wr = 32,
                    .max_send_sge = options.pieces,
                    .max_recv_sge = 1,
                    .max_inline_data = options.inline_bytes};
        attr.qp_type = IBV_QPT_RC;
        attr.comp_mask = IBV_QP_INIT_ATTR_PD;
        attr.pd = parent.get();
        if (options.new_api) {
            attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
            attr.send_ops_flags =
                IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP;
        }
        mlx5dv_qp_init_attr direct{};
        direct.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
        direct.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
        pair.reset(made(mlx5dv_create_qp(on.context.get(), &attr, &direct), "a queue pair"));
    }

    void to_init() {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = 1;
        attr.qp_access_flags =
            IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
        good(ibv_modify_qp(pair.get(), &attr,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
             "to init");
    }
    void connect(const end& peer) {
        to_init();
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_RTR;
        attr.path_mtu = IBV_MTU_1024;
        attr.dest_qp_num = peer.pair->qp_num;
        attr.rq_psn = 0x77;
        attr.max_dest_rd_atomic = 16;
        attr.min_rnr_timer = 1;
        attr.ah_attr.port_num = 1;
        attr.ah_attr.is_global = 1;
        attr.ah_attr.grh.sgid_index = 1;
        attr.ah_attr.grh.hop_limit = 1;
        good(ibv_query_gid(on_.context.get(), 1, 1, &attr.ah_attr.grh.dgid), "the GID");
        good(ibv_modify_qp(pair.get(), &attr,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                               IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
             "to ready to receive");
        attr = {};
        attr.qp_state = IBV_QPS_RTS;
        attr.sq_psn = 0x77;
        attr.timeout = 14;
        attr.retry_cnt = 1;
        attr.rnr_retry = 0;
        attr.max_rd_atomic = 16;
        good(ibv_modify_qp(pair.get(), &attr,
                           IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                               IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
             "to ready to send");
    }
    void to(ibv_qp_state state) {
        ibv_qp_attr attr{};
        attr.qp_state = state;
        good(ibv_modify_qp(pair.get(), &attr, IBV_QP_STATE), "the state");
    }
    void receive(std::uint32_t count) {
        ibv_sge piece{
            .addr = reinterpret_cast<std::uintptr_t>(on_.there.data() + opened::bytes / 2),
            .length = 4096,
            .lkey = on_.there_region->lkey};
        ibv_recv_wr wr{};
        wr.sg_list = &piece;
        wr.num_sge = 1;
        ibv_recv_wr* bad = nullptr;
        for (; count > 0; --count) good(ibv_post_recv(pair.get(), &wr, &bad), "a receive");
    }
    /// The next completion of a send; nothing if the device has none.
    bool take(ibv_wc& out) {
        opened::settle();
        return ibv_poll_cq(sends.get(), 1, &out) == 1;
    }
    [[nodiscard]] mlx5dv_qp layout() const {
        mlx5dv_qp out{};
        mlx5dv_obj object{};
        object.qp = {.in = pair.get(), .out = &out};
        good(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP), "the layout");
        return out;
    }

    owned<ibv_td> thread;
    owned<ibv_pd> parent;
    owned<ibv_cq> sends;
    owned<ibv_cq> receives;
    owned<ibv_qp> pair;

private:
    opened& on_;
};

}  // namespace softmlx5::testing
