#pragma once
// Certificates for tests, made when they are needed: an authority and what it issues, as PEM files
// in a directory that goes with it.

#include <cstdio>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

namespace rvget::test {

/// What a certificate says; times in seconds from now.
struct certificate_request {
    std::string names;        ///< as OpenSSL spells subject alternative names: "DNS:a,IP:192.0.2.1"
    std::string common_name;  ///< of the subject
    long valid_from = -60;
    long valid_until = 3600;
};

struct certificate_files {
    std::string certificate;
    std::string key;
};

/// An empty directory, removed at the end.
class scratch_directory {
public:
    scratch_directory() {
        std::string made = (std::filesystem::temp_directory_path() / "rvget-test.XXXXXX").string();
        if (::mkdtemp(made.data()) == nullptr) throw std::runtime_error("no scratch directory");
        path_ = made;
    }
    ~scratch_directory() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    scratch_directory(const scratch_directory&) = delete;
    scratch_directory& operator=(const scratch_directory&) = delete;
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};

class certificate_authority {
public:
    /// Writes NAME.pem and, for what it issues, OTHER.pem and OTHER.key into `directory`.
    certificate_authority(const std::filesystem::path& directory, const std::string& name)
        : directory_(directory), key_(make_key()) {
        certificate_ = make(certificate_request{.common_name = name}, key_.get(), nullptr);
        write(name + ".pem", [&](FILE* f) { return ::PEM_write_X509(f, certificate_.get()); });
        file_ = (directory_ / (name + ".pem")).string();
    }

    [[nodiscard]] const std::string& file() const { return file_; }

    certificate_files issue(const std::string& name, const certificate_request& request) {
        const auto key = make_key();
        const auto certificate = make(request, key.get(), certificate_.get());
        write(name + ".pem", [&](FILE* f) { return ::PEM_write_X509(f, certificate.get()); });
        write(name + ".key", [&](FILE* f) {
            return ::PEM_write_PrivateKey(f, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
        });
        return {(directory_ / (name + ".pem")).string(), (directory_ / (name + ".key")).string()};
    }

private:
    struct free_key {
        void operator()(EVP_PKEY* k) const { ::EVP_PKEY_free(k); }
    };
    struct free_certificate {
        void operator()(X509* c) const { ::X509_free(c); }
    };
    using key_ptr = std::unique_ptr<EVP_PKEY, free_key>;
    using certificate_ptr = std::unique_ptr<X509, free_certificate>;

    static void require(bool holds) {
        if (!holds) throw std::runtime_error("certificates: OpenSSL refused");
    }

    static key_ptr make_key() {
        key_ptr k(EVP_EC_gen("P-256"));
        require(k != nullptr);
        return k;
    }

    static void extend(X509* c, X509* issuer, int what, const char* value) {
        X509V3_CTX context;
        X509V3_set_ctx(&context, issuer, c, nullptr, nullptr, 0);
        X509_EXTENSION* const e = ::X509V3_EXT_conf_nid(nullptr, &context, what, value);
        require(e != nullptr);
        const int added = ::X509_add_ext(c, e, -1);
        ::X509_EXTENSION_free(e);
        require(added == 1);
    }

    certificate_ptr make(const certificate_request& r, EVP_PKEY* key, X509* issuer) {
        certificate_ptr c(::X509_new());
        require(c != nullptr);
        ::X509_set_version(c.get(), X509_VERSION_3);
        ::ASN1_INTEGER_set(::X509_get_serialNumber(c.get()), ++serial_);
        ::X509_gmtime_adj(X509_getm_notBefore(c.get()), r.valid_from);
        ::X509_gmtime_adj(X509_getm_notAfter(c.get()), r.valid_until);
        ::X509_set_pubkey(c.get(), key);
        const auto* const cn = reinterpret_cast<const unsigned char*>(r.common_name.c_str());
        ::X509_NAME_add_entry_by_txt(::X509_get_subject_name(c.get()), "CN", MBSTRING_ASC, cn, -1,
                                     -1, 0);
        X509* const signer = issuer != nullptr ? issuer : c.get();
        ::X509_set_issuer_name(c.get(), ::X509_get_subject_name(signer));
        extend(c.get(), signer, NID_basic_constraints,
               issuer != nullptr ? "critical,CA:FALSE" : "critical,CA:TRUE");
        if (!r.names.empty()) extend(c.get(), signer, NID_subject_alt_name, r.names.c_str());
        require(::X509_sign(c.get(), issuer != nullptr ? key_.get() : key, ::EVP_sha256()) > 0);
        return c;
    }

    template <class F>
    void write(const std::string& name, F content) {
        FILE* const f = std::fopen((directory_ / name).c_str(), "w");
        require(f != nullptr);
        const int written = content(f);
        require(std::fclose(f) == 0 && written == 1);
    }

    std::filesystem::path directory_;
    key_ptr key_;
    certificate_ptr certificate_;
    std::string file_;
    long serial_ = 0;
};

}  // namespace rvget::test
