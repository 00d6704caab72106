#include "engine/tls.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "engine/system_call.hpp"

namespace rvget::engine {
namespace {

/// A record holds this much at most (RFC 8446, 5.1): small pieces are joined up to it, because each
/// write makes a record of its own.
constexpr std::size_t record_bytes = 16384;

template <auto Free>
struct deleter {
    template <class T>
    void operator()(T* p) const noexcept {
        Free(p);
    }
};
using ssl_context_ptr = std::unique_ptr<SSL_CTX, deleter<::SSL_CTX_free>>;
using ssl_ptr = std::unique_ptr<SSL, deleter<::SSL_free>>;
using bio_method_ptr = std::unique_ptr<BIO_METHOD, deleter<::BIO_meth_free>>;

/// What OpenSSL says of the last call that failed, as far as people can use it.
std::string library_text() {
    const auto code = ::ERR_peek_error();
    if (ERR_SYSTEM_ERROR(code)) return system_text(static_cast<int>(ERR_GET_REASON(code)));
    const char* const reason = ::ERR_reason_error_string(code);
    return reason != nullptr ? reason : "for an unknown reason";
}

bool bears(X509* certificate, const std::string& name) {
    const int as_address = ::X509_check_ip_asc(certificate, name.c_str(), 0);
    if (as_address != -2) return as_address == 1;  // -2: no address
    // The subject's common name is no place for a name (RFC 6125, 6.4.4).
    constexpr unsigned flags =
        X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS;
    return ::X509_check_host(certificate, name.c_str(), name.size(), flags, nullptr) == 1;
}

std::string joined(const std::vector<std::string>& names) {
    std::string text;
    for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
}

// --- The socket below: OpenSSL's own would raise SIGPIPE where the peer has gone.

struct socket_below {
    int fd = -1;
    bool ended = false;
    int error = 0;
};

socket_below& below(BIO* bio) { return *static_cast<socket_below*>(::BIO_get_data(bio)); }

/// Tells OpenSSL of a call that returned `n`, to be repeated in `direction` where it has to wait.
int moved(BIO* bio, ssize_t n, int direction, std::size_t* bytes) {
    BIO_clear_retry_flags(bio);
    if (n < 0 && errno == EAGAIN) {
        BIO_set_flags(bio, direction | BIO_FLAGS_SHOULD_RETRY);
    } else if (n < 0) {
        below(bio).error = errno;
    }
    *bytes = static_cast<std::size_t>(std::max<ssize_t>(n, 0));
    return n > 0 ? 1 : 0;
}

int write_below(BIO* bio, const char* from, std::size_t bytes, std::size_t* written) {
    const auto n = uninterrupted(
        [&] { return ::send(below(bio).fd, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT); });
    return moved(bio, n, BIO_FLAGS_WRITE, written);
}

int read_below(BIO* bio, char* into, std::size_t bytes, std::size_t* got) {
    const auto n = uninterrupted([&] { return ::recv(below(bio).fd, into, bytes, MSG_DONTWAIT); });
    below(bio).ended = n == 0;
    return moved(bio, n, BIO_FLAGS_READ, got);
}

long control_below(BIO* bio, int command, long, void*) {
    if (command == BIO_CTRL_EOF) return below(bio).ended ? 1 : 0;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

bio_method_ptr make_method() {
    bio_method_ptr m(::BIO_meth_new(::BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "rvget socket"));
    if (m) {
        ::BIO_meth_set_write_ex(m.get(), write_below);
        ::BIO_meth_set_read_ex(m.get(), read_below);
        ::BIO_meth_set_ctrl(m.get(), control_below);
    }
    return m;
}

// --- A stream

/// What all streams of one node share.
struct shared_tls {
    bio_method_ptr method;
    ssl_context_ptr context;
    std::vector<std::string> names;
    mutable std::array<std::byte, record_bytes> record{};  ///< on the strand, inside one call
};

class tls_stream final : public byte_stream {
public:
    tls_stream(std::shared_ptr<const shared_tls> shared, int fd, bool connects,
               std::vector<std::string> names)
        : shared_(std::move(shared)),
          names_(std::move(names)),
          socket_{fd, false, 0},
          ssl_(::SSL_new(shared_->context.get())) {
        BIO* const bio = ssl_ ? ::BIO_new(shared_->method.get()) : nullptr;
        if (bio == nullptr) {
            stop({node_errc::out_of_memory, "no memory for TLS"});
            return;
        }
        ::BIO_set_data(bio, &socket_);
        ::BIO_set_init(bio, 1);
        ::SSL_set_bio(ssl_.get(), bio, bio);
        SSL_set_app_data(ssl_.get(), this);
        if (connects)
            ::SSL_set_connect_state(ssl_.get());
        else
            ::SSL_set_accept_state(ssl_.get());
    }

    outcome read(std::span<const iovec> into) override;
    outcome write(std::span<const iovec> from) override;
    void finish() override;
    bool holds_bytes() const override {
        // Before the first read nobody has begun the handshake.
        return over_ || !begun_ || ::SSL_pending(ssl_.get()) > 0;
    }

    /// OpenSSL asks of each certificate of the peer's chain, the peer's own (depth 0) last.
    static int verify(int good_so_far, X509_STORE_CTX* store) {
        const auto* const ssl = static_cast<SSL*>(
            ::X509_STORE_CTX_get_ex_data(store, ::SSL_get_ex_data_X509_STORE_CTX_idx()));
        const auto* const self = static_cast<const tls_stream*>(SSL_get_app_data(ssl));
        if (good_so_far == 0 || ::X509_STORE_CTX_get_error_depth(store) != 0) return good_so_far;
        X509* const certificate = ::X509_STORE_CTX_get_current_cert(store);
        if (std::ranges::any_of(self->names_,
                                [&](const auto& name) { return bears(certificate, name); }))
            return 1;
        ::X509_STORE_CTX_set_error(store, X509_V_ERR_HOSTNAME_MISMATCH);
        return 0;
    }

private:
    std::size_t gather(std::span<const iovec> from, std::size_t skip,
                       std::span<const std::byte>& out) const;
    /// What the call that returned `result` and moved nothing more wants.
    outcome after(int result);
    outcome stop(failure why) {
        over_ = outcome{0, state::broken, std::move(why)};
        return *over_;
    }
    [[nodiscard]] failure explain() const;

    std::shared_ptr<const shared_tls> shared_;
    const std::vector<std::string> names_;
    socket_below socket_;
    ssl_ptr ssl_;
    bool begun_ = false;
    bool heard_ = false;  ///< bytes of the peer came through: each side has accepted the other
    std::optional<outcome> over_;
};

byte_stream::outcome tls_stream::read(std::span<const iovec> into) {
    begun_ = true;
    if (over_) return *over_;
    std::size_t total = 0;
    for (const iovec& piece : into) {
        auto rest = std::span(static_cast<std::byte*>(piece.iov_base), piece.iov_len);
        while (!rest.empty()) {
            std::size_t got = 0;
            ::ERR_clear_error();
            const int result = ::SSL_read_ex(ssl_.get(), rest.data(), rest.size(), &got);
            if (result != 1) {
                auto o = after(result);
                if (total == 0) return o;
                return {total, over_ ? state::flowing : o.state};
            }
            heard_ = true;
            total += got;
            rest = rest.subspan(got);
        }
    }
    return {total, state::flowing};
}

/// The bytes from `skip` on, up to a record's; joined where they lie in pieces.
std::size_t tls_stream::gather(std::span<const iovec> from, std::size_t skip,
                               std::span<const std::byte>& out) const {
    std::size_t have = 0;
    for (const iovec& piece : from) {
        auto rest = std::span(static_cast<const std::byte*>(piece.iov_base), piece.iov_len);
        const std::size_t skipped = std::min(skip, rest.size());
        skip -= skipped;
        rest = rest.subspan(skipped);
        if (have == 0 && rest.size() >= record_bytes) {
            out = rest.first(record_bytes);
            return record_bytes;
        }
        const auto part = rest.first(std::min(rest.size(), record_bytes - have));
        std::ranges::copy(part, shared_->record.begin() + static_cast<std::ptrdiff_t>(have));
        have += part.size();
    }
    out = std::span(shared_->record).first(have);
    return have;
}

byte_stream::outcome tls_stream::write(std::span<const iovec> from) {
    if (over_) return *over_;
    std::size_t total = 0;
    std::span<const std::byte> record;
    while (gather(from, total, record) > 0) {
        std::size_t sent = 0;
        ::ERR_clear_error();
        const int result = ::SSL_write_ex(ssl_.get(), record.data(), record.size(), &sent);
        if (result != 1) {
            auto o = after(result);
            if (total == 0) return o;
            return {total, over_ ? state::flowing : o.state};
        }
        total += sent;
    }
    return {total, state::flowing};
}

byte_stream::outcome tls_stream::after(int result) {
    switch (::SSL_get_error(ssl_.get(), result)) {
        case SSL_ERROR_WANT_READ:
            return {0, state::await_readable};
        case SSL_ERROR_WANT_WRITE:
            return {0, state::await_writable};
        case SSL_ERROR_ZERO_RETURN:
            over_ = outcome{0, state::ended};
            return *over_;
        default:
            break;
    }
    // An end without TLS's own farewell: frames have lengths, so nobody takes a part for the whole.
    if (socket_.ended && heard_) {
        over_ = outcome{0, state::ended};
        return *over_;
    }
    return stop(explain());
}

failure tls_stream::explain() const {
    // Until the first byte of the peer, it has not accepted this end, whatever this end thinks.
    const auto code = heard_ ? connection_errc::lost : connection_errc::authentication;
    const auto verdict = ::SSL_get_verify_result(ssl_.get());
    if (verdict == X509_V_ERR_HOSTNAME_MISMATCH)
        return {code, "TLS: its certificate bears none of the names expected here (" +
                          joined(names_) + ")"};
    if (verdict != X509_V_OK)
        return {code, std::string("TLS: its certificate is not accepted: ") +
                          ::X509_verify_cert_error_string(verdict)};
    if (socket_.ended) return {code, "TLS: it closed the connection; does it ask for TLS, too?"};
    if (socket_.error != 0) return {code, "TLS: " + system_text(socket_.error)};
    return {code, "TLS: " + library_text()};
}

void tls_stream::finish() {
    ::ERR_clear_error();
    // Only where the socket takes it at once: the peer learns of the end by the FIN in any case.
    if (!over_ && ::SSL_is_init_finished(ssl_.get()) == 1) ::SSL_shutdown(ssl_.get());
    ::shutdown(socket_.fd, SHUT_WR);
}

// --- The context

class open_tls_context final : public tls_context {
public:
    explicit open_tls_context(std::shared_ptr<const shared_tls> shared)
        : shared_(std::move(shared)) {}
    std::unique_ptr<byte_stream> connector(int fd, const std::string& host) const override {
        return std::make_unique<tls_stream>(
            shared_, fd, true,
            shared_->names.empty() ? std::vector<std::string>{host} : shared_->names);
    }
    std::unique_ptr<byte_stream> acceptor(int fd) const override {
        return std::make_unique<tls_stream>(shared_, fd, false, shared_->names);
    }

private:
    std::shared_ptr<const shared_tls> shared_;
};

/// Never the terminal: this is a library.
int no_password(char*, int, int, void*) { return 0; }

/// False where this OpenSSL cannot be held to TLS 1.3: then it must not be used at all.
bool restrict(SSL_CTX& c) {
    if (::SSL_CTX_set_min_proto_version(&c, TLS1_3_VERSION) != 1) return false;
    ::SSL_CTX_set_verify(&c, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, tls_stream::verify);
    // Connections live for long: nothing is resumed, so that nothing outlives a certificate.
    ::SSL_CTX_set_session_cache_mode(&c, SSL_SESS_CACHE_OFF);
    ::SSL_CTX_set_num_tickets(&c, 0);
    ::SSL_CTX_set_options(&c, SSL_OP_NO_TICKET);
    // Idle connections hold no buffers; what was refused once is offered again from elsewhere.
    ::SSL_CTX_set_mode(&c, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                               SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    ::SSL_CTX_set_default_passwd_cb(&c, no_password);
    return true;
}

}  // namespace

result<std::shared_ptr<const tls_context>> tls_context::open(const tls_options& o) {
    const auto shared = std::make_shared<shared_tls>();
    shared->method = make_method();
    shared->context.reset(::SSL_CTX_new(::TLS_method()));
    shared->names = o.peers;
    if (!shared->method || !shared->context)
        return failure{node_errc::out_of_memory, "no memory for TLS"};
    SSL_CTX& c = *shared->context;
    if (!restrict(c))
        return failure{node_errc::internal, "this machine's OpenSSL has no TLS 1.3; install 3.0"};
    const auto wrong = [](const char* what, const std::string& file) {
        return failure{request_errc::io, std::string("the TLS ") + what + " in " + file +
                                             " cannot be used: " + library_text() +
                                             "; give a PEM file"};
    };
    ::ERR_clear_error();
    if (::SSL_CTX_use_certificate_chain_file(&c, o.certificate_file.c_str()) != 1)
        return wrong("certificate", o.certificate_file);
    if (::SSL_CTX_use_PrivateKey_file(&c, o.key_file.c_str(), SSL_FILETYPE_PEM) != 1)
        return wrong("key", o.key_file);
    if (::SSL_CTX_check_private_key(&c) != 1)
        return failure{request_errc::invalid_argument, "the TLS key in " + o.key_file +
                                                           " is not that of the certificate in " +
                                                           o.certificate_file};
    if (::SSL_CTX_load_verify_file(&c, o.authority_file.c_str()) != 1)
        return wrong("authority", o.authority_file);
    return std::shared_ptr<const tls_context>(std::make_shared<open_tls_context>(shared));
}

}  // namespace rvget::engine
