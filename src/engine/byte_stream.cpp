#include "engine/byte_stream.hpp"

#include <cerrno>

#include <sys/socket.h>
#include <sys/uio.h>

#include "engine/system_call.hpp"

namespace rvget::engine {
namespace {

using state = byte_stream::state;

byte_stream::outcome broken(int error) {
    return {0, state::broken, {connection_errc::lost, system_text(error)}};
}

msghdr message_of(std::span<const iovec> pieces) {
    msghdr m{};
    m.msg_iov = const_cast<iovec*>(pieces.data());
    m.msg_iovlen = pieces.size();
    return m;
}

class plain_stream final : public byte_stream {
public:
    explicit plain_stream(int fd) : fd_(fd) {}

    outcome read(std::span<const iovec> into) override {
        auto message = message_of(into);
        const auto got = uninterrupted([&] { return ::recvmsg(fd_, &message, MSG_DONTWAIT); });
        if (got > 0) return {static_cast<std::size_t>(got), state::flowing};
        if (got == 0) return {0, state::ended};
        return errno == EAGAIN ? outcome{0, state::await_readable} : broken(errno);
    }

    outcome write(std::span<const iovec> from) override {
        auto message = message_of(from);
        const auto sent =
            uninterrupted([&] { return ::sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT); });
        if (sent >= 0) return {static_cast<std::size_t>(sent), state::flowing};
        return errno == EAGAIN ? outcome{0, state::await_writable} : broken(errno);
    }

    void finish() override { ::shutdown(fd_, SHUT_WR); }
    bool holds_bytes() const override { return false; }

private:
    const int fd_;
};

}  // namespace

std::unique_ptr<byte_stream> make_plain_stream(int fd) {
    return std::make_unique<plain_stream>(fd);
}

}  // namespace rvget::engine
