// What the device says about itself.

#include <cerrno>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>

#include "softmlx5/core/bytes.hpp"
#include "softmlx5/front/port.hpp"
#include "softmlx5/front/uverbs_file.hpp"

namespace softmlx5::front {

namespace {

constexpr std::uint64_t node_guid = 0x02005efffe005301;
constexpr std::uint32_t netdev_index = 1;  ///< of lo

}  // namespace

int uverbs_file::get_context(const attributes& in) {
    const auto asked = in.in<mlx5_ib_alloc_ucontext_req_v2>(UVERBS_ATTR_UHW_IN);
    constexpr std::uint64_t needed = MLX5_LIB_CAP_4K_UAR | MLX5_LIB_CAP_DYN_UAR;
    if (!asked || (asked->lib_caps & needed) != needed || asked->max_cqe_version < 1) {
        return EOPNOTSUPP;
    }
    mlx5_ib_alloc_ucontext_resp out{};
    out.qp_tab_size = 1 << 18;
    out.bf_reg_size = 512;
    out.cache_line_size = 64;
    out.max_sq_desc_sz = 1024;
    out.max_rq_desc_sz = 512;
    out.max_send_wqebb = 32768;
    out.max_recv_wr = 32768;
    out.max_srq_recv_wr = 32768;
    out.num_ports = 1;
    out.response_length = sizeof out;
    out.cqe_version = 1;
    out.eth_min_inline = MLX5_USER_INLINE_MODE_NONE;
    out.log_uar_size = 12;
    out.num_uars_per_page = 1;
    in.out(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, std::uint32_t{1});
    in.out(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT,
           std::uint64_t{IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS});
    in.out(UVERBS_ATTR_UHW_OUT, out);
    return 0;
}

int uverbs_file::query_device(const attributes& in, bool extended) {
    ib_uverbs_ex_query_device_resp out{};
    auto& base = out.base;
    base.node_guid = base.sys_image_guid = swapped(node_guid);
    base.max_mr_size = ~std::uint64_t{0};
    base.page_size_cap = 0xfffffffffffff000;
    base.vendor_id = 0x2c9;
    base.vendor_part_id = 4129;
    base.max_qp = 1 << 16;
    base.max_qp_wr = 32768;
    // Windows of type 2, in the flavour that a queue pair's number binds; the rest is not there.
    base.device_cap_flags = 1U << 17 | 1U << 24;
    base.max_sge = 30;
    base.max_sge_rd = 30;
    base.max_cq = 1 << 16;
    base.max_cqe = (1 << 22) - 1;
    base.max_mr = 1 << 23;
    base.max_pd = 1 << 20;
    base.max_qp_rd_atom = 16;
    base.max_res_rd_atom = 1 << 20;
    base.max_qp_init_rd_atom = 16;
    base.atomic_cap = 1;
    base.max_mw = 1 << 23;
    base.max_pkeys = 1;
    base.local_ca_ack_delay = 16;
    base.phys_port_cnt = 1;
    out.response_length = sizeof out;
    if (extended) {
        in.out(UVERBS_ATTR_CORE_OUT, out);
    } else {
        in.out(UVERBS_ATTR_CORE_OUT, base);
    }
    return 0;
}

int uverbs_file::query_port(const attributes& in) {
    if (in.in<std::uint8_t>(UVERBS_ATTR_QUERY_PORT_PORT_NUM) != 1) return EINVAL;
    ib_uverbs_query_port_resp_ex out{};
    auto& port = out.legacy_resp;
    port.port_cap_flags = 1 << 26;  // IP based GIDs
    port.max_msg_sz = 1 << 30;
    port.gid_tbl_len = static_cast<std::uint32_t>(gid_table.size());
    port.pkey_tbl_len = 1;
    port.state = 4;
    port.max_mtu = 5;
    port.active_mtu = 3;
    port.max_vl_num = 0;
    port.active_width = 2;
    port.active_speed = 32;
    port.phys_state = 5;
    port.link_layer = 2;
    in.out(UVERBS_ATTR_QUERY_PORT_RESP, out);
    return 0;
}

int uverbs_file::query_gids(std::uint16_t method, const attributes& in) {
    const auto entry_of = [](std::uint32_t index) {
        ib_uverbs_gid_entry entry{};
        std::memcpy(&entry.gid, gid_table[index].bytes.data(), 16);
        entry.gid_index = index;
        entry.port_num = 1;
        entry.gid_type = static_cast<std::uint32_t>(gid_table[index].type);
        entry.netdev_ifindex = netdev_index;
        return entry;
    };
    if (method == UVERBS_METHOD_QUERY_GID_ENTRY) {
        const auto port = in.in<std::uint32_t>(UVERBS_ATTR_QUERY_GID_ENTRY_PORT);
        const auto index = in.in<std::uint32_t>(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX);
        if (port != 1 || !index || *index >= gid_table.size()) return EINVAL;
        in.out(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, entry_of(*index));
        return 0;
    }
    const auto* room = in.find(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES);
    if (room == nullptr || room->len < sizeof(ib_uverbs_gid_entry) * gid_table.size()) {
        return EINVAL;
    }
    std::array<ib_uverbs_gid_entry, gid_table.size()> all{};
    for (std::uint32_t i = 0; i < all.size(); ++i) all[i] = entry_of(i);
    in.out(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, all);
    in.out(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, std::uint64_t{all.size()});
    return 0;
}

}  // namespace softmlx5::front
