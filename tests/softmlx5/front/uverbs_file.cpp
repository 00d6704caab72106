#include "softmlx5/front/uverbs_file.hpp"

#include <cerrno>

#include <sys/mman.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>

namespace softmlx5::front {

uverbs_file::~uverbs_file() {
    const auto held = machine_.nic().hold();
    // As the kernel does when a process ends: users before what they use.
    for (const auto is : {kind::queue_pair, kind::completion_queue, kind::window, kind::region,
                          kind::domain, kind::uar}) {
        for (auto it = objects_.begin(); it != objects_.end();) {
            const auto h = it->first;
            const bool end = it->second.is == is;
            ++it;
            if (end) destroy(h, is);
        }
    }
}

uverbs_file::object& uverbs_file::add(handle& out, object made) {
    out = next_handle_++;
    return objects_[out] = std::move(made);
}

uverbs_file::object* uverbs_file::find(std::optional<handle> h, kind is) {
    if (!h) return nullptr;
    const auto found = objects_.find(*h);
    return found == objects_.end() || found->second.is != is ? nullptr : &found->second;
}

uverbs_file::object* uverbs_file::find_number(std::uint32_t number, kind is) {
    for (auto& [h, one] : objects_) {
        if (one.is == is && one.number == number) return &one;
    }
    return nullptr;
}

int uverbs_file::destroy(std::optional<handle> h, kind is) {
    auto* one = find(h, is);
    if (one == nullptr) return EINVAL;
    auto& nic = machine_.nic();
    // What its driver rang before this call comes first, as it would on a bus.
    if (machine_.mode() != watch_mode::trap) nic.poll();
    switch (is) {
        case kind::domain:
            for (const auto& [other, o] : objects_) {
                if (other != *h && o.domain == one->number) return EBUSY;
            }
            break;
        case kind::region:
            if (nic.keys().windows_over(one->number) > 0) return EBUSY;
            nic.keys().remove(one->number);
            break;
        case kind::window:
            nic.keys().remove(one->number);
            break;
        case kind::completion_queue:
            if (!nic.remove_completion_queue(one->number)) return EBUSY;
            if (one->channel) one->channel->forget(one->user_handle);
            if (events_) events_->forget(one->user_handle);
            break;
        case kind::queue_pair:
            nic.remove_queue_pair(one->number);
            if (events_) events_->forget(one->user_handle);
            break;
        case kind::uar:
            nic.remove_uar(one->number);
            machine_.give_back(one->page);
            break;
    }
    objects_.erase(*h);
    return 0;
}

void uverbs_file::completion_event(std::uint32_t completion_queue) {
    auto* one = find_number(completion_queue, kind::completion_queue);
    if (one == nullptr || !one->channel) return;
    const ib_uverbs_comp_event_desc event{.cq_handle = one->user_handle};
    one->channel->push(event, one->user_handle, &one->completions_reported);
}

void uverbs_file::asynchronous_event(bool queue_pair, std::uint32_t number, std::uint32_t type) {
    auto* one = find_number(number, queue_pair ? kind::queue_pair : kind::completion_queue);
    if (one == nullptr || !events_) return;
    const ib_uverbs_async_event_desc event{
        .element = one->user_handle, .event_type = type, .reserved = 0};
    events_->push(event, one->user_handle, &one->asynchronous_reported);
}

int uverbs_file::control(ib_uverbs_ioctl_hdr& header) {
    const attributes in(header);
    const auto held = machine_.nic().hold();
    switch (header.object_id) {
        case UVERBS_OBJECT_DEVICE:
            return device_call(header.method_id, in);
        case UVERBS_OBJECT_ASYNC_EVENT:
            return allocate_events(in);
        case UVERBS_OBJECT_CQ:
            return header.method_id == UVERBS_METHOD_CQ_CREATE ? create_completion_queue(in)
                                                               : destroy_completion_queue(in);
        case UVERBS_OBJECT_QP:
            return header.method_id == UVERBS_METHOD_QP_CREATE ? create_queue_pair(in)
                                                               : destroy_queue_pair(in);
        case UVERBS_OBJECT_PD:
            return destroy(in.handle(UVERBS_ATTR_DESTROY_PD_HANDLE), kind::domain);
        case UVERBS_OBJECT_MR:
            if (header.method_id != UVERBS_METHOD_MR_DESTROY) return EOPNOTSUPP;
            return destroy(in.handle(UVERBS_ATTR_DESTROY_MR_HANDLE), kind::region);
        case UVERBS_OBJECT_MW:
            return destroy(in.handle(UVERBS_ATTR_DESTROY_MW_HANDLE), kind::window);
        default:
            return mlx5_call(header.object_id, header.method_id, in);
    }
}

int uverbs_file::device_call(std::uint16_t method, const attributes& in) {
    switch (method) {
        case UVERBS_METHOD_INVOKE_WRITE:
            return invoke_write(in);
        case UVERBS_METHOD_GET_CONTEXT:
            return get_context(in);
        case UVERBS_METHOD_QUERY_PORT:
            return query_port(in);
        case UVERBS_METHOD_QUERY_GID_TABLE:
        case UVERBS_METHOD_QUERY_GID_ENTRY:
            return query_gids(method, in);
        default:
            return EOPNOTSUPP;
    }
}

int uverbs_file::invoke_write(const attributes& in) {
    const auto command = in.in<std::uint32_t>(UVERBS_ATTR_WRITE_CMD);
    if (!command) return EINVAL;
    const bool extended = (*command & IB_USER_VERBS_CMD_FLAG_EXTENDED) != 0;
    // What a command needs and does not get is ENOSPC: libibverbs probes with that.
    if (in.find(UVERBS_ATTR_CORE_IN) == nullptr && in.find(UVERBS_ATTR_CORE_OUT) == nullptr) {
        return ENOSPC;
    }
    switch (*command & IB_USER_VERBS_CMD_COMMAND_MASK) {
        case IB_USER_VERBS_CMD_QUERY_DEVICE:
            return query_device(in, extended);
        case IB_USER_VERBS_CMD_ALLOC_PD:
            return allocate_domain(in);
        case IB_USER_VERBS_CMD_REG_MR:
            return register_memory(in);
        case IB_USER_VERBS_CMD_ALLOC_MW:
            return allocate_window(in);
        case IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL:
            return create_channel(in);
        case IB_USER_VERBS_CMD_MODIFY_QP:
            return modify_queue_pair(in);
        case IB_USER_VERBS_CMD_QUERY_QP:
            return query_queue_pair(in);
        default:
            return EOPNOTSUPP;
    }
}

int uverbs_file::allocate_events(const attributes& in) {
    events_ = machine_.add_queue();
    in.out_handle(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, events_->descriptor());
    return 0;
}

int uverbs_file::create_channel(const attributes& in) {
    const ib_uverbs_create_comp_channel_resp out{
        .fd = static_cast<std::uint32_t>(machine_.add_queue()->descriptor())};
    in.out(UVERBS_ATTR_CORE_OUT, out);
    return 0;
}

int uverbs_file::allocate_domain(const attributes& in) {
    object made{.is = kind::domain, .number = machine_.nic().add_domain()};
    const mlx5_ib_alloc_pd_resp driver{.pdn = made.number};
    ib_uverbs_alloc_pd_resp out{};
    add(out.pd_handle, std::move(made));
    in.out(UVERBS_ATTR_CORE_OUT, out);
    in.out(UVERBS_ATTR_UHW_OUT, driver);
    return 0;
}

int uverbs_file::register_memory(const attributes& in) {
    ib_uverbs_reg_mr asked;
    if (!in.take(UVERBS_ATTR_CORE_IN, asked)) return EINVAL;
    constexpr std::uint32_t optional = 0x3ff00000;
    constexpr std::uint32_t known = 0x1f;
    const auto* domain = find(asked.pd_handle, kind::domain);
    const auto flags = asked.access_flags & ~optional;
    if (domain == nullptr || asked.length == 0) return EINVAL;
    if ((flags & ~known) != 0) return EOPNOTSUPP;
    // A remote right to write needs the local one (C10-79 of the specification).
    if ((flags & 0xa) != 0 && (flags & 1) == 0) return EINVAL;
    const auto first = asked.start & ~std::uint64_t{4095};
    const auto span = (asked.start + asked.length - first + 4095) & ~std::uint64_t{4095};
    if (::msync(reinterpret_cast<void*>(first), span, MS_ASYNC) != 0) return EFAULT;
    memory_key entry{.domain = domain->number,
                     .start = asked.hca_va,
                     .length = asked.length,
                     .memory = reinterpret_cast<std::byte*>(asked.start),
                     .bindable = (flags & 0x10) != 0};
    if ((flags & 1) != 0) entry.rights |= local_write;
    if ((flags & 2) != 0) entry.rights |= remote_write;
    if ((flags & 4) != 0) entry.rights |= remote_read;
    if ((flags & 8) != 0) entry.rights |= remote_atomic;
    ib_uverbs_reg_mr_resp out{};
    out.lkey = out.rkey = machine_.nic().keys().add(entry);
    add(out.mr_handle, {.is = kind::region, .number = out.lkey, .domain = domain->number});
    in.out(UVERBS_ATTR_CORE_OUT, out);
    return 0;
}

int uverbs_file::allocate_window(const attributes& in) {
    ib_uverbs_alloc_mw asked;
    if (!in.take(UVERBS_ATTR_CORE_IN, asked)) return EINVAL;
    constexpr std::uint8_t type_2 = 2;
    if (asked.mw_type != type_2) return EOPNOTSUPP;
    const auto* domain = find(asked.pd_handle, kind::domain);
    if (domain == nullptr) return EINVAL;
    ib_uverbs_alloc_mw_resp out{};
    out.rkey = machine_.nic().keys().add({.domain = domain->number, .window = true, .free = true});
    add(out.mw_handle, {.is = kind::window, .number = out.rkey, .domain = domain->number});
    in.out(UVERBS_ATTR_CORE_OUT, out);
    return 0;
}

int uverbs_file::create_completion_queue(const attributes& in) {
    const auto entries = in.in<std::uint32_t>(UVERBS_ATTR_CREATE_CQ_CQE);
    const auto user = in.in<std::uint64_t>(UVERBS_ATTR_CREATE_CQ_USER_HANDLE);
    const auto driver = in.in<mlx5_ib_create_cq>(UVERBS_ATTR_UHW_IN);
    if (!entries || !user || !driver) return EINVAL;
    const auto count = *entries + 1;
    constexpr auto known_flags = MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX;
    if ((count & (count - 1)) != 0 || count > 1U << 22 ||
        (driver->cqe_size != 64 && driver->cqe_size != 128) || driver->cqe_comp_en != 0 ||
        (driver->flags & ~known_flags) != 0 || (driver->flags & known_flags) == 0 ||
        driver->db_addr % 8 != 0 || driver->buf_addr % 64 != 0 ||
        find_number(driver->uar_page_index, kind::uar) == nullptr) {
        return EINVAL;
    }
    object made{.is = kind::completion_queue, .user_handle = *user};
    if (const auto fd = in.descriptor(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL)) {
        made.channel = machine_.queue_of(*fd);
        if (!made.channel) return EBADF;
    }
    made.number = machine_.nic().add_completion_queue(
        {.ring = reinterpret_cast<std::byte*>(driver->buf_addr),
         .record = reinterpret_cast<std::byte*>(driver->db_addr),
         .log_entries = static_cast<std::uint8_t>(__builtin_ctz(count)),
         .entry_bytes = static_cast<std::uint16_t>(driver->cqe_size),
         .uar = driver->uar_page_index});
    const mlx5_ib_create_cq_resp out{.cqn = made.number, .reserved = 0};
    handle h = 0;
    add(h, std::move(made));
    in.out_handle(UVERBS_ATTR_CREATE_CQ_HANDLE, h);
    in.out(UVERBS_ATTR_CREATE_CQ_RESP_CQE, *entries);
    in.out(UVERBS_ATTR_UHW_OUT, out);
    return 0;
}

int uverbs_file::destroy_completion_queue(const attributes& in) {
    const auto h = in.handle(UVERBS_ATTR_DESTROY_CQ_HANDLE);
    auto* one = find(h, kind::completion_queue);
    if (one == nullptr) return EINVAL;
    if (one->channel) one->channel->forget(one->user_handle);
    const ib_uverbs_destroy_cq_resp out{.comp_events_reported = one->completions_reported,
                                        .async_events_reported = one->asynchronous_reported};
    if (const int error = destroy(h, kind::completion_queue)) return error;
    in.out(UVERBS_ATTR_DESTROY_CQ_RESP, out);
    return 0;
}

int uverbs_file::allocate_uar(const attributes& in) {
    const auto type = in.in<std::uint8_t>(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE);
    if (!type || *type > 1) return EINVAL;
    if (!machine_.pages_left()) return ENOMEM;
    const auto page = machine_.take_page();
    const auto number = machine_.nic().add_uar(
        page.device_side, *type == 0 ? uar_kind::blue_flame : uar_kind::uncached);
    handle h = 0;
    add(h, {.is = kind::uar, .number = number, .page = page});
    in.out_handle(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, h);
    in.out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, page.offset);
    in.out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, device::page_bytes);
    in.out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, number);
    return 0;
}

void* uverbs_file::map(void* hint, std::size_t length, int protection, int flags,
                       std::uint64_t offset) {
    const auto held = machine_.nic().hold();
    for (const auto& [h, one] : objects_) {
        if (one.is == kind::uar && one.page.offset == offset) {
            return machine_.map_page(hint, length, protection, flags, offset, one.number);
        }
    }
    errno = EINVAL;
    return MAP_FAILED;
}

int uverbs_file::mlx5_call(std::uint16_t type, std::uint16_t method, const attributes& in) {
    if (type == MLX5_IB_OBJECT_UAR) {
        if (method == MLX5_IB_METHOD_UAR_OBJ_ALLOC) return allocate_uar(in);
        return destroy(in.handle(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE), kind::uar);
    }
    if (type == MLX5_IB_OBJECT_DEVX && method == MLX5_IB_METHOD_DEVX_OTHER) {
        const auto* out = in.find(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT);
        if (out == nullptr) return EINVAL;
        return run_command(machine_.nic(), in.bytes(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN),
                           {reinterpret_cast<std::byte*>(out->data), out->len});
    }
    return EOPNOTSUPP;
}

}  // namespace softmlx5::front
