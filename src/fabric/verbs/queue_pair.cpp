#include "fabric/verbs/queue_pair.hpp"

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "fabric/verbs/memory.hpp"
#include "fabric/verbs/text.hpp"

namespace rvget::fabric::verbs {

namespace {

/// Every queue pair of the process gets another one; it wraps after 2^31.
std::atomic<std::uint32_t> next_epoch = 1;

/// READs chained behind one doorbell; a longer span goes out in several.
constexpr std::size_t max_chain = 32;

std::optional<ibv_mtu> mtu_of(std::uint32_t bytes) noexcept {
    if (bytes < 256 || bytes > 4096 || !std::has_single_bit(bytes)) return std::nullopt;
    return static_cast<ibv_mtu>(std::countr_zero(bytes) - 7);
}

queue_pair_state state_of(ibv_qp_state state) noexcept {
    switch (state) {
        case IBV_QPS_RESET:
            return queue_pair_state::reset;
        case IBV_QPS_INIT:
            return queue_pair_state::init;
        case IBV_QPS_RTR:
            return queue_pair_state::ready_to_receive;
        case IBV_QPS_RTS:
        case IBV_QPS_SQD:
            return queue_pair_state::ready_to_send;
        default:
            return queue_pair_state::error;
    }
}

}  // namespace

result<std::unique_ptr<fabric::queue_pair>> queue_pair::make(
    std::shared_ptr<const context> parent, std::shared_ptr<fabric::completion_queue> completions,
    const route::port_facts& port, const queue_pair_options& options) {
    auto ours = std::dynamic_pointer_cast<completion_queue>(std::move(completions));
    if (!ours || &ours->parent() != parent.get()) {
        return failure{request_errc::invalid_argument,
                       parent->device + ": the completion queue belongs to another device"};
    }
    const bool confirms = parent->quirks.success_needs_state_query;
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = ours->handle();
    attr.qp_type = IBV_QPT_RC;
    attr.cap.max_send_wr = options.send_requests + (confirms ? 1 : 0);
    attr.cap.max_recv_wr = options.receive_requests;
    attr.cap.max_send_sge = 1;
    attr.cap.max_recv_sge = 1;
    attr.cap.max_inline_data = options.inline_bytes;

    errno = 0;
    auto* made = ibv_create_qp(parent->domain.get(), &attr);
    if (made == nullptr) {
        const int error = errno;
        return failure{
            device_errc::resource,
            parent->device + ": queue pair with room for " + std::to_string(options.send_requests) +
                " sends, " + std::to_string(options.receive_requests) + " receives and " +
                std::to_string(options.inline_bytes) + " inline bytes: " + errno_text(error) +
                ": more than the device allows, or queue pairs, memory or the rdma "
                "control group's hca_object are used up; see `ibv_devinfo -v` and `rdma link`"};
    }
    return std::unique_ptr<fabric::queue_pair>(
        adopt(std::move(parent), std::move(ours), port, options, made));
}

std::unique_ptr<queue_pair> queue_pair::adopt(std::shared_ptr<const context> parent,
                                              std::shared_ptr<completion_queue> completions,
                                              const route::port_facts& port,
                                              const queue_pair_options& options, ibv_qp* made) {
    owned<ibv_qp, ibv_destroy_qp> handle(made);
    // Room in the ledger, not in the device: one for a confirmation and one for the release marker
    // after a partial post, when the device has room from what it did not take.
    auto work = std::make_shared<posted_work>(
        options.send_requests + 2, std::max(1U, options.receive_requests), next_epoch.fetch_add(1));
    work->queue_pair = made;
    std::unique_ptr<queue_pair> adopted(
        new queue_pair(std::move(parent), std::move(completions), std::move(work), port, options));
    adopted->handle_ = std::move(handle);
    return adopted;
}

queue_pair::~queue_pair() { work_->closed = true; }

result<void> queue_pair::modify(ibv_qp_attr& attr, int mask, queue_pair_state target,
                                std::string_view target_name) {
    if (const int error = ibv_modify_qp(handle_.get(), &attr, mask)) {
        transition t{.device = parent_->device,
                     .port = port_,
                     .target = target_name,
                     .own = {},
                     .gid_index = gid_index_,
                     .peer = peer_,
                     .path_mtu = path_mtu_};
        ibv_gid own{};
        if (ibv_query_gid(parent_->handle.get(), port_, static_cast<int>(gid_index_), &own) == 0) {
            std::memcpy(t.own.bytes.data(), own.raw, t.own.bytes.size());
        }
        return transition_failure(t, error);
    }
    asked_ = target;
    return {};
}

result<void> queue_pair::to_init(access remote_rights) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = port_;
    // Binding is a right of the region; a queue pair has only remote ones.
    attr.qp_access_flags = static_cast<unsigned>(access_flags(remote_rights)) &
                           (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
    return modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
                  queue_pair_state::init, "init");
}

