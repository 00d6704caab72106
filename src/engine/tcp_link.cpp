#include "engine/tcp_link.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <utility>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

namespace rvget::engine {
namespace {

/// One turn moves at most about this much, then lets others have theirs.
constexpr std::size_t turn_budget = std::size_t{4} << 20;

/// Read together with the end of a payload: room for the next frame's prefix and head, so that a
/// stream of chunks needs no read of its own for them; small, because what it catches of the next
/// payload has to be copied.
constexpr std::size_t read_behind = 4096;

/// Frames that an accepted link queues before it stops reading: a peer that asks without reading
/// the answers then fills its own socket, not our memory. Only accepted links: with both ends
/// waiting for each other's reading, neither would read.
constexpr std::size_t most_queued = 4096;

/// The numeric address; an IPv4 peer of a dual-stack socket shows as what it is.
endpoint_address name_of(int fd, int (*query)(int, sockaddr*, socklen_t*)) {
    sockaddr_storage storage{};
    socklen_t length = sizeof storage;
    if (query(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
        return {"unknown", 0};  // the connection was reset before anyone looked at it
    }
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
    if (storage.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
        sockaddr_in v4{};
        v4.sin_family = AF_INET;
        v4.sin_port = v6->sin6_port;
        std::memcpy(&v4.sin_addr, v6->sin6_addr.s6_addr + 12, sizeof v4.sin_addr);
        std::memcpy(&storage, &v4, sizeof v4);
        length = sizeof v4;
    }
    char host[NI_MAXHOST] = "";
    ::getnameinfo(reinterpret_cast<const sockaddr*>(&storage), length, host, sizeof host, nullptr,
                  0, NI_NUMERICHOST);
    const in_port_t port = storage.ss_family == AF_INET6
                               ? v6->sin6_port
                               : reinterpret_cast<const sockaddr_in*>(&storage)->sin_port;
    return {host, ntohs(port)};
}

void set_options(int fd, duration peer_timeout) {
    using namespace std::chrono;
    const auto set = [fd](int level, int option, int value) {
        // A kernel without one of them serves all the same, only slower or later to notice.
        ::setsockopt(fd, level, option, &value, sizeof value);
    };
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    // An idle connection is probed after half the time and then twice more; one with unacknowledged
    // bytes ends by the user timeout (RFC 5482), which also bounds the probes (tcp(7)).
    const auto whole = static_cast<int>(
        std::max<std::int64_t>(duration_cast<milliseconds>(peer_timeout).count(), 1000));
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, std::max(whole / 2000, 1));
    set(IPPROTO_TCP, TCP_KEEPINTVL, std::max(whole / 4000, 1));
    set(IPPROTO_TCP, TCP_KEEPCNT, 2);
    set(IPPROTO_TCP, TCP_USER_TIMEOUT, whole);
}

}  // namespace

std::shared_ptr<tcp_link> tcp_link::connected(std::shared_ptr<tcp_link_context> context, int fd,
                                              const std::string& host) {
    auto stream = context->tls ? context->tls->connector(fd, host) : make_plain_stream(fd);
    return make(std::move(context), fd, std::move(stream), nullptr);
}

std::shared_ptr<tcp_link> tcp_link::accepted(std::shared_ptr<tcp_link_context> context, int fd,
                                             std::shared_ptr<const void> admission) {
    auto stream = context->tls ? context->tls->acceptor(fd) : make_plain_stream(fd);
    return make(std::move(context), fd, std::move(stream), std::move(admission));
}

std::shared_ptr<tcp_link> tcp_link::make(std::shared_ptr<tcp_link_context> context, int fd,
                                         std::unique_ptr<byte_stream> stream,
                                         std::shared_ptr<const void> admission) {
    auto socket = context->loop->adopt(fd);
    if (!socket) {
        return nullptr;
    }
    set_options(fd, context->peer_timeout);
    return std::shared_ptr<tcp_link>(new tcp_link(std::move(context), std::move(socket),
                                                  std::move(stream), std::move(admission)));
}

tcp_link::tcp_link(std::shared_ptr<tcp_link_context> context, std::unique_ptr<descriptor> socket,
                   std::unique_ptr<byte_stream> stream, std::shared_ptr<const void> admission)
    : context_(std::move(context)),
      loop_(*context_->loop),
      socket_(std::move(socket)),
      stream_(std::move(stream)),
      admission_(std::move(admission)),
      peer_(name_of(socket_->native(), ::getpeername)),
      own_(name_of(socket_->native(), ::getsockname)) {
    loop_.tell_stopping(*this);
}

tcp_link::~tcp_link() { loop_.forget(*this); }

void tcp_link::start(std::shared_ptr<control_link_events> events) {
    events_ = std::move(events);
    if (socket_) {
        await_readable();
    } else {
        loop_.post([self = shared_from_this()] { self->tell_closed(); });
    }
}

// --- sending ---

void tcp_link::send(std::vector<std::byte> head, frame_payload payload) {
    if (!receiving()) {
        return;  // the connection ended or is about to: on_closed says so
    }
    if (head.empty() || head.size() > wire::max_head_bytes ||
        payload.bytes.size() > wire::max_payload_bytes) {
        end({node_errc::internal, "a frame of " + std::to_string(head.size()) + " + " +
                                      std::to_string(payload.bytes.size()) + " bytes for " +
                                      peer_name() +
                                      " is beyond the protocol's limits; please report it"});
        return;
    }
    const auto prefix = wire::encode_prefix({static_cast<std::uint32_t>(head.size()),
                                             static_cast<std::uint32_t>(payload.bytes.size())});
    queue_.push_back({prefix, std::move(head), std::move(payload)});
    queued_bytes_ += queue_.back().bytes();
    if (!flush_due_) {
        flush_due_ = true;
        loop_.at_turn_end(shared_from_this());
    }
}

void tcp_link::resume() { flush(); }

void tcp_link::writable() {
    awaits_writable_ = false;
    if (std::exchange(read_awaits_writable_, false)) receive_what_is_there();
    flush();
}

void tcp_link::await_writable() {
    if (!std::exchange(awaits_writable_, true)) socket_->await_writable(shared_from_this());
}

void tcp_link::await_readable() {
    if (stream_->holds_bytes()) {
        loop_.post([self = shared_from_this()] { self->readable(); });
    } else {
        socket_->await_readable(shared_from_this());
    }
}

/// What one system call may take: the kernel's limit is 1024 pieces, and copying to the socket
/// buffer costs far more than a call per 21 frames.
struct tcp_link::gathered {
    std::array<iovec, 64> pieces;
    std::size_t count = 0;
};

tcp_link::gathered tcp_link::gather() const {
    gathered g;
    std::size_t skip = written_of_front_;
    const auto add = [&](std::span<const std::byte> bytes) {
        const std::size_t skipped = std::min(skip, bytes.size());
        skip -= skipped;
        bytes = bytes.subspan(skipped);
        if (!bytes.empty()) {
            g.pieces[g.count++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
        }
    };
    for (auto frame = queue_.begin(); frame != queue_.end() && g.count + 3 <= g.pieces.size();
         ++frame) {
        add(frame->prefix);
        add(frame->head);
        add(frame->payload.bytes);
    }
    return g;
}

void tcp_link::flush() {
    flush_due_ = false;
    std::size_t budget = turn_budget;
    while (socket_ && !queue_.empty()) {
        const gathered g = gather();
        const auto sent = stream_->write(std::span(g.pieces).first(g.count));
        written(sent.bytes);
        if (!socket_) {
            return;
        }
        switch (sent.state) {
            case byte_stream::state::broken:
                return broken(sent.why);
            case byte_stream::state::ended:
                return broken({connection_errc::lost, "the peer has closed it"});
            case byte_stream::state::await_readable:
                flush_due_ = true;
                flush_awaits_readable_ = true;
                return;
            case byte_stream::state::flowing:
                if (sent.bytes < budget) break;
                [[fallthrough]];
            case byte_stream::state::await_writable:
                flush_due_ = true;
                return await_writable();
        }
        budget -= sent.bytes;
    }
    if (socket_ && std::exchange(stalled_, false)) {
        await_readable();
    }
    if (socket_ && closing_) {
        // With bytes unread, close(2) would reset the connection, and the reset overtakes what was
        // just written (RFC 2525, 2.17): say that we are done and read until the peer is too.
        stream_->finish();
    }
}

void tcp_link::written(std::size_t bytes) {
    queued_bytes_ -= bytes;
    written_of_front_ += bytes;
    // `keep` may be the last holder of something that calls back in here while it dies.
    while (!queue_.empty() && written_of_front_ >= queue_.front().bytes()) {
        written_of_front_ -= queue_.front().bytes();
        const outgoing done = std::move(queue_.front());
        queue_.pop_front();
    }
}

// --- receiving ---

void tcp_link::readable() {
    if (!socket_) {
        return;
    }
    receive_what_is_there();
    if (socket_ && std::exchange(flush_awaits_readable_, false)) {
        flush();
    }
    if (!socket_) {
        return;
    }
    stalled_ = overfull();  // until the queue is written
    if (!stalled_) {
        await_readable();
    }
}

void tcp_link::receive_what_is_there() {
    std::size_t budget = turn_budget;
    while (socket_ && budget > 0 && !overfull() && receive(budget) == progress::some) {
    }
}

bool tcp_link::overfull() const noexcept {
    return admission_ && !closing_ && queue_.size() >= most_queued;
}

tcp_link::progress tcp_link::receive(std::size_t& budget) {
    if (closing_) {
        return discard();
    }
    return in_payload_ ? receive_payload(budget) : receive_frames(budget);
}

tcp_link::progress tcp_link::discard() {
    iovec all{context_->scratch.data(), context_->scratch.size()};
    return read(std::span(&all, 1)) > 0 ? progress::some : progress::none;
}

tcp_link::progress tcp_link::receive_payload(std::size_t& budget) {
    const auto rest = payload_.subspan(payload_received_);
    std::array<iovec, 2> into{
        {{rest.data(), rest.size()}, {context_->scratch.data(), read_behind}}};
    const std::size_t got = read(into);
    if (got == 0) {
        return progress::none;
    }
    budget -= std::min(got, budget);
    payload_received_ += std::min(got, rest.size());
    if (payload_received_ == payload_.size()) {
        finish_payload();
        const auto behind = std::span(context_->scratch).first(got - rest.size());
        const auto left = behind.subspan(parse(behind));
        partial_.assign(left.begin(), left.end());
    }
    // While a payload streams in, more has usually arrived by now: trying again costs less than
    // waiting for readiness.
    return progress::some;
}

tcp_link::progress tcp_link::receive_frames(std::size_t& budget) {
    auto& scratch = context_->scratch;
    std::ranges::copy(partial_, scratch.begin());
    iovec into{scratch.data() + partial_.size(), scratch.size() - partial_.size()};
    const std::size_t got = read(std::span(&into, 1));
    if (got == 0) {
        return progress::none;
    }
    budget -= std::min(got, budget);
    // What other threads asked for may be what the peer's frames are about: a handle that was
    // staged, told and asked for, all since this turn began.
    loop_.take_posted();
    if (!socket_ || closing_) {
        return progress::none;
    }
    const auto bytes = std::span(scratch).first(partial_.size() + got);
    const auto left = bytes.subspan(parse(bytes));
    partial_.assign(left.begin(), left.end());
    // A short read emptied the socket; the wait notices what came since.
    return got == into.iov_len || in_payload_ ? progress::some : progress::none;
}

std::size_t tcp_link::read(std::span<const iovec> into) {
    const auto got = stream_->read(into);
    if (got.state == byte_stream::state::await_writable) {
        read_awaits_writable_ = true;
        await_writable();
    }
    if (got.bytes > 0) {
        loop_.time_passed();
        return got.bytes;
    }
    if (got.state == byte_stream::state::broken) {
        broken(got.why);
    } else if (got.state != byte_stream::state::ended) {
        return 0;
    } else if (closing_) {
        end({connection_errc::lost, "closed by this end"});
    } else {
        end({connection_errc::lost,
             peer_name() + " closed the connection" +
                 (in_payload_ || !partial_.empty() ? " in the middle of a frame" : "")});
    }
    return 0;
}

/// Takes what is whole off the front of `bytes`, and payload that has begun; returns the number of
/// bytes taken. What is left is the beginning of a frame.
std::size_t tcp_link::parse(std::span<const std::byte> bytes) {
    std::size_t at = 0;
    while (receiving()) {
        const auto left = bytes.subspan(at);
        if (in_payload_) {
            const auto part =
                left.first(std::min(left.size(), payload_.size() - payload_received_));
            std::ranges::copy(part,
                              payload_.begin() + static_cast<std::ptrdiff_t>(payload_received_));
            payload_received_ += part.size();
            at += part.size();
            if (payload_received_ < payload_.size()) {
                return at;
            }
            finish_payload();
            continue;
        }
        if (left.size() < wire::prefix_bytes) {
            return at;
        }
        const auto prefix = wire::decode_prefix(left.first<wire::prefix_bytes>());
        if (!prefix) {
            failure why = prefix.error();
            why.detail = peer_name() + " sent what is no frame: " + why.detail;
            end(std::move(why));
            break;
        }
        if (left.size() < wire::prefix_bytes + prefix->head_bytes) {
            return at;
        }
        const auto head = left.subspan(wire::prefix_bytes, prefix->head_bytes);
        at += wire::prefix_bytes + head.size();
        if (prefix->payload_bytes == 0) {
            events_->on_frame(head, {});
            continue;
        }
        payload_ = events_->payload_destination(head, prefix->payload_bytes);
        if (payload_.empty() && bytes.size() - at >= prefix->payload_bytes) {
            at += prefix->payload_bytes;
            if (receiving()) {
                events_->on_frame(head,
                                  bytes.subspan(at - prefix->payload_bytes, prefix->payload_bytes));
            }
        } else if (!begin_payload(head, prefix->payload_bytes)) {
            break;
        }
    }
    return bytes.size();
}

bool tcp_link::begin_payload(std::span<const std::byte> head, std::size_t payload_bytes) {
    if (!receiving()) {
        return false;
    }
    tell_payload_ = payload_.empty();
    if (tell_payload_) {
        receive_to_own(payload_bytes);
    } else if (payload_.size() != payload_bytes) {
        end({node_errc::internal, "a destination of " + std::to_string(payload_.size()) +
                                      " bytes was given for a payload of " +
                                      std::to_string(payload_bytes) + "; please report it"});
        return false;
    }
    head_.assign(head.begin(), head.end());
    payload_received_ = 0;
    in_payload_ = true;
    return true;
}

void tcp_link::receive_to_own(std::size_t payload_bytes) {
    // Not zeroed: memory that a peer announced and never filled stays untouched.
    own_payload_ = std::make_unique_for_overwrite<std::byte[]>(payload_bytes);
    payload_ = {own_payload_.get(), payload_bytes};
}

void tcp_link::finish_payload() {
    in_payload_ = false;
    const auto own = std::move(own_payload_);
    std::span<const std::byte> told;
    if (tell_payload_) {
        told = payload_;
    }
    events_->on_frame(head_, told);
}

void tcp_link::forget_destination(std::span<std::byte> destination) {
    const std::less<> before;
    if (in_payload_ && !own_payload_ &&
        before(payload_.data(), destination.data() + destination.size()) &&
        before(destination.data(), payload_.data() + payload_.size())) {
        receive_to_own(payload_.size());
    }
}

// --- ending ---

void tcp_link::close(bool flush) {
    if (!receiving() && (flush || !socket_)) {
        return;
    }
    if (!flush || !events_) {
        end({connection_errc::lost, "closed by this end"});
        return;
    }
    closing_ = true;
    linger_ = loop_.at(loop_.now() + context_->peer_timeout, [self = shared_from_this()] {
        self->end({connection_errc::lost,
                   "closed by this end, and " + self->peer_name() + " did not read to the end"});
    });
    if (!flush_due_) {
        flush_due_ = true;
        loop_.at_turn_end(shared_from_this());
    }
}

void tcp_link::broken(const failure& why) {
    end({why.code, "the connection to " + peer_name() + " broke: " + why.detail});
}

void tcp_link::end(failure why) {
    if (!socket_) {
        return;
    }
    const auto queue =
        std::exchange(queue_, {});  // what its frames keep dies when all is consistent
    const auto self = shared_from_this();
    stream_.reset();
    socket_.reset();
    admission_.reset();
    queued_bytes_ = 0;
    written_of_front_ = 0;
    partial_.clear();
    loop_.cancel(linger_);
    closed_ = std::move(why);
    if (events_) {
        loop_.post([self] { self->tell_closed(); });
    }
}

void tcp_link::tell_closed() {
    if (const auto events = std::exchange(events_, nullptr)) {
        events->on_closed(closed_);
    }
}

void tcp_link::stopping() {
    const auto self = weak_from_this().lock();
    if (self) {
        end({node_errc::stopped, "this node stopped"});
        tell_closed();
    }
}

}  // namespace rvget::engine
