#include "console.hpp"

#include <cerrno>
#include <cstring>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "base/printable.hpp"

namespace rvget::tools {
namespace {

/// What a peer or a file name brought along must not forge a second line, nor steer a terminal.
std::string one_line(std::string_view text) {
    std::string line(text);
    for (char& c : line) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20 || byte == 0x7f) {
            c = '?';
        }
    }
    return line;
}

}  // namespace

void note(std::string_view message) {
    const std::string line = "rvget: " + one_line(message) + "\n";
    std::fputs(line.c_str(), stderr);  // unbuffered: one write, so lines of threads do not mix
}

int report_error(exit_status status, std::string_view message, bool json, std::FILE* json_stream) {
    note(message);
    if (json) {
        const boost::json::object error{{"schema", "rvget.error/1"},
                                        {"exit", static_cast<int>(status)},
                                        {"code", to_string(status)},
                                        {"message", printable(message)}};
        // Nothing more can be said where not even this can be written.
        static_cast<void>(print_line(json_stream, boost::json::serialize(error)));
    }
    return static_cast<int>(status);
}

int report_signal(int signal, std::string_view effect, bool json, std::FILE* json_stream) {
    return report_error(static_cast<exit_status>(128 + signal),
                        "ended by signal " + std::to_string(signal) + "; " + std::string(effect),
                        json, json_stream);
}

std::string sentence_of(const failure& f) { return f.detail.empty() ? f.code.message() : f.detail; }

result<void> print_line(std::FILE* stream, std::string_view line) {
    errno = 0;
    if (std::fwrite(line.data(), 1, line.size(), stream) != line.size() ||
        std::fputc('\n', stream) == EOF || std::fflush(stream) != 0) {
        return failure{request_errc::io,
                       std::string("cannot write to ") +
                           (stream == stdout ? "standard output" : "standard error") + ": " +
                           std::strerror(errno) + "; see where it leads"};
    }
    return {};
}

}  // namespace rvget::tools
