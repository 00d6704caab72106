// The chunked path needs no memory of the size of what it carries: bytes go from the owner's memory
// to the socket, and from the socket to the destination.

#include <array>
#include <fstream>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>

#include "api/nodes.hpp"

namespace rvget::test {
namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20;
constexpr std::size_t transferred = 256 * mebibyte;

/// The largest resident size of this process so far (proc(5)).
std::size_t peak_bytes() {
    std::ifstream status("/proc/self/status");
    std::string name;
    std::size_t kibibytes = 0;
    while (status >> name) {
        if (name == "VmHWM:" && status >> kibibytes) return kibibytes * 1024;
        status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
    }
    return 0;
}

/// A process of its own that stages the pattern, says its URL and serves until its input ends. Its
/// exit status says that it went well and needed little memory beyond what it staged.
class owner_process {
public:
    owner_process() {
        int to[2];
        int from[2];
        if (::pipe(to) != 0 || ::pipe(from) != 0) throw std::runtime_error("no pipe");
        pid_ = ::fork();  // before this process has any thread
        if (pid_ == 0) {
            ::close(to[1]);
            ::close(from[0]);
            serve(to[0], from[1]);
        }
        ::close(to[0]);
        ::close(from[1]);
        end_ = to[1];
        std::array<char, 256> said{};
        const auto n = ::read(from[0], said.data(), said.size());
        ::close(from[0]);
        if (n <= 0) throw std::runtime_error("the owner's process does not start");
        target_ = url::parse(std::string_view(said.data(), static_cast<std::size_t>(n))).value();
    }
    ~owner_process() {
        ::close(end_);
        int status = 1;
        ::waitpid(pid_, &status, 0);
        BOOST_TEST(status == 0);
    }
    [[nodiscard]] const url& target() const { return target_; }

private:
    [[noreturn]] static void serve(int input, int output) {
        auto n = start_tcp_node(listening());
        auto s = n.make_staging(transferred).value();
        fill_pattern(s.bytes());
        const auto text = n.url_of(n.stage(std::move(s)).value()).to_string();
        const bool said = ::write(output, text.data(), text.size()) > 0;
        char ignored = 0;
        while (::read(input, &ignored, 1) > 0) {
        }
        const bool small = peak_bytes() < transferred + 16 * mebibyte;
        ::_exit(said && small && n.shutdown(5s) ? 0 : 1);
    }
    pid_t pid_ = -1;
    int end_ = -1;
    url target_;
};

BOOST_AUTO_TEST_CASE(chunked_get_needs_little_memory_beyond_its_destination) {
    const owner_process owner;
    void* const mapped = ::mmap(nullptr, transferred, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    BOOST_REQUIRE(mapped != MAP_FAILED);
    const std::span destination(static_cast<std::byte*>(mapped), transferred);
    BOOST_REQUIRE(peak_bytes() > transferred);  // it counts from now on

    auto consumer = start_tcp_node();
    const auto got = consumer.get_into(owner.target(), destination);
    BOOST_REQUIRE_MESSAGE(got, got.error().message());
    BOOST_TEST(got->report.path == path::chunked);
    BOOST_TEST(got->bytes == transferred);
    const auto beyond = peak_bytes() - transferred;
    BOOST_TEST_MESSAGE("peak beyond the destination: " << beyond / 1024 << " KiB");
    BOOST_TEST(beyond < 16 * mebibyte);
    check_pattern(destination);
    ::munmap(mapped, transferred);
}

}  // namespace
}  // namespace rvget::test
