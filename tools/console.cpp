#include "console.hpp"

#include <cerrno>
#include <cstdint>
#include <cstring>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

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

/// Bytes of the character that `text` begins with; 0 where that is a control character or no UTF-8
/// (RFC 3629: no overlong forms, no surrogates, nothing beyond U+10FFFF).
std::size_t utf8_length(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const auto first = byte(0);
    if (first < 0x80) {
        return first < 0x20 || first == 0x7f ? 0 : 1;
    }
    const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
    if (length == 0 || first > 0xf4 || text.size() < length) {
        return 0;
    }
    std::uint32_t point = first & (0xffU >> (length + 1));
    for (std::size_t i = 1; i < length; ++i) {
        if ((byte(i) & 0xc0) != 0x80) {
            return 0;
        }
        point = point << 6 | (byte(i) & 0x3fU);
    }
    constexpr std::uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const bool surrogate = point >= 0xd800 && point < 0xe000;
    const bool control = point < 0xa0;  // C1, which terminals take for commands
    return point < least[length] || surrogate || control || point > 0x10ffff ? 0 : length;
}

}  // namespace

std::string printable(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
        const auto length = utf8_length(text.substr(i));
        if (length != 0) {
            out += text.substr(i, length);
            i += length;
            continue;
        }
        constexpr char digits[] = "0123456789abcdef";
        const auto byte = static_cast<unsigned char>(text[i++]);
        out += {'\\', 'x', digits[byte >> 4], digits[byte & 0xf]};
    }
    return out;
}

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
