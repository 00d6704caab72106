#include "fabric/inventory/netlink.hpp"

#include <array>
#include <cstring>

#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace rvget::fabric::inventory {

namespace {

void append(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
    to.insert(to.end(), bytes.begin(), bytes.end());
    to.resize(NLMSG_ALIGN(to.size()));
}

/// Calls `message` for each message of one datagram; nullopt: more will come, else success.
std::optional<bool> take(std::span<const std::byte> datagram, bool dump,
                         const std::function<void(std::span<const std::byte>)>& message) {
    while (datagram.size() >= sizeof(nlmsghdr)) {
        nlmsghdr header{};
        std::memcpy(&header, datagram.data(), sizeof header);
        if (header.nlmsg_len < sizeof header || header.nlmsg_len > datagram.size()) return false;
        const auto body = datagram.subspan(sizeof header, header.nlmsg_len - sizeof header);
        if (header.nlmsg_type == NLMSG_DONE) return true;
        if (header.nlmsg_type == NLMSG_ERROR) {
            int error = -1;
            if (body.size() >= sizeof error) std::memcpy(&error, body.data(), sizeof error);
            return error == 0;
        }
        message(body);
        if (!dump) return true;
        datagram =
            datagram.subspan(std::min<std::size_t>(NLMSG_ALIGN(header.nlmsg_len), datagram.size()));
    }
    return std::nullopt;
}

}  // namespace

netlink_request::netlink_request(std::uint16_t type, std::uint16_t flags,
                                 std::span<const std::byte> header) {
    const nlmsghdr h{.nlmsg_len = 0,
                     .nlmsg_type = type,
                     .nlmsg_flags = static_cast<std::uint16_t>(flags | NLM_F_REQUEST),
                     .nlmsg_seq = 1,
                     .nlmsg_pid = 0};
    append(bytes_, std::as_bytes(std::span(&h, 1)));
    append(bytes_, header);
}

netlink_request& netlink_request::add(std::uint16_t attribute, std::span<const std::byte> value) {
    const nlattr a{.nla_len = static_cast<std::uint16_t>(sizeof(nlattr) + value.size()),
                   .nla_type = attribute};
    append(bytes_, std::as_bytes(std::span(&a, 1)));
    append(bytes_, value);
    return *this;
}

netlink_request& netlink_request::add_u32(std::uint16_t attribute, std::uint32_t value) {
    return add(attribute, std::as_bytes(std::span(&value, 1)));
}

netlink_request& netlink_request::add_text(std::uint16_t attribute, std::string_view value) {
    std::vector<std::byte> text(value.size() + 1);
    std::memcpy(text.data(), value.data(), value.size());
    return add(attribute, text);
}

bool netlink_request::run(int protocol,
                          const std::function<void(std::span<const std::byte>)>& message) {
    auto length = static_cast<std::uint32_t>(bytes_.size());
    std::memcpy(bytes_.data(), &length, sizeof length);
    std::uint16_t flags = 0;
    std::memcpy(&flags, bytes_.data() + offsetof(nlmsghdr, nlmsg_flags), sizeof flags);
    const int socket = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
    if (socket < 0) return false;
    const timeval second{.tv_sec = 1, .tv_usec = 0};
    ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
    std::optional<bool> done;
    if (::send(socket, bytes_.data(), bytes_.size(), 0) != static_cast<ssize_t>(bytes_.size())) {
        done = false;
    }
    std::vector<std::byte> buffer(1 << 16);
    while (!done) {
        const auto got = ::recv(socket, buffer.data(), buffer.size(), 0);
        if (got <= 0) break;
        done = take(std::span(buffer).first(static_cast<std::size_t>(got)),
                    (flags & NLM_F_DUMP) == NLM_F_DUMP, message);
    }
    ::close(socket);
    return done.value_or(false);
}

std::optional<std::span<const std::byte>> netlink_attribute(std::span<const std::byte> attributes,
                                                            std::uint16_t wanted) {
    while (attributes.size() >= sizeof(nlattr)) {
        nlattr a{};
        std::memcpy(&a, attributes.data(), sizeof a);
        if (a.nla_len < sizeof a || a.nla_len > attributes.size()) break;
        if ((a.nla_type & NLA_TYPE_MASK) == wanted) {
            return attributes.subspan(sizeof a, a.nla_len - sizeof a);
        }
        attributes =
            attributes.subspan(std::min<std::size_t>(NLA_ALIGN(a.nla_len), attributes.size()));
    }
    return std::nullopt;
}

std::optional<std::uint32_t> netlink_u32(std::span<const std::byte> attributes,
                                         std::uint16_t wanted) {
    const auto value = netlink_attribute(attributes, wanted);
    std::uint32_t number = 0;
    if (!value || value->size() < sizeof number) return std::nullopt;
    std::memcpy(&number, value->data(), sizeof number);
    return number;
}

std::string_view netlink_text(std::span<const std::byte> attributes, std::uint16_t wanted) {
    const auto value = netlink_attribute(attributes, wanted);
    if (!value || value->empty()) return {};
    const std::string_view text(reinterpret_cast<const char*>(value->data()), value->size());
    return text.substr(0, text.find('\0'));
}

}  // namespace rvget::fabric::inventory
