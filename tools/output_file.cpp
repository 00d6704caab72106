#include "output_file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <future>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rvget::tools {
namespace {

/// `path` with the symbolic links at its end resolved: the link stays, what it names is replaced.
std::string resolved(const std::string& path) {
    std::error_code ignored;
    const auto target = std::filesystem::canonical(path, ignored);
    return target.empty() ? path : target.string();
}

/// A name that nobody else has, in the directory of `path`. Not longer than a short file name, so
/// that it fits wherever the final one does.
std::string temporary_beside(const std::string& path) {
    std::uint64_t salt = 0;
    if (::getrandom(&salt, sizeof salt, 0) != static_cast<ssize_t>(sizeof salt)) {
        salt = static_cast<std::uint64_t>(::getpid());
    }
    std::array<char, 32> name{};
    std::snprintf(name.data(), name.size(), ".rvget-%016llx",
                  static_cast<unsigned long long>(salt));
    return path.substr(0, path.rfind('/') + 1) + name.data();
}

/// By another name ("/dev/stdout"), so that results do not end among the bytes. Not a device: many
/// may name a terminal, each for itself.
bool leads_to_standard_output(const struct stat& facts) {
    struct stat standard_output {};
    return !S_ISCHR(facts.st_mode) && ::fstat(STDOUT_FILENO, &standard_output) == 0 &&
           facts.st_dev == standard_output.st_dev && facts.st_ino == standard_output.st_ino;
}

struct opened {
    int fd = -1;
    int error = 0;
};

/// Opening a FIFO waits in the kernel for its reader, where no poll looks at the time: it is opened
/// on a thread of its own, which the end of the process takes along. Nothing where it was `until`.
std::optional<opened> open_for_writing(const std::string& path,
                                       const std::optional<output_file::time_point>& until) {
    std::packaged_task<opened()> work([path] {
        const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
        return opened{fd, errno};
    });
    auto answer = work.get_future();
    if (!until) {
        work();
    } else {
        std::thread(std::move(work)).detach();
        if (answer.wait_until(*until) != std::future_status::ready) {
            return std::nullopt;
        }
    }
    return answer.get();
}

}  // namespace

result<void> can_be_written(const std::string& path) {
    struct stat there {};
    const bool exists = ::stat(path.c_str(), &there) == 0;
    auto directory = std::filesystem::path(path).parent_path().string();
    if (directory.empty()) directory = ".";
    const int error = path.empty()                       ? ENOENT
                      : exists && S_ISDIR(there.st_mode) ? EISDIR
                      : ::faccessat(AT_FDCWD, exists ? path.c_str() : directory.c_str(),
                                    exists ? W_OK : W_OK | X_OK, AT_EACCESS) != 0
                          ? errno
                          : 0;
    if (error == 0) return {};
    return failure{request_errc::io, "cannot write '" + path + "': " + std::strerror(error)};
}

output_file::output_file(std::string name, int fd) noexcept
    : name_(std::move(name)),
      fd_(fd),
      standard_output_(fd == STDOUT_FILENO),
      write_step_(std::size_t{4} << 20) {}

output_file::output_file(output_file&& other) noexcept
    : name_(std::move(other.name_)),
      final_(std::move(other.final_)),
      temporary_(std::exchange(other.temporary_, {})),
      until_(other.until_),
      fd_(std::exchange(other.fd_, -1)),
      standard_output_(other.standard_output_),
      write_step_(other.write_step_),
      announced_(other.announced_),
      written_(other.written_) {}

output_file::~output_file() {
    if (fd_ > STDERR_FILENO) {
        ::close(fd_);
    }
    if (!temporary_.empty()) {
        ::unlink(temporary_.c_str());
    }
}

failure output_file::cannot(const std::string& what, int error) const {
    const char* step = "; give another place with -o";
    if (error == ENOSPC || error == EDQUOT)
        step = "; free some space or give another place with -o";
    if (error == EMFILE) step = "; raise `ulimit -n`";
    return {request_errc::io, name_ + ": cannot " + what + ": " + std::strerror(error) + step};
}

failure output_file::late() const {
    return {
        request_errc::deadline_exceeded,
        name_ +
            ": not all of it was read before the deadline; see who reads it, or give more time"};
}

