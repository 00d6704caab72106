#include "source_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rvget::tools {
namespace {

/// Between two looks at the signals.
constexpr std::size_t read_step = std::size_t{8} << 20;

failure cannot(const std::string& what, const std::string& name, int error,
               const std::string& next_step) {
    return {request_errc::io,
            name + ": cannot " + what + ": " + std::strerror(error) + "; " + next_step};
}

const char* kind_of(mode_t mode) {
    if (S_ISDIR(mode)) return "a directory";
    if (S_ISFIFO(mode)) return "a FIFO";
    if (S_ISCHR(mode)) return "a character device";
    if (S_ISBLK(mode)) return "a block device";
    if (S_ISSOCK(mode)) return "a socket";
    return "no regular file";
}

failure interrupted(const std::string& name) {
    return {request_errc::cancelled, name + ": a signal came while it was read"};
}

}  // namespace

source_file::source_file(std::string name, int fd, std::uint64_t bytes, bool stream) noexcept
    : name_(std::move(name)), fd_(fd), bytes_(bytes), stream_(stream) {}

source_file::source_file(source_file&& other) noexcept
    : name_(std::move(other.name_)),
      fd_(std::exchange(other.fd_, -1)),
      bytes_(other.bytes_),
      stream_(other.stream_) {}

source_file& source_file::operator=(source_file&& other) noexcept {
    std::swap(name_, other.name_);
    std::swap(fd_, other.fd_);
    std::swap(bytes_, other.bytes_);
    std::swap(stream_, other.stream_);
    return *this;
}

source_file::~source_file() {
    if (fd_ >= 0 && !stream_) {
        ::close(fd_);
    }
}

result<source_file> source_file::open(const std::string& path) {
    if (path == "-") {
        return source_file("standard input", STDIN_FILENO, 0, true);
    }
    // Without O_NONBLOCK a FIFO would hold up the open itself.
    source_file file(path, ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK), 0,
                     false);
    struct stat facts {};
    if (file.fd_ < 0 || ::fstat(file.fd_, &facts) != 0) {
        return cannot("open", path, errno, "give a file that you may read");
    }
    if (!S_ISREG(facts.st_mode)) {
        return failure{request_errc::io, path + ": is " + kind_of(facts.st_mode) +
                                             "; only regular files can be served, or standard "
                                             "input, as -"};
    }
    file.bytes_ = static_cast<std::uint64_t>(facts.st_size);
    return file;
}

result<staging> source_file::stage_into(node& n, bool pinned, signal_watch& signals) {
    if (!stream_) {
        auto memory = n.make_staging(bytes_, pinned);
        if (memory) {
            if (auto read = read_file(memory->bytes(), signals); !read) {
                return read.error();
            }
        }
        return memory;
    }
    const auto content = read_stream(signals);
    if (!content) {
        return content.error();
    }
    auto memory = n.make_staging(content->size(), pinned);
    if (memory) {
        std::copy(content->begin(), content->end(), memory->bytes().begin());
    }
    return memory;
}

result<void> source_file::read_file(std::span<std::byte> into, signal_watch& signals) {
    const auto changed = [this](const std::string& now) {
        return failure{request_errc::io,
                       name_ + ": " + now + " while it was read, " + std::to_string(bytes_) +
                           " bytes when it was opened; serve a copy that nobody changes"};
    };
    std::size_t done = 0;
    for (;;) {
        if (signals.received()) {
            return interrupted(name_);
        }
        // One byte more than there should be: a file that grew must not pass for whole.
        std::byte extra{};
        const bool at_end = done == into.size();
        const auto part = at_end ? std::span(&extra, 1)
                                 : into.subspan(done, std::min(read_step, into.size() - done));
        const ssize_t got = ::read(fd_, part.data(), part.size());
        if (got < 0 && errno != EINTR) {
            return cannot("read", name_, errno, "see dmesg, or serve a copy");
        }
        if (got == 0) {
            return at_end ? result<void>{}
                          : changed("it shrank to " + std::to_string(done) + " bytes");
        }
        if (got > 0 && at_end) {
            return changed("it grew");
        }
        done += static_cast<std::size_t>(std::max<ssize_t>(got, 0));
    }
}

result<std::vector<std::byte>> source_file::read_stream(signal_watch& signals) {
    std::vector<std::byte> content;
    std::size_t done = 0;
    for (;;) {
        if (!signals.wait_for(fd_, POLLIN)) {
            return interrupted(name_);
        }
        if (done == content.size()) {
            content.resize(std::max<std::size_t>(64 << 10, content.size() * 2));
        }
        const ssize_t got = ::read(fd_, content.data() + done, content.size() - done);
        if (got == 0) {
            content.resize(done);
            return content;
        }
        if (got < 0 && errno != EINTR && errno != EAGAIN) {
            return cannot("read", name_, errno, "see what it leads from");
        }
        done += static_cast<std::size_t>(std::max<ssize_t>(got, 0));
    }
}

}  // namespace rvget::tools
