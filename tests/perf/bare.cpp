// The verbs calls that a get consists of, with nothing around them: what tests/perf/versus compares
// rvget with. Waits for completions by events, as rvget does; both ends of a SEND as well.
//
//     bare serve ADDRESS PORT                     one client after the other, until it is killed
//     bare measure ADDRESS PORT SIZE COUNT        prints one JSON object: medians in microseconds
//     bare wireup ADDRESS PORT SIZE COUNT         the same, of a first READ
//
// "read": an RDMA READ of SIZE bytes; "send": SEND of 64 bytes and a SEND of 64 back; "send_back":
// the same with SIZE bytes back (at most 64 KiB); "bind": a type-2 window over SIZE bytes and its
// local invalidation, each to its completion; "query": the state of a queue pair; "copy": memcpy of
// SIZE bytes into warm memory. Of a first READ: "cold": both queue pairs from making to RTS, a
// window allocated and bound, one round trip over TCP, the READ and a query of its queue pair's
// state; "prepared": the same with both queue pairs in INIT and the window allocated before;
// "ready": the same with the queue pairs in RTS before. RVGET_RDMA_DEVICE and RVGET_GID_INDEX
// (docs/bench.md) say over what.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <infiniband/verbs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

constexpr std::uint32_t request_bytes = 64;
constexpr std::uint32_t longest_answer = 64 << 10;
constexpr std::size_t served_bytes = std::size_t{16} << 20;

template <class T>
T need(T value, const char* what) {
    if (!value) {
        std::perror(what);
        std::exit(1);
    }
    return value;
}
void succeed(int error, const char* what) {
    if (error != 0) {
        std::fprintf(stderr, "%s: %s\n", what, std::strerror(error > 0 ? error : errno));
        std::exit(1);
    }
}

/// What the ends tell each other; both are of one build.
struct facts {
    std::uint32_t queue_pair;
    std::uint32_t key;
    std::uint64_t address;
    ibv_gid gid;
    std::uint32_t mtu;
    std::uint32_t answer_bytes;
};

struct end {
    ibv_context* device = nullptr;
    ibv_pd* domain = nullptr;
    ibv_comp_channel* events = nullptr;
    ibv_cq* queue = nullptr;
    ibv_qp* qp = nullptr;
    ibv_mr* region = nullptr;
    ibv_port_attr port{};
    ibv_gid gid{};
    int gid_index = 1;
    std::vector<std::byte> memory;

    explicit end(std::size_t bytes) : memory(bytes) {
        const char* const wanted = std::getenv("RVGET_RDMA_DEVICE");
        const char* const index = std::getenv("RVGET_GID_INDEX");
        if (index != nullptr) gid_index = std::atoi(index);
        int count = 0;
        ibv_device** const all = need(ibv_get_device_list(&count), "ibv_get_device_list");
        for (int i = 0; i < count && device == nullptr; ++i) {
            if (wanted == nullptr || std::strcmp(ibv_get_device_name(all[i]), wanted) == 0) {
                device = need(ibv_open_device(all[i]), "ibv_open_device");
            }
        }
        ibv_free_device_list(all);
        need(device, "no such device");
        succeed(ibv_query_port(device, 1, &port), "ibv_query_port");
        succeed(ibv_query_gid(device, 1, gid_index, &gid), "ibv_query_gid");
        domain = need(ibv_alloc_pd(device), "ibv_alloc_pd");
        events = need(ibv_create_comp_channel(device), "ibv_create_comp_channel");
        queue = need(ibv_create_cq(device, 64, nullptr, events, 0), "ibv_create_cq");
        region =
            need(ibv_reg_mr(domain, memory.data(), memory.size(),
                            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND),
                 "ibv_reg_mr");
        succeed(ibv_req_notify_cq(queue, 0), "ibv_req_notify_cq");
    }
    end(const end&) = delete;
    end& operator=(const end&) = delete;
    ~end() {
        drop();
        ibv_destroy_cq(queue);
        ibv_destroy_comp_channel(events);
        ibv_dereg_mr(region);
        ibv_dealloc_pd(domain);
        ibv_close_device(device);
    }

    [[nodiscard]] facts own(std::uint32_t answer_bytes) const {
        return {qp != nullptr ? qp->qp_num : 0,
                region->rkey,
                reinterpret_cast<std::uint64_t>(memory.data()),
                gid,
                port.active_mtu,
                answer_bytes};
    }