result<void> queue_pair::to_ready_to_receive(const receive_parameters& p) {
    if (moved_by_kernel(queue_pair_state::ready_to_receive)) return {};
    const auto mtu = mtu_of(p.path_mtu);
    if (!mtu || p.gid_index > 255) {
        return failure{request_errc::invalid_argument,
                       parent_->device + ": queue pair to ready to receive: path MTU " +
                           std::to_string(p.path_mtu) +
                           " (256 to 4096, a power of two), GID index " +
                           std::to_string(p.gid_index) + " (8 bits: 0 to 255)"};
    }
    peer_.bytes = p.peer.gid;
    gid_index_ = p.gid_index;
    path_mtu_ = p.path_mtu;

    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = *mtu;
    attr.dest_qp_num = p.peer.number;
    attr.rq_psn = p.peer.starting_psn;
    attr.max_dest_rd_atomic = p.responder_depth;
    attr.min_rnr_timer = p.min_rnr_timer;
    attr.ah_attr.port_num = port_;
    attr.ah_attr.dlid = p.peer.lid;
    // RoCE routes by GID; on InfiniBand only what leaves the subnet does.
    attr.ah_attr.is_global = link_ == route::link_layer::ethernet || p.peer.lid == 0;
    std::memcpy(attr.ah_attr.grh.dgid.raw, p.peer.gid.data(), p.peer.gid.size());
    attr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(p.gid_index);
    attr.ah_attr.grh.hop_limit = p.hop_limit;
    attr.ah_attr.grh.traffic_class = p.traffic_class;
    return modify(attr,
                  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                  queue_pair_state::ready_to_receive, "ready to receive");
}

result<void> queue_pair::to_ready_to_send(const send_parameters& p) {
    if (moved_by_kernel(queue_pair_state::ready_to_send)) return {};
    const auto& retry = p.retry;
    if (retry.retry_count > 6 || retry.rnr_retry_count > 6 || retry.timeout_exponent == 0 ||
        retry.timeout_exponent > 31) {
        return failure{request_errc::invalid_argument,
                       parent_->device +
                           ": queue pair to ready to send: retry counts of 7 and a timeout of 0 "
                           "can mean for ever; at most 6, and 1 to 31"};
    }
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = p.starting_psn;
    attr.timeout = retry.timeout_exponent;
    attr.retry_cnt = retry.retry_count;
    attr.rnr_retry = retry.rnr_retry_count;
    attr.max_rd_atomic = p.initiator_depth;
    return modify(attr,
                  IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
                  queue_pair_state::ready_to_send, "ready to send");
}

/// On iWARP the kernel's connection manager moves the queue pair itself when it is connected.
bool queue_pair::moved_by_kernel(queue_pair_state target) noexcept {
    if (link_ != route::link_layer::iwarp) return false;
    asked_ = target;
    return true;
}

result<void> queue_pair::to_error() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    return modify(attr, IBV_QP_STATE, queue_pair_state::error, "error");
}

result<queue_pair_state> queue_pair::state() const {
    ibv_qp_attr attr{};
    ibv_qp_init_attr unused{};
    if (const int error = ibv_query_qp(handle_.get(), &attr, IBV_QP_STATE, &unused)) {
        return failure{device_errc::query_failed,
                       parent_->device + ": queue pair state: " + errno_text(error)};
    }
    return state_of(attr.qp_state);
}

failure queue_pair::post_failure(std::string_view what, int error) const {
    return {device_errc::post_failed, parent_->device + " port " + std::to_string(port_) +
                                          ": posting " + std::string(what) + " to queue pair " +
                                          std::to_string(number()) + ": " + errno_text(error)};
}

