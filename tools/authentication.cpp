#include "authentication.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include <sys/stat.h>

#include "console.hpp"

namespace rvget::tools {
namespace {

constexpr std::size_t least_secret_bytes = 16;
constexpr std::size_t most_secret_bytes = 4096;

/// Everything in the file but the line end that an editor adds.
result<std::string> read_secret(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string secret(most_secret_bytes + 2, '\0');
    errno = 0;
    if (!file.is_open() || !file.read(secret.data(), std::ssize(secret))) {
        if (!file.eof()) {
            return failure{request_errc::io, "--secret-file " + path + ": cannot read: " +
                                                 std::strerror(errno != 0 ? errno : ENOENT) +
                                                 "; give a file that you may read"};
        }
    }
    secret.resize(static_cast<std::size_t>(file.gcount()));
    if (secret.ends_with('\n')) secret.pop_back();
    if (secret.ends_with('\r')) secret.pop_back();
    if (secret.size() < least_secret_bytes || secret.size() > most_secret_bytes) {
        return failure{request_errc::invalid_argument,
                       "--secret-file " + path + ": a secret has 16 to 4096 bytes and this one " +
                           std::to_string(secret.size()) +
                           "; make one with 'head -c 32 /dev/urandom | base64'"};
    }
    struct stat facts {};
    if (::stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) &&
        (facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        note("WARNING: " + path + " holds a secret and others may read or change it: chmod 600");
    }
    return secret;
}

}  // namespace

void add_authentication(command_line& line) {
    line.add("secret-file", "FILE",
             "prove to the other side that both know what FILE holds, and talk to nobody else");
    line.add("tls-cert", "FILE",
             "speak TLS 1.3 as who this certificate names, and with nobody who cannot");
    line.add("tls-key", "FILE", "the certificate's private key");
    line.add("tls-ca", "FILE", "accept peers whose certificate this authority has issued");
    line.add("tls-peer", "NAME",
             "and that bears NAME, or one of several with commas; serve needs it, get expects the "
             "URL's host");
}

result<void> read_authentication(const command_line& line, node_options& o) {
    if (const auto path = line.text("secret-file")) {
        auto secret = read_secret(*path);
        if (!secret) return secret.error();
        o.secret = std::move(*secret);
    }
    o.tls.certificate_file = line.text("tls-cert").value_or("");
    o.tls.key_file = line.text("tls-key").value_or("");
    o.tls.authority_file = line.text("tls-ca").value_or("");
    std::istringstream names(line.text("tls-peer").value_or(""));
    for (std::string name; std::getline(names, name, ',');) {
        if (!name.empty()) o.tls.peers.push_back(name);
    }
    return {};
}

}  // namespace rvget::tools
