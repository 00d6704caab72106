#include "engine/byte_stream.hpp"

#include <cerrno>

#include <sys/socket.h>
#include <sys/uio.h>

namespace rvget::engine {
namespace {

using state = byte_stream::state;

byte_stream::outcome broken(int error) {
    return {0,
            state::broken,
            {connection_errc::lost, error_code(error, boost::system::system_category()).message()}};
}

class plain_stream final : public byte_stream {
public:
    explicit plain_stream(int fd) : fd_(fd) {}

    outcome read(std::span<const iovec> into) override {
        msghdr message{};
        message.msg_iov = const_cast<iovec*>(into.data());
        message.msg_iovlen = into.size();
        ssize_t got = 0;
        do {
            got = ::recvmsg(fd_, &message, MSG_DONTWAIT);
        } while (got < 0 && errno == EINTR);
        if (got > 0) return {static_cast<std::size_t>(got), state::flowing};
        if (got == 0) return {0, state::ended};
        return errno == EAGAIN ? outcome{0, state::await_readable} : broken(errno);
    }

    outcome write(std::span<const iovec> from) override {
        msghdr message{};
        message.msg_iov = const_cast<iovec*>(from.data());
        message.msg_iovlen = from.size();
        ssize_t sent = 0;
        do {
            sent = ::sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        } while (sent < 0 && errno == EINTR);
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