/// Whether `count` requests may be posted. Checked here because a device that refuses the third of
/// three has posted two, and because rxe queues what is posted too early and runs it later.
result<void> queue_pair::sendable(std::size_t count) {
    if (asked_ != queue_pair_state::ready_to_send && asked_ != queue_pair_state::error) {
        return post_failure("a request before it is ready to send", EINVAL);
    }
    const std::size_t room = options_.send_requests + (work_->confirming ? 1 : 0);
    if (work_->sends.in_use() + count > room) {
        return post_failure(std::to_string(count) + " requests with " +
                                std::to_string(work_->sends.in_use()) + " of " +
                                std::to_string(options_.send_requests) + " outstanding",
                            ENOMEM);
    }
    admit();
    return {};
}

void queue_pair::admit() {
    if (admitted_) return;
    completions_->admit(number(), work_);
    admitted_ = true;
}

result<void> queue_pair::post(ibv_send_wr* first, std::uint32_t count, std::string_view what) {
    ibv_send_wr* bad = nullptr;
    const int error = ibv_post_send(handle_.get(), first, &bad);
    if (error == 0) return {};
    if (bad == first) {
        work_->sends.take_back(count);
        return post_failure(what, error);
    }
    // Room and sizes were checked, so this is a device in trouble, and what it took (all of it
    // where it names no culprit) may run. The caller was promised all or none: it is all, and what
    // was not taken is flushed once a marker proves that the rest is done.
    std::uint32_t taken = 0;
    for (auto* one = first; one != bad && one != nullptr; one = one->next) ++taken;
    work_->sends.haunt(count - taken);
    (void)to_error();
    const auto id = work_->sends.add({.id = 0, .purpose = work_queue::purpose::release});
    // If even this is refused, nothing is ever proven and the requests stay outstanding, as they
    // are.
    if (post_empty_read(handle_.get(), id) != 0) work_->sends.take_back(1);
    return {};
}

result<void> queue_pair::post_reads(std::span<const read_request> requests) {
    for (const auto& r : requests) {
        if (r.bytes > max_message_bytes_) {
            return post_failure("a READ of " + std::to_string(r.bytes) +
                                    " bytes, over the port's " + std::to_string(max_message_bytes_),
                                EMSGSIZE);
        }
    }
    if (auto ready = sendable(requests.size()); !ready) return ready;
    if (requests.empty()) return {};

    // On the stack for the usual batch; a longer one is rare enough to allocate.
    std::array<ibv_send_wr, max_chain> few;
    std::array<ibv_sge, max_chain> few_pieces;
    std::vector<ibv_send_wr> many(requests.size() > max_chain ? requests.size() : 0);
    std::vector<ibv_sge> many_pieces(many.size());
    auto* chain = many.empty() ? few.data() : many.data();
    auto* pieces = many.empty() ? few_pieces.data() : many_pieces.data();
    for (std::size_t i = 0; i < requests.size(); ++i) {
        const auto& r = requests[i];
        pieces[i] = {.addr = reinterpret_cast<std::uintptr_t>(r.local),
                     .length = r.bytes,
                     .lkey = r.local_key};
        auto& wr = chain[i] = {};
        work_queue::entry entry{.id = r.id, .kind = operation::read, .signalled = r.signalled};
        if (r.bytes > 0) {
            entry.first_byte = {.local = pieces[i].addr,
                                .remote = r.remote_address,
                                .local_key = r.local_key,
                                .remote_key = r.remote_key};
        }
        wr.wr_id = work_->sends.add(entry);
        wr.next = i + 1 < requests.size() ? &chain[i + 1] : nullptr;
        wr.sg_list = &pieces[i];
        // No piece at all for no bytes: a length of 0 in a piece means 2^31 to some devices.
        wr.num_sge = r.bytes > 0 ? 1 : 0;
        wr.opcode = IBV_WR_RDMA_READ;
        wr.send_flags = r.signalled ? IBV_SEND_SIGNALED : 0;
        wr.wr.rdma.remote_addr = r.remote_address;
        wr.wr.rdma.rkey = r.remote_key;
    }
    return post(chain, static_cast<std::uint32_t>(requests.size()), "READs");
}

