#include "progress_bar.hpp"

#include <algorithm>
#include <cstdio>
#include <string>

#include <sys/ioctl.h>
#include <unistd.h>

#include "quantity.hpp"

namespace rvget::tools {
namespace {

std::size_t terminal_columns() {
    winsize size{};
    return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

progress_bar::progress_bar(bool wanted) : enabled_(wanted && ::isatty(STDERR_FILENO) == 1) {}

progress_bar::~progress_bar() { clear(); }

void progress_bar::show(std::uint64_t done, std::uint64_t total) {
    const auto now = clock::now();
    if (!enabled_ || total == 0 || now < next_) {
        return;
    }
    next_ = now + std::chrono::milliseconds(100);
    drawn_ = true;
    const double share = static_cast<double>(done) / static_cast<double>(total);
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    const std::string figures =
        " " + format_bytes(done) + " of " + format_bytes(total) + ", " +
        format_bytes(static_cast<std::uint64_t>(static_cast<double>(done) / seconds)) + "/s";
    std::string percent = std::to_string(static_cast<int>(share * 100)) + "%";
    percent.insert(0, 4 - std::min<std::size_t>(4, percent.size()), ' ');
    // The last column stays free: a cursor that wraps would leave the line.
    const std::size_t taken = percent.size() + figures.size() + 4;
    const std::size_t columns = terminal_columns();
    const std::size_t width = columns > taken ? std::min<std::size_t>(columns - taken, 50) : 0;
    const auto filled = static_cast<std::size_t>(share * static_cast<double>(width));
    const std::string line = "\r" + percent + " [" + std::string(filled, '#') +
                             std::string(width - filled, ' ') + "]" + figures + "\x1b[K";
    std::fputs(line.c_str(), stderr);
}

void progress_bar::clear() {
    if (drawn_) {
        std::fputs("\r\x1b[K", stderr);
        drawn_ = false;
    }
}

}  // namespace rvget::tools
