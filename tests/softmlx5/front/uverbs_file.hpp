#pragma once
// One open of the device file: the objects made through it, and the calls that make, change and end
// them. What the kernel's ib_uverbs and mlx5_ib do, as far as libibverbs and libmlx5 ask for it.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "softmlx5/front/attributes.hpp"
#include "softmlx5/front/machine.hpp"

namespace softmlx5::front {

class uverbs_file {
public:
    explicit uverbs_file(machine& m) : machine_(m) {}
    ~uverbs_file();
    uverbs_file(const uverbs_file&) = delete;
    uverbs_file& operator=(const uverbs_file&) = delete;

    /// RDMA_VERBS_IOCTL. Returns 0 or errno.
    int control(ib_uverbs_ioctl_hdr& header);
    void* map(void* hint, std::size_t length, int protection, int flags, std::uint64_t offset);

    /// The device says that something happened to an object of this file.
    void completion_event(std::uint32_t completion_queue);
    void asynchronous_event(bool queue_pair, std::uint32_t number, std::uint32_t type);

private:
    enum class kind : std::uint8_t { domain, region, window, completion_queue, queue_pair, uar };
    struct object {
        kind is = kind::domain;
        std::uint32_t number = 0;  ///< the device's: domain, key, queue, queue pair, UAR
        std::uint32_t domain = 0;  ///< the number of the domain that it lies in, 0 for none
        std::uint64_t user_handle = 0;
        std::shared_ptr<event_queue> channel;
        std::uint32_t completions_reported = 0;
        std::uint32_t asynchronous_reported = 0;
        machine::uar_page page;
        ib_uverbs_modify_qp attributes{};  ///< as set last, for queries
        ib_uverbs_qp_cap capacity{};
        bool all_signalled = false;
    };
    using handle = std::uint32_t;

    object& add(handle& out, object made);
    [[nodiscard]] object* find(std::optional<handle> h, kind is);
    [[nodiscard]] object* find_number(std::uint32_t number, kind is);
    int destroy(std::optional<handle> h, kind is);

    int device_call(std::uint16_t method, const attributes& in);
    int mlx5_call(std::uint16_t type, std::uint16_t method, const attributes& in);
    int invoke_write(const attributes& in);
    int get_context(const attributes& in);
    int query_device(const attributes& in, bool extended);
    int query_port(const attributes& in);
    int query_gids(std::uint16_t method, const attributes& in);
    int allocate_domain(const attributes& in);
    int register_memory(const attributes& in);
    int allocate_window(const attributes& in);
    int create_channel(const attributes& in);
    int create_completion_queue(const attributes& in);
    int destroy_completion_queue(const attributes& in);
    int create_queue_pair(const attributes& in);
    int destroy_queue_pair(const attributes& in);
    int modify_queue_pair(const attributes& in);
    int query_queue_pair(const attributes& in);
    int allocate_events(const attributes& in);
    int allocate_uar(const attributes& in);

    machine& machine_;
    std::map<handle, object> objects_;
    handle next_handle_ = 1;
    std::shared_ptr<event_queue> events_;
};

/// A DEVX command: its mailboxes. Returns 0, or EREMOTEIO with a syndrome in `out`.
int run_command(device& nic, std::span<const std::byte> in, std::span<std::byte> out);

}  // namespace softmlx5::front
