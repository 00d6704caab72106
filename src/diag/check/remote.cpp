#include "diag/check/remote.hpp"

#include <cerrno>
#include <cstring>
#include <span>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "base/sha256.hpp"

namespace rvget::diag {

namespace {

namespace json = boost::json;
using clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr const char* greeting = "rvget.check-control/1";
constexpr std::size_t longest_line = 1 << 20;  // of a peer whose word is not trusted
constexpr auto session_limit = 5min;
constexpr auto answer_limit = 40s;  // READs of a soak take up to ten
constexpr int segment_bytes = 536;  // what every IPv4 path must take (RFC 879)

class socket_handle {
public:
    explicit socket_handle(int fd = -1) : fd_(fd) {}
    ~socket_handle() {
        if (fd_ >= 0) ::close(fd_);
    }
    socket_handle(socket_handle&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    socket_handle& operator=(socket_handle&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    [[nodiscard]] int get() const { return fd_; }

private:
    int fd_;
};

bool wait_for(int fd, short events, clock::time_point until) {
    pollfd set{fd, events, 0};
    for (;;) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(until - clock::now());
        const int ready = ::poll(&set, 1, static_cast<int>(std::max<long>(0, left.count())));
        if (ready == 1) return true;
        if (ready == 0 || errno != EINTR) return false;
    }
}

/// A connection of lines.
class lines {
public:
    explicit lines(socket_handle socket) : socket_(std::move(socket)) {
        const int on = 1;
        ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }

    bool write(const json::object& message) {
        const auto text = json::serialize(message) + "\n";
        const auto until = clock::now() + answer_limit;
        for (std::size_t at = 0; at < text.size();) {
            const auto sent =
                ::send(socket_.get(), text.data() + at, text.size() - at, MSG_NOSIGNAL);
            if (sent > 0) {
                at += static_cast<std::size_t>(sent);
            } else if (errno != EAGAIN || !wait_for(socket_.get(), POLLOUT, until)) {
                return false;
            }
        }
        return true;
    }

    /// The next line's object, or why there is none.
    result<json::object> read(std::chrono::milliseconds limit) {
        const auto until = clock::now() + limit;
        for (;;) {
            if (const auto end = buffer_.find('\n'); end != std::string::npos) {
                json::error_code error;
                const auto value = json::parse(std::string_view(buffer_).substr(0, end), error);
                buffer_.erase(0, end + 1);
                if (error || !value.is_object())
                    return failure{connection_errc::protocol, "the other end is no rvget check"};
                return value.get_object();
            }
            if (buffer_.size() > longest_line)
                return failure{connection_errc::protocol, "the other end sends too much"};
            if (!wait_for(socket_.get(), POLLIN, until)) {
                return failure{request_errc::deadline_exceeded,
                               "no answer within " + std::to_string(limit.count() / 1000) + " s"};
            }
            char chunk[4096];
            const auto got = ::recv(socket_.get(), chunk, sizeof chunk, 0);
            if (got == 0)
                return failure{connection_errc::lost, "the other end closed the connection"};
            if (got < 0 && errno != EAGAIN)
                return failure{connection_errc::lost, std::strerror(errno)};
            if (got > 0) buffer_.append(chunk, static_cast<std::size_t>(got));
        }
    }

