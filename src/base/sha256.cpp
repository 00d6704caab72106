#include "base/sha256.hpp"

#include <stdexcept>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

namespace rvget {
namespace {

unsigned char* out_of(sha256_digest& d) { return reinterpret_cast<unsigned char*>(d.data()); }

}  // namespace

sha256_digest sha256(std::span<const std::byte> message) {
    sha256_digest d;
    if (::EVP_Digest(message.data(), message.size(), out_of(d), nullptr, ::EVP_sha256(), nullptr) !=
        1) {
        throw std::runtime_error("libcrypto has no SHA-256");
    }
    return d;
}

sha256_digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) {
    sha256_digest d;
    // A null key would mean "the one of the last call".
    const void* const bytes = key.empty() ? "" : static_cast<const void*>(key.data());
    if (::HMAC(::EVP_sha256(), bytes, static_cast<int>(key.size()),
               reinterpret_cast<const unsigned char*>(message.data()), message.size(), out_of(d),
               nullptr) == nullptr) {
        throw std::runtime_error("libcrypto has no HMAC-SHA-256");
    }
    return d;
}

bool equal_in_constant_time(const sha256_digest& a, const sha256_digest& b) noexcept {
    return ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace rvget