    /// A queue pair in INIT.
    void make() {
        ibv_qp_init_attr made{};
        made.send_cq = made.recv_cq = queue;
        made.cap = {16, 16, 1, 1, request_bytes};
        made.qp_type = IBV_QPT_RC;
        made.sq_sig_all = 1;
        qp = need(ibv_create_qp(domain, &made), "ibv_create_qp");
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_INIT;
        a.port_num = 1;
        a.qp_access_flags = IBV_ACCESS_REMOTE_READ;
        succeed(ibv_modify_qp(qp, &a,
                              IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
                "to INIT");
    }
    void drop() {
        if (qp != nullptr) succeed(ibv_destroy_qp(qp), "ibv_destroy_qp");
        qp = nullptr;
    }

    void connect(const facts& peer) {
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_RTR;
        a.path_mtu =
            static_cast<ibv_mtu>(std::min(peer.mtu, static_cast<std::uint32_t>(port.active_mtu)));
        a.dest_qp_num = peer.queue_pair;
        a.max_dest_rd_atomic = 16;
        a.min_rnr_timer = 12;
        a.ah_attr.is_global = 1;
        a.ah_attr.grh.dgid = peer.gid;
        a.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(gid_index);
        a.ah_attr.grh.hop_limit = 64;
        a.ah_attr.port_num = 1;
        succeed(ibv_modify_qp(qp, &a,
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
                "to RTR");
        a.qp_state = IBV_QPS_RTS;
        a.timeout = 14;
        a.retry_cnt = 6;
        a.rnr_retry = 6;
        a.max_rd_atomic = 16;
        succeed(ibv_modify_qp(qp, &a,
                              IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
                "to RTS");
    }

    /// One completion, by an event where there is none yet.
    ibv_wc wait() {
        for (;;) {
            ibv_wc done{};
            const int n = ibv_poll_cq(queue, 1, &done);
            if (n < 0) succeed(EIO, "ibv_poll_cq");
            if (n == 1) return done;
            ibv_cq* from = nullptr;
            void* context = nullptr;
            succeed(ibv_get_cq_event(events, &from, &context), "ibv_get_cq_event");
            ibv_ack_cq_events(queue, 1);
            succeed(ibv_req_notify_cq(queue, 0), "ibv_req_notify_cq");
        }
    }
    ibv_wc wait_good(const char* what) {
        const auto done = wait();
        if (done.status != IBV_WC_SUCCESS) {
            std::fprintf(stderr, "%s: %s\n", what, ibv_wc_status_str(done.status));
            std::exit(1);
        }
        return done;
    }

    void post(ibv_wr_opcode operation, std::uint64_t offset, std::uint32_t bytes,
              const facts* peer = nullptr) {
        ibv_sge piece{reinterpret_cast<std::uint64_t>(memory.data()) + offset, bytes, region->lkey};
        ibv_send_wr request{};
        request.sg_list = &piece;
        request.num_sge = 1;
        request.opcode = operation;
        if (peer != nullptr) {
            request.wr.rdma.remote_addr = peer->address;
            request.wr.rdma.rkey = peer->key;
        }
        ibv_send_wr* bad = nullptr;
        succeed(ibv_post_send(qp, &request, &bad), "ibv_post_send");
    }
    ibv_mw* allocate_window() const {
        return need(ibv_alloc_mw(domain, IBV_MW_TYPE_2), "ibv_alloc_mw");
    }
    void bind(ibv_mw* window, std::uint32_t bytes) {
        ibv_send_wr request{};
        request.opcode = IBV_WR_BIND_MW;
        request.bind_mw.mw = window;
        request.bind_mw.rkey = ibv_inc_rkey(window->rkey);
        request.bind_mw.bind_info = {region, reinterpret_cast<std::uint64_t>(memory.data()), bytes,
                                     IBV_ACCESS_REMOTE_READ};
        ibv_send_wr* bad = nullptr;
        succeed(ibv_post_send(qp, &request, &bad), "bind");
        wait_good("bind");
        window->rkey = request.bind_mw.rkey;
    }
    void invalidate(ibv_mw* window) {
        ibv_send_wr away{};
        away.opcode = IBV_WR_LOCAL_INV;
        away.invalidate_rkey = window->rkey;
        ibv_send_wr* bad = nullptr;
        succeed(ibv_post_send(qp, &away, &bad), "invalidate");
        wait_good("invalidate");
    }
    void query() {
        ibv_qp_attr a{};
        ibv_qp_init_attr i{};
        succeed(ibv_query_qp(qp, &a, IBV_QP_STATE, &i), "ibv_query_qp");
    }
    void post_receive(std::uint32_t bytes) {
        // Behind everything else, so that it writes nothing that is looked at.
        ibv_sge piece{reinterpret_cast<std::uint64_t>(memory.data()) + memory.size() - bytes, bytes,
                      region->lkey};
        ibv_recv_wr request{};
        request.sg_list = &piece;
        request.num_sge = 1;
        ibv_recv_wr* bad = nullptr;
        succeed(ibv_post_recv(qp, &request, &bad), "ibv_post_recv");
    }
};

int open_socket(const char* address, const char* port, bool serve) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(address, port, &hints, &found) != 0) succeed(EINVAL, "getaddrinfo");
    const int fd = socket(found->ai_family, SOCK_STREAM, 0);
    const int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (serve) {
        succeed(bind(fd, found->ai_addr, found->ai_addrlen), "bind");
        succeed(listen(fd, 4), "listen");
    } else {
        succeed(connect(fd, found->ai_addr, found->ai_addrlen), "connect");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    freeaddrinfo(found);
    return fd;
}

facts exchange(int fd, const facts& own) {
    facts peer{};
    if (write(fd, &own, sizeof own) != sizeof own) succeed(EIO, "write");
    if (recv(fd, &peer, sizeof peer, MSG_WAITALL) != sizeof peer) succeed(EIO, "read");
    return peer;
}

/// How much of a first READ is done before its time is taken; anything else ends the session.
enum class before : char { nothing = 'c', made = 'p', connected = 'r' };

bool say(int fd, char c) { return write(fd, &c, 1) == 1; }
bool hear(int fd, char& c) { return recv(fd, &c, 1, MSG_WAITALL) == 1; }

/// The owner's end of first READs, until the client hangs up.
void serve_wireups(int fd, end& e, std::uint32_t bytes) {
    char how = 0;
    while (hear(fd, how)) {
        ibv_mw* window = nullptr;
        const auto prepare = [&] {
            e.make();
            window = e.allocate_window();
        };
        facts peer{};
        const bool connected = how == static_cast<char>(before::connected);
        if (how != static_cast<char>(before::nothing)) prepare();
        if (connected) {
            peer = exchange(fd, e.own(0));
            e.connect(peer);
        }
        if (!say(fd, how)) return;
        if (recv(fd, &peer, sizeof peer, MSG_WAITALL) != sizeof peer) return;
        if (window == nullptr) prepare();
        if (!connected) e.connect(peer);
        e.bind(window, bytes);
        auto own = e.own(0);
        own.key = window->rkey;
        if (write(fd, &own, sizeof own) != sizeof own || !hear(fd, how)) return;
        // A queue pair with a window bound takes rxe 50 s to destroy.
        e.invalidate(window);
        succeed(ibv_dealloc_mw(window), "ibv_dealloc_mw");
        e.drop();
        if (!say(fd, how)) return;
    }
}

/// The consumer's end of one first READ; in microseconds.
double wireup_us(int fd, end& e, std::uint32_t size, before how) {
    char c = static_cast<char>(how);
    if (!say(fd, c)) succeed(EIO, "write");
    if (how != before::nothing) e.make();
    if (how == before::connected) e.connect(exchange(fd, e.own(size)));
    if (!hear(fd, c)) succeed(EIO, "read");
    const auto begin = std::chrono::steady_clock::now();
    if (how == before::nothing) e.make();
    const auto peer = exchange(fd, e.own(size));
    if (how != before::connected) e.connect(peer);
    e.post(IBV_WR_RDMA_READ, 0, size, &peer);
    e.wait_good("READ");
    e.query();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    if (!say(fd, c)) succeed(EIO, "write");
    e.drop();
    if (!hear(fd, c)) succeed(EIO, "read");
    return took.count();
}

int wireup(int fd, std::uint32_t size, int count) {
    end e(std::size_t{size} + longest_answer);
    exchange(fd, e.own(size));  // without a queue pair: that says what is wanted
    std::string line =
        "{\"size\": " + std::to_string(size) + ", \"count\": " + std::to_string(count);
    for (const auto& [name, how] :
         {std::pair{"cold", before::nothing}, std::pair{"prepared", before::made},
          std::pair{"ready", before::connected}}) {
        std::vector<double> took;
        for (int i = -1; i < count; ++i) {
            const double us = wireup_us(fd, e, size, how);
            if (i >= 0) took.push_back(us);
        }
        std::nth_element(took.begin(), took.begin() + count / 2, took.end());
        line += std::string(", \"") + name +
                "\": " + std::to_string(took[static_cast<std::size_t>(count) / 2]);
    }
    std::puts((line + "}").c_str());
    return 0;
}

/// Answers each SEND until the client hangs up.
void serve_one(int fd) {
    end e(served_bytes + longest_answer);
    e.make();
    const auto peer = exchange(fd, e.own(0));
    if (peer.queue_pair == 0) {
        e.drop();
        return serve_wireups(fd, e, peer.answer_bytes);
    }
    e.connect(peer);
    for (int i = 0; i < 8; ++i) e.post_receive(request_bytes);
    const char ready = 1;
    if (write(fd, &ready, 1) != 1) return;
    // The last request of a client says so by its immediate data.
    for (;;) {
        const auto done = e.wait();
        if (done.status != IBV_WC_SUCCESS) return;
        if ((done.opcode & IBV_WC_RECV) == 0) continue;
        if ((done.wc_flags & IBV_WC_WITH_IMM) != 0) return;
        e.post_receive(request_bytes);
        e.post(IBV_WR_SEND, 0, done.byte_len == request_bytes ? request_bytes : peer.answer_bytes);
    }
}

template <class Operation>
double median_us(int count, Operation operation) {
    std::vector<double> took;
    for (int i = -count / 10 - 1; i < count; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        operation();
        const std::chrono::duration<double, std::micro> t =
            std::chrono::steady_clock::now() - begin;
        if (i >= 0) took.push_back(t.count());
    }
    std::nth_element(took.begin(), took.begin() + count / 2, took.end());
    return took[static_cast<std::size_t>(count) / 2];
}

int measure(int fd, std::uint32_t size, int count) {
    end e(std::size_t{size} + longest_answer);
    e.make();
    const auto answer = std::min(size, longest_answer);
    const auto peer = exchange(fd, e.own(answer));
    e.connect(peer);
    char ready = 0;
    if (recv(fd, &ready, 1, MSG_WAITALL) != 1) succeed(EIO, "read");

    const double read = median_us(count, [&] {
        e.post(IBV_WR_RDMA_READ, 0, size, &peer);
        e.wait_good("READ");
    });
    // Which answer is wanted the request's length says: one byte less asks for the long one.
    const auto round_trip = [&](std::uint32_t request) {
        return median_us(count, [&] {
            e.post_receive(longest_answer);
            e.post(IBV_WR_SEND, 0, request);
            for (int i = 0; i < 2; ++i) e.wait_good("SEND");
        });
    };
    const double send = round_trip(request_bytes);
    const double send_back = round_trip(request_bytes - 1);

    ibv_mw* const window = e.allocate_window();
    const double bind = median_us(count, [&] {
        e.bind(window, size);
        e.invalidate(window);
    });
    succeed(ibv_dealloc_mw(window), "ibv_dealloc_mw");
    const double query = median_us(count, [&] { e.query(); });
    std::vector<std::byte> warm(size);
    const double copy = median_us(count, [&] { std::memcpy(warm.data(), e.memory.data(), size); });
    e.post(IBV_WR_SEND_WITH_IMM, 0, request_bytes);
    e.wait_good("last SEND");
    std::printf(
        "{\"size\": %u, \"count\": %d, \"read\": %.3f, \"send\": %.3f, \"send_back\": %.3f, "
        "\"bind\": %.3f, \"query\": %.3f, \"copy\": %.3f}\n",
        size, count, read, send, send_back, bind, query, copy);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string role = argc > 1 ? argv[1] : "";
    if (role == "serve" && argc == 4) {
        const int listener = open_socket(argv[2], argv[3], true);
        std::puts("listening");
        std::fflush(stdout);
        for (;;) {
            const int fd = accept(listener, nullptr, nullptr);
            if (fd < 0) succeed(errno, "accept");
            const int one = 1;
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            serve_one(fd);
            close(fd);
        }
    }
    if ((role == "measure" || role == "wireup") && argc == 6) {
        const auto size = std::strtoul(argv[4], nullptr, 10);
        const int count = std::atoi(argv[5]);
        if (size < 1 || size > served_bytes || count < 1) return 2;
        const int fd = open_socket(argv[2], argv[3], false);
        return (role == "measure" ? measure : wireup)(fd, static_cast<std::uint32_t>(size), count);
    }
    std::fprintf(stderr,
                 "usage: bare serve ADDRESS PORT\n"
                 "       bare measure|wireup ADDRESS PORT SIZE COUNT\n");
    return 2;
}