    [[nodiscard]] std::string address(bool peer) const {
        sockaddr_storage raw{};
        socklen_t length = sizeof raw;
        auto* generic = reinterpret_cast<sockaddr*>(&raw);
        if ((peer ? ::getpeername(socket_.get(), generic, &length)
                  : ::getsockname(socket_.get(), generic, &length)) != 0)
            return {};
        char text[NI_MAXHOST] = {};
        if (::getnameinfo(generic, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0)
            return {};
        std::string plain(text);
        if (plain.starts_with("::ffff:")) plain.erase(0, 7);
        return plain.substr(0, plain.find('%'));
    }

private:
    socket_handle socket_;
    std::string buffer_;
};

class remote final : public check_end {
public:
    explicit remote(lines connection) : connection_(std::move(connection)) {}
    json::object ask(const json::object& request) override {
        if (!connection_.write(request))
            return {{"lost", "the connection to the other end is gone"}};
        auto answer = connection_.read(answer_limit);
        if (!answer) return {{"lost", answer.error().detail}};
        return std::move(*answer);
    }

private:
    lines connection_;
};

struct addresses {
    addrinfo* first = nullptr;
    ~addresses() {
        if (first != nullptr) ::freeaddrinfo(first);
    }
};

socket_handle make_socket(int family) {
    socket_handle made(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ::setsockopt(made.get(), IPPROTO_TCP, TCP_MAXSEG, &segment_bytes, sizeof segment_bytes);
    return made;
}

constexpr const char* another_token = "the listener wants another --token";

/// Why a greeting opens no session; empty: it does.
std::string refusal_of(const json::object& hello, const std::string& token) {
    const auto* schema = hello.if_contains("schema");
    if (schema == nullptr || *schema != json::value(greeting))
        return "another version of rvget check";
    const auto* given = hello.if_contains("token");
    const auto* text = given == nullptr ? nullptr : given->if_string();
    const auto digest = [](std::string_view of) { return sha256(std::as_bytes(std::span(of))); };
    // By digest: the time that it takes says nothing of how much was right.
    if (!token.empty() &&
        !equal_in_constant_time(digest(token), digest(text == nullptr ? "" : *text)))
        return another_token;
    return {};
}

/// One session: greeting, then requests until the peer hangs up. Whether there was any.
bool serve_session(socket_handle accepted, const std::string& token) {
    lines connection(std::move(accepted));
    const auto hello = connection.read(5s);
    if (!hello) return false;
    const auto refusal = refusal_of(*hello, token);
    json::object answer{{"schema", greeting}};
    if (!refusal.empty()) answer["lost"] = refusal;
    if (!connection.write(answer) || !refusal.empty()) return false;
    const auto end = make_local_end();
    bool asked = false;
    // One session at a time: nobody keeps the place for ever.
    for (const auto until = clock::now() + session_limit; clock::now() < until; asked = true) {
        const auto request = connection.read(answer_limit);
        if (!request || !connection.write(end->ask(*request))) return asked;
    }
    return asked;
}

}  // namespace

result<remote_end> connect_end(const endpoint_address& to, const std::string& token,
                               std::chrono::milliseconds limit) {
    const auto begun = clock::now();
    const auto where = to.to_string();
    addresses found;
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    if (const int error =
            ::getaddrinfo(to.host.c_str(), std::to_string(to.port).c_str(), &hints, &found.first);
        error != 0) {
        return failure{connection_errc::connect_failed,
                       "cannot resolve " + to.host + ": " + ::gai_strerror(error)};
    }
    std::string why = "no address";
    for (const auto* one = found.first; one != nullptr; one = one->ai_next) {
        auto made = make_socket(one->ai_family);
        int error = 0;
        socklen_t length = sizeof error;
        if (::connect(made.get(), one->ai_addr, one->ai_addrlen) != 0 && errno != EINPROGRESS) {
            error = errno;
        } else if (!wait_for(made.get(), POLLOUT, begun + limit)) {
            error = ETIMEDOUT;
        } else {
            ::getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &error, &length);
        }
        if (error != 0) {
            why = std::strerror(error);
            continue;
        }
        lines connection(std::move(made));
        json::object own{{"schema", greeting}};
        if (!token.empty()) own["token"] = token;
        if (!connection.write(own)) continue;
        const auto hello = connection.read(limit);
        if (!hello) {
            // Also what a listener looks like that has another check under way.
            const auto silent = hello.error().code == request_errc::deadline_exceeded;
            return failure{
                hello.error().code,
                where + ": " +
                    (silent ? "it takes the connection and does not greet: " : std::string()) +
                    hello.error().detail +
                    (silent ? "; another check is under way there, or something else "
                              "than rvget check listens"
                            : "")};
        }
        if (const auto* lost = hello->if_contains("lost")) {
            const bool stranger = *lost == json::value(another_token);
            const auto* text = lost->if_string();
            return failure{stranger ? make_error_code(request_errc::refused)
                                    : make_error_code(connection_errc::version_mismatch),
                           where + ": " + (text == nullptr ? "it refuses" : text->c_str())};
        }
        const auto* schema = hello->if_contains("schema");
        if (schema == nullptr || *schema != json::value(greeting)) {
            return failure{
                connection_errc::version_mismatch,
                where + ": it speaks " +
                    (schema == nullptr ? "no protocol of check" : json::serialize(*schema)) +
                    ", this end \"" + greeting + "\""};
        }
        remote_end made_end{.end = nullptr,
                            .own_address = connection.address(false),
                            .peer_address = connection.address(true),
                            .connect_time = std::chrono::duration_cast<std::chrono::milliseconds>(
                                clock::now() - begun)};
        made_end.end = std::make_unique<remote>(std::move(connection));
        return made_end;
    }
    return failure{connection_errc::connect_failed, "cannot reach " + where + ": " + why};
}

result<void> serve_checks(const listen_options& options,
                          const std::function<void(const std::string&)>& listening,
                          const std::function<void(std::uint64_t)>& served) {
    addresses found;
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    hints.ai_family = options.address.empty() ? AF_INET6 : AF_UNSPEC;
    const auto port = std::to_string(options.port);
    const char* const host = options.address.empty() ? nullptr : options.address.c_str();
    if (const int error = ::getaddrinfo(host, port.c_str(), &hints, &found.first); error != 0) {
        return failure{request_errc::invalid_argument,
                       "cannot listen on " + options.address + ": " + ::gai_strerror(error)};
    }
    auto listener = make_socket(found.first->ai_family);
    const int on = 1;
    const int off = 0;
    ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (options.address.empty())
        ::setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (::bind(listener.get(), found.first->ai_addr, found.first->ai_addrlen) != 0 ||
        ::listen(listener.get(), 4) != 0) {
        return failure{request_errc::io,
                       "cannot listen on port " + port + ": " + std::strerror(errno)};
    }
    sockaddr_storage bound{};
    socklen_t length = sizeof bound;
    ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound), &length);
    listening(std::to_string(ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port)));
    std::uint64_t count = 0;
    // From the last check on: who says something else does not keep it up.
    for (auto last = clock::now();;) {
        const bool endless = options.idle.count() == 0;
        const auto until = endless ? clock::now() + 24h : last + options.idle;
        if (!wait_for(listener.get(), POLLIN, until)) {
            if (!endless) return {};
            continue;
        }
        socket_handle accepted(
            ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (accepted.get() < 0 || !serve_session(std::move(accepted), options.token)) continue;
        served(++count);
        if (options.once) return {};
        last = clock::now();
    }
}

}  // namespace rvget::diag
