#pragma once
// TLS 1.3 with certificates on both sides, over OpenSSL.

#include <memory>
#include <string>
#include <vector>

#include <rvget/config.hpp>
#include <rvget/error.hpp>

#include "engine/byte_stream.hpp"

namespace rvget::engine {

/// One node's certificate, key and trust, and what its streams share. Streams keep it alive.
class tls_context {
public:
    /// Reads the files. Blocks. A failure names the file and what is wrong with it.
    static result<std::shared_ptr<const tls_context>> open(const tls_options& o);
    virtual ~tls_context() = default;

    /// The connecting end of `fd`. The peer's certificate must bear one of the options' names, or
    /// `host` where they give none.
    [[nodiscard]] virtual std::unique_ptr<byte_stream> connector(int fd,
                                                                 const std::string& host) const = 0;
    /// The accepting end. The peer's certificate must bear one of the options' names.
    [[nodiscard]] virtual std::unique_ptr<byte_stream> acceptor(int fd) const = 0;
};

}  // namespace rvget::engine
