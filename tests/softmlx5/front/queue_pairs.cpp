// Queue pairs by verbs: made, changed from state to state, queried.

#include <algorithm>
#include <cerrno>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>

#include "softmlx5/front/port.hpp"
#include "softmlx5/front/uverbs_file.hpp"

namespace softmlx5::front {

namespace {

/// ibv_qp_attr_mask.
enum attribute : std::uint32_t {
    attr_state = 1 << 0,
    attr_current_state = 1 << 1,
    attr_access = 1 << 3,
    attr_pkey_index = 1 << 4,
    attr_port = 1 << 5,
    attr_address = 1 << 7,
    attr_path_mtu = 1 << 8,
    attr_timeout = 1 << 9,
    attr_retry_count = 1 << 10,
    attr_rnr_retry = 1 << 11,
    attr_receive_psn = 1 << 12,
    attr_initiator_depth = 1 << 13,
    attr_alternate = 1 << 14,
    attr_min_rnr_timer = 1 << 15,
    attr_send_psn = 1 << 16,
    attr_responder_depth = 1 << 17,
    attr_migration = 1 << 18,
    attr_destination = 1 << 20,
};

/// ibv_qp_state.
enum verbs_state : std::uint8_t { reset = 0, init = 1, rtr = 2, rts = 3, error = 6 };

/// What each transition of an RC queue pair must set and may set (InfiniBand specification, table
/// 91, as the kernel checks it).
struct transition {
    verbs_state from;
    verbs_state to;
    std::uint32_t required;
    std::uint32_t optional;
};
constexpr transition transitions[] = {
    {reset, init, attr_pkey_index | attr_port | attr_access, 0},
    {init, init, 0, attr_pkey_index | attr_port | attr_access},
    {init, rtr,
     attr_address | attr_path_mtu | attr_destination | attr_receive_psn | attr_responder_depth |
         attr_min_rnr_timer,
     attr_alternate | attr_access | attr_pkey_index},
    {rtr, rts,
     attr_timeout | attr_retry_count | attr_rnr_retry | attr_send_psn | attr_initiator_depth,
     attr_current_state | attr_alternate | attr_access | attr_min_rnr_timer | attr_migration},
    {rts, rts, 0,
     attr_current_state | attr_access | attr_alternate | attr_migration | attr_min_rnr_timer},
};

bool allowed(std::uint8_t from, std::uint8_t to, std::uint32_t mask) {
    mask &= ~static_cast<std::uint32_t>(attr_state);
    if (to == reset || (to == error && from != reset)) return mask == 0;
    return std::any_of(std::begin(transitions), std::end(transitions), [&](const transition& t) {
        return t.from == from && t.to == to && (mask & t.required) == t.required &&
               (mask & ~(t.required | t.optional)) == 0;
    });
}

verbs_state state_of(queue_pair_state state) {
    switch (state) {
        case queue_pair_state::reset:
            return reset;
        case queue_pair_state::init:
            return init;
        case queue_pair_state::ready_to_receive:
            return rtr;
        case queue_pair_state::ready_to_send:
            return rts;
        case queue_pair_state::error:
            break;
    }
    return error;
}

queue_pair_state state_of(std::uint8_t state) {
    switch (state) {
        case reset:
            return queue_pair_state::reset;
        case init:
            return queue_pair_state::init;
        case rtr:
            return queue_pair_state::ready_to_receive;
        case rts:
            return queue_pair_state::ready_to_send;
        default:
            return queue_pair_state::error;
    }
}

std::uint8_t rights_of(std::uint32_t access) {
    return static_cast<std::uint8_t>(((access & 2) != 0 ? remote_write : 0) |
                                     ((access & 4) != 0 ? remote_read : 0) |
                                     ((access & 8) != 0 ? remote_atomic : 0));
}

/// Copies what `mask` names into what is known, and refuses what no port has.
int note(ib_uverbs_modify_qp& known, const ib_uverbs_modify_qp& asked, std::uint32_t mask) {
    if ((mask & attr_access) != 0) known.qp_access_flags = asked.qp_access_flags;
    if ((mask & attr_pkey_index) != 0) {
        if (asked.pkey_index != 0) return EINVAL;
        known.pkey_index = asked.pkey_index;
    }
    if ((mask & attr_port) != 0) {
        if (asked.port_num != 1) return EINVAL;
        known.port_num = asked.port_num;
    }
    if ((mask & attr_address) != 0) {
        const auto is_known = std::any_of(gid_table.begin(), gid_table.end(), [&](const auto& g) {
            return std::equal(g.bytes.begin(), g.bytes.end(), asked.dest.dgid);
        });
        if (asked.dest.is_global == 0 || asked.dest.port_num != 1 ||
            asked.dest.sgid_index >= gid_table.size()) {
            return EINVAL;
        }
        if (!is_known) return ETIMEDOUT;  // no neighbour has that address
        known.dest = asked.dest;
    }
    if ((mask & attr_path_mtu) != 0) {
        if (asked.path_mtu < 1 || asked.path_mtu > 3) return EINVAL;
        known.path_mtu = asked.path_mtu;
    }
    if ((mask & attr_timeout) != 0) known.timeout = asked.timeout;
    if ((mask & attr_retry_count) != 0) known.retry_cnt = asked.retry_cnt;
    if ((mask & attr_rnr_retry) != 0) known.rnr_retry = asked.rnr_retry;
    if ((mask & attr_receive_psn) != 0) known.rq_psn = asked.rq_psn & 0xffffff;
    if ((mask & attr_send_psn) != 0) known.sq_psn = asked.sq_psn & 0xffffff;
    if ((mask & attr_min_rnr_timer) != 0) known.min_rnr_timer = asked.min_rnr_timer;
    if ((mask & attr_destination) != 0) known.dest_qp_num = asked.dest_qp_num & 0xffffff;
    if ((mask & attr_initiator_depth) != 0) known.max_rd_atomic = asked.max_rd_atomic;
    if ((mask & attr_responder_depth) != 0) known.max_dest_rd_atomic = asked.max_dest_rd_atomic;
    return known.max_rd_atomic > 16 || known.max_dest_rd_atomic > 16 || known.retry_cnt > 7 ||
                   known.rnr_retry > 7 || known.timeout > 31
               ? EINVAL
               : 0;
}

queue_pair_path path_of(const ib_uverbs_modify_qp& known) {
    return {.port = known.port_num,
            .key_index = known.pkey_index,
            .remote_rights = rights_of(known.qp_access_flags),
            .path_mtu = 128U << known.path_mtu,
            .remote_queue_pair = known.dest_qp_num,
            .receive_sequence = known.rq_psn,
            .responder_depth = known.max_dest_rd_atomic,
            .min_rnr_timer = known.min_rnr_timer,
            .send_sequence = known.sq_psn,
            .initiator_depth = known.max_rd_atomic,
            .retry_count = known.retry_cnt,
            .rnr_retry_count = known.rnr_retry,
            .timeout_exponent = known.timeout};
}

bool sound(const mlx5_ib_create_qp& asked) {
    constexpr std::uint32_t known_flags =
        MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE | MLX5_QP_FLAG_UAR_PAGE_INDEX;
    const auto power = [](std::uint32_t n) { return (n & (n - 1)) == 0; };
    return (asked.flags & ~known_flags) == 0 && (asked.flags & MLX5_QP_FLAG_UAR_PAGE_INDEX) != 0 &&
           power(asked.sq_wqe_count) && power(asked.rq_wqe_count) && asked.sq_wqe_count <= 32768 &&
           asked.rq_wqe_count <= 32768 && asked.rq_wqe_shift <= 12 && asked.db_addr % 8 == 0 &&
           asked.buf_addr % 4096 == 0 && asked.sq_buf_addr == 0;
}

}  // namespace

int uverbs_file::create_queue_pair(const attributes& in) {
    const auto* domain = find(in.handle(UVERBS_ATTR_CREATE_QP_PD_HANDLE), kind::domain);
    const auto* sends =
        find(in.handle(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE), kind::completion_queue);
    const auto* receives =
        find(in.handle(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE), kind::completion_queue);
    const auto type = in.in<std::uint8_t>(UVERBS_ATTR_CREATE_QP_TYPE);
    const auto driver = in.in<mlx5_ib_create_qp>(UVERBS_ATTR_UHW_IN);
    const auto capacity = in.in<ib_uverbs_qp_cap>(UVERBS_ATTR_CREATE_QP_CAP);
    const auto flags = in.in<std::uint32_t>(UVERBS_ATTR_CREATE_QP_FLAGS).value_or(0);
    constexpr std::uint8_t reliable_connection = IB_UVERBS_QPT_RC;
    if (type != reliable_connection || in.find(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE) != nullptr) {
        return EOPNOTSUPP;
    }
    if (domain == nullptr || sends == nullptr || receives == nullptr || !driver || !capacity ||
        !sound(*driver) ||
        (flags & ~static_cast<std::uint32_t>(IB_UVERBS_QP_CREATE_SQ_SIG_ALL)) != 0 ||
        find_number(driver->bfreg_index, kind::uar) == nullptr) {
        return EINVAL;
    }
    object made{.is = kind::queue_pair,
                .domain = domain->number,
                .user_handle = in.in<std::uint64_t>(UVERBS_ATTR_CREATE_QP_USER_HANDLE).value_or(0),
                .capacity = *capacity,
                .all_signalled = flags != 0};
    const bool scatter = (driver->flags & MLX5_QP_FLAG_SCATTER_CQE) != 0;
    const auto stride = driver->rq_wqe_count == 0 ? 0U : 1U << driver->rq_wqe_shift;
    auto* ring = reinterpret_cast<std::byte*>(driver->buf_addr);
    made.number = machine_.nic().add_queue_pair(
        {.domain = domain->number,
         .send_queue = sends->number,
         .receive_queue = receives->number,
         .uar = driver->bfreg_index,
         .user_index = driver->uidx,
         .record = reinterpret_cast<std::byte*>(driver->db_addr),
         .sends = {ring + std::size_t{driver->rq_wqe_count} * stride, driver->sq_wqe_count},
         .receives = ring,
         .receive_count = driver->rq_wqe_count,
         .receive_stride = stride,
         // The kernel asks for answers in completions only where every request has one.
         .scatter_responses = scatter && (made.all_signalled ||
                                          (driver->flags & MLX5_QP_FLAG_ALLOW_SCATTER_CQE) != 0),
         .scatter_receives = scatter});
    const auto number = made.number;
    handle h = 0;
    add(h, std::move(made));
    in.out_handle(UVERBS_ATTR_CREATE_QP_HANDLE, h);
    in.out(UVERBS_ATTR_CREATE_QP_RESP_CAP, *capacity);
    in.out(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, number);
    in.out(UVERBS_ATTR_UHW_OUT, mlx5_ib_create_qp_resp{});
    return 0;
}

int uverbs_file::destroy_queue_pair(const attributes& in) {
    const auto h = in.handle(UVERBS_ATTR_DESTROY_QP_HANDLE);
    const auto* one = find(h, kind::queue_pair);
    if (one == nullptr) return EINVAL;
    if (events_) events_->forget(one->user_handle);
    const ib_uverbs_destroy_qp_resp out{.events_reported = one->asynchronous_reported};
    if (const int failed = destroy(h, kind::queue_pair)) return failed;
    in.out(UVERBS_ATTR_DESTROY_QP_RESP, out);
    return 0;
}

int uverbs_file::modify_queue_pair(const attributes& in) {
    ib_uverbs_modify_qp asked;
    if (!in.take(UVERBS_ATTR_CORE_IN, asked)) return EINVAL;
    auto* one = find(asked.qp_handle, kind::queue_pair);
    if (one == nullptr) return EINVAL;
    auto* pair = machine_.nic().find_queue_pair(one->number);
    const auto from = state_of(pair->state());
    const auto mask = asked.attr_mask;
    const auto to = (mask & attr_state) != 0 ? asked.qp_state : static_cast<std::uint8_t>(from);
    if (!allowed(from, to, mask)) return EINVAL;
    auto known = one->attributes;
    if (const int refused = note(known, asked, mask)) return refused;
    one->attributes = known;
    pair->path = path_of(known);
    return pair->change(state_of(to)) ? 0 : EINVAL;
}

int uverbs_file::query_queue_pair(const attributes& in) {
    ib_uverbs_query_qp asked;
    if (!in.take(UVERBS_ATTR_CORE_IN, asked)) return EINVAL;
    const auto* one = find(asked.qp_handle, kind::queue_pair);
    if (one == nullptr) return EINVAL;
    const auto& known = one->attributes;
    ib_uverbs_query_qp_resp out{};
    out.dest = known.dest;
    out.max_send_wr = one->capacity.max_send_wr;
    out.max_recv_wr = one->capacity.max_recv_wr;
    out.max_send_sge = one->capacity.max_send_sge;
    out.max_recv_sge = one->capacity.max_recv_sge;
    out.max_inline_data = one->capacity.max_inline_data;
    out.rq_psn = known.rq_psn;
    out.sq_psn = known.sq_psn;
    out.dest_qp_num = known.dest_qp_num;
    out.qp_access_flags = known.qp_access_flags;
    out.pkey_index = known.pkey_index;
    out.qp_state = out.cur_qp_state =
        state_of(machine_.nic().find_queue_pair(one->number)->state());
    out.path_mtu = known.path_mtu;
    out.max_rd_atomic = known.max_rd_atomic;
    out.max_dest_rd_atomic = known.max_dest_rd_atomic;
    out.min_rnr_timer = known.min_rnr_timer;
    out.port_num = known.port_num;
    out.timeout = known.timeout;
    out.retry_cnt = known.retry_cnt;
    out.rnr_retry = known.rnr_retry;
    out.sq_sig_all = one->all_signalled ? 1 : 0;
    in.out(UVERBS_ATTR_CORE_OUT, out);
    return 0;
}

}  // namespace softmlx5::front
