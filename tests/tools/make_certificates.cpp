// Writes the certificates of the command's tests: make_certificates <directory>.

#include <exception>
#include <iostream>

#include "support/certificates.hpp"

int main(int argc, char** argv) {
    if (argc != 2) {
        std::cerr << "usage: make_certificates <directory>\n";
        return 2;
    }
    try {
        rvget::test::certificate_authority ours(argv[1], "ca");
        rvget::test::certificate_authority other(argv[1], "other-ca");
        ours.issue("owner", {.names = "IP:127.0.0.1,DNS:owner.test"});
        ours.issue("consumer", {.names = "DNS:consumer.test"});
        ours.issue("another", {.names = "DNS:another.test"});
        ours.issue("only-common-name", {.common_name = "consumer.test"});
        ours.issue(
            "expired",
            {.names = "DNS:consumer.test,IP:127.0.0.1", .valid_from = -7200, .valid_until = -60});
        other.issue("foreign", {.names = "DNS:consumer.test,IP:127.0.0.1"});
    } catch (const std::exception& e) {
        std::cerr << "make_certificates: " << e.what() << "\n";
        return 1;
    }
    return 0;
}