result<void> queue_pair::post_send(const send_request& request) {
    if (request.inline_data && request.bytes.size() > options_.inline_bytes) {
        return post_failure("an inline send of " + std::to_string(request.bytes.size()) +
                                " bytes where " + std::to_string(options_.inline_bytes) + " fit",
                            EMSGSIZE);
    }
    if (auto ready = sendable(1); !ready) return ready;
    ibv_sge piece{.addr = reinterpret_cast<std::uintptr_t>(request.bytes.data()),
                  .length = static_cast<std::uint32_t>(request.bytes.size()),
                  .lkey = request.local_key};
    ibv_send_wr wr{};
    wr.wr_id = work_->sends.add(
        {.id = request.id, .kind = operation::send, .signalled = request.signalled});
    wr.sg_list = &piece;
    wr.num_sge = request.bytes.empty() ? 0 : 1;
    wr.opcode = IBV_WR_SEND;
    if (request.signalled) wr.send_flags |= IBV_SEND_SIGNALED;
    if (request.inline_data) wr.send_flags |= IBV_SEND_INLINE;
    return post(&wr, 1, "a send");
}

result<void> queue_pair::post_receive(const receive_request& request) {
    if (asked_ == queue_pair_state::reset) return post_failure("a receive before init", EINVAL);
    if (work_->receives.in_use() >= options_.receive_requests) {
        return post_failure(
            "a receive with all " + std::to_string(options_.receive_requests) + " outstanding",
            ENOMEM);
    }
    admit();
    ibv_sge piece{.addr = reinterpret_cast<std::uintptr_t>(request.buffer.data()),
                  .length = static_cast<std::uint32_t>(request.buffer.size()),
                  .lkey = request.local_key};
    ibv_recv_wr wr{};
    wr.wr_id = work_->receives.add({.id = request.id, .kind = operation::receive});
    wr.sg_list = &piece;
    wr.num_sge = request.buffer.empty() ? 0 : 1;
    ibv_recv_wr* bad = nullptr;
    if (const int error = ibv_post_recv(handle_.get(), &wr, &bad)) {
        work_->receives.take_back(1);
        return post_failure("a receive", error);
    }
    return {};
}

result<void> queue_pair::post_marker(std::uint64_t id) {
    if (auto ready = sendable(1); !ready) return ready;
    const auto work_request_id = work_->sends.add({.id = id, .kind = operation::other});
    if (const int error = post_empty_read(handle_.get(), work_request_id)) {
        work_->sends.take_back(1);
        return post_failure("a marker", error);
    }
    return {};
}

result<void> queue_pair::post_bind(std::uint64_t id, memory_window& window,
                                   const memory_region& region, std::span<const std::byte> range,
                                   access rights, bool signalled) {
    auto* target = dynamic_cast<verbs::window*>(&window);
    const auto* source = dynamic_cast<const verbs::region*>(&region);
    if (target == nullptr || source == nullptr) {
        return failure{request_errc::invalid_argument,
                       parent_->device + ": the window or the region belongs to another device"};
    }
    if (auto ready = sendable(1); !ready) return ready;
    ibv_send_wr wr{};
    wr.wr_id = work_->sends.add({.id = id, .kind = operation::bind, .signalled = signalled});
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = signalled ? IBV_SEND_SIGNALED : 0;
    wr.bind_mw.mw = target->handle();
    wr.bind_mw.rkey = ibv_inc_rkey(target->handle()->rkey);
    wr.bind_mw.bind_info = {.mr = source->handle(),
                            .addr = reinterpret_cast<std::uintptr_t>(range.data()),
                            .length = range.size(),
                            .mw_access_flags = static_cast<unsigned>(access_flags(rights))};
    if (auto posted = post(&wr, 1, "a window's binding"); !posted) return posted;
    // The next bind counts up from here; libibverbs leaves this to its user for type-2 windows.
    target->handle()->rkey = wr.bind_mw.rkey;
    return {};
}

result<void> queue_pair::post_invalidate(std::uint64_t id, memory_window& window, bool signalled) {
    auto* target = dynamic_cast<verbs::window*>(&window);
    if (target == nullptr) {
        return failure{request_errc::invalid_argument,
                       parent_->device + ": the window belongs to another device"};
    }
    if (auto ready = sendable(1); !ready) return ready;
    ibv_send_wr wr{};
    wr.wr_id = work_->sends.add({.id = id, .kind = operation::invalidate, .signalled = signalled});
    wr.opcode = IBV_WR_LOCAL_INV;
    wr.send_flags = signalled ? IBV_SEND_SIGNALED : 0;
    wr.invalidate_rkey = target->handle()->rkey;
    return post(&wr, 1, "a window's invalidation");
}

}  // namespace rvget::fabric::verbs
