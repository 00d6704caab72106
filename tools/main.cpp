// rvget: stages files for others to get, and gets them.

#include <algorithm>
#include <array>
#include <exception>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <boost/system/system_error.hpp>

#include "commands.hpp"
#include "console.hpp"

namespace rvget::tools {
namespace {

struct command {
    std::string_view name;
    std::string_view summary;
    int (*run)(const arguments& given);
};

constexpr std::array commands{
    command{"serve", "stage files and print the URLs under which they can be got", serve},
    command{"get", "fetch what a URL names", get},
    command{"list", "show RDMA devices, ports and GIDs", list},
    command{"route", "show which device, port and GID would be used towards a peer", show_route},
    command{"doctor", "find out why RDMA does not run, or not well, on this machine", doctor},
    command{"check", "find out what is wrong between two machines", check},
    command{"perf", "measure transfers between two machines, or on this one", perf},
};

std::string help() {
    std::string text =
        "usage: rvget COMMAND [ARGUMENT...]\n\n"
        "Moves staged bytes between machines: by RDMA READ where it can run, over TCP where "
        "not.\n\n"
        "Commands:\n";
    for (const auto& c : commands) {
        text.append("  ").append(c.name).append(8 - c.name.size(), ' ').append(c.summary) += '\n';
    }
    return text.append(
        "\n'rvget COMMAND --help' tells about one; 'rvget --version' which rvget this is.\n"
        "RVGET_RDMA_DISABLE=1 in the environment switches RDMA off; RVGET_WIREUP is auto,\n"
        "exchange or cm: how queue pairs are wired up; RVGET_MLX5 is auto, off, verbs_qp or devx:\n"
        "who writes the rings of a ConnectX.");
}

/// Levenshtein's: single characters to insert, delete or replace.
std::size_t distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i);
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row.back();
}

int unknown(const std::string& name) {
    const auto nearest =
        std::min_element(commands.begin(), commands.end(), [&](const command& a, const command& b) {
            return distance(name, a.name) < distance(name, b.name);
        });
    std::string message = "no command '" + name + "'; ";
    if (distance(name, nearest->name) <= 2) {
        message.append("did you mean '").append(nearest->name).append("'?");
    } else {
        message += "see 'rvget --help'";
    }
    return report_error(exit_status::usage, message);
}

int print(std::string_view text) {
    const auto printed = print_line(stdout, text);
    return printed ? 0 : report_error(exit_status::io, sentence_of(printed.error()));
}

int run(const arguments& given) {
    if (given.empty()) {
        return report_error(exit_status::usage, "no command; see 'rvget --help'");
    }
    const std::string& name = given.front();
    if (name == "--help" || name == "-h" || name == "help") {
        return print(help());
    }
    if (name == "--version") {
        return print("rvget " RVGET_VERSION);
    }
    const auto found = std::find_if(commands.begin(), commands.end(),
                                    [&](const command& c) { return c.name == name; });
    return found == commands.end() ? unknown(name)
                                   : found->run(arguments(given.begin() + 1, given.end()));
}

/// A file or socket must never get the number of a standard stream that was closed; and what is
/// read from or written to one that was closed must fail, not vanish.
void fill_standard_streams() {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (::fcntl(fd, F_GETFD) < 0) {
            // The lowest free number is this one.
            ::open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
        }
    }
}

}  // namespace
}  // namespace rvget::tools

int main(int argc, char** argv) {
    using namespace rvget::tools;
    try {
        fill_standard_streams();
        return run(arguments(argv + std::min(argc, 1), argv + argc));
    } catch (const std::exception& e) {
        const bool json = std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
        const auto* refused = dynamic_cast<const boost::system::system_error*>(&e);
        return report_error(
            exit_status::other,
            refused != nullptr
                ? "the system refuses: " + refused->code().message() + "; see `ulimit -a`"
                : std::string("unexpected: ") + e.what() + "; please report it",
            json);
    }
}