result<output_file> output_file::open(const std::string& path, std::optional<time_point> until) {
    struct stat facts {};
    const bool exists = path != "-" && ::stat(path.c_str(), &facts) == 0;
    if (path == "-" || (exists && leads_to_standard_output(facts))) {
        output_file out("standard output", STDOUT_FILENO);
        out.until_ = until;
        out.prepare_pipe();
        return out;
    }
    output_file out(path, -1);
    out.until_ = until;
    if (path.empty() || path.back() == '/') {
        return out.cannot("be written", EISDIR);
    }
    if (!exists || S_ISREG(facts.st_mode)) {
        out.final_ = resolved(path);
        return out;
    }
    // Never replaced by a file: a device, a FIFO.
    const auto opened = open_for_writing(path, until);
    if (!opened) {
        return out.late();
    }
    if (opened->fd < 0) {
        return out.cannot("open", opened->error);
    }
    out.fd_ = opened->fd;
    out.prepare_pipe();
    return out;
}

/// A pipe that nobody reads must not keep a signal waiting, so its writes may not block. That is a
/// property of the open file, which others may share: a second one of our own is opened. Where that
/// is not allowed, small steps do: a pipe that polls writable takes PIPE_BUF bytes (pipe(7)).
void output_file::prepare_pipe() {
    struct stat facts {};
    if (::fstat(fd_, &facts) != 0 || !S_ISFIFO(facts.st_mode)) {
        return;
    }
    const std::string self = "/proc/self/fd/" + std::to_string(fd_);
    const int own = ::open(self.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (own < 0) {
        write_step_ = PIPE_BUF;
        return;
    }
    if (!standard_output_) {
        ::close(fd_);
    }
    fd_ = own;
}

result<void> output_file::begin(std::uint64_t bytes) {
    announced_ = bytes;
    if (final_.empty()) {
        return {};
    }
    std::string temporary = temporary_beside(final_);
    fd_ = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0) {
        return cannot("create a file beside it", errno);
    }
    temporary_ = std::move(temporary);
    struct stat old {};
    if (::stat(final_.c_str(), &old) == 0 && ::fchmod(fd_, old.st_mode & 07777) != 0) {
        return cannot("keep its permissions", errno);
    }
    // The size stays what was written. A file system that cannot set space aside says so with one
    // of many errors; only the ones that mean "there is no room" count.
    if (bytes > 0 && ::fallocate(fd_, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes)) != 0 &&
        (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
        return cannot("make room for " + std::to_string(bytes) + " bytes", errno);
    }
    return {};
}

result<void> output_file::write(std::span<const std::byte> bytes, signal_watch& signals) {
    while (!bytes.empty()) {
        if (!signals.wait_for(fd_, POLLOUT, until_)) {
            return signals.received() ? failure{request_errc::cancelled,
                                                name_ + ": a signal came while it was written"}
                                      : late();
        }
        const ssize_t put = ::write(fd_, bytes.data(), std::min(bytes.size(), write_step_));
        if (put < 0 && errno != EINTR && errno != EAGAIN) {
            return cannot("write", errno);
        }
        const auto done = static_cast<std::size_t>(std::max<ssize_t>(put, 0));
        written_ += done;
        bytes = bytes.subspan(done);
    }
    return {};
}

result<void> output_file::commit(bool sync) {
    if (written_ != announced_) {
        return failure{node_errc::internal, name_ + ": " + std::to_string(written_) + " bytes of " +
                                                std::to_string(announced_) + " were written"};
    }
    if (temporary_.empty()) {
        return {};
    }
    struct stat facts {};
    if (::fstat(fd_, &facts) != 0) {
        return cannot("be checked", errno);
    }
    if (static_cast<std::uint64_t>(facts.st_size) != announced_) {
        return failure{request_errc::io, name_ + ": " + std::to_string(facts.st_size) +
                                             " bytes arrived in the file where " +
                                             std::to_string(announced_) +
                                             " were written; somebody else changed it, try again"};
    }
    if (sync && ::fsync(fd_) != 0) {
        return cannot("sync", errno);
    }
    // A network file system may report a failed write only here.
    if (::close(std::exchange(fd_, -1)) != 0) {
        return cannot("close", errno);
    }
    if (::rename(temporary_.c_str(), final_.c_str()) != 0) {
        return cannot("rename the finished file", errno);
    }
    temporary_.clear();
    return {};
}

}  // namespace rvget::tools
