#pragma once
// Something to stage: a regular file, or standard input.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <rvget/error.hpp>
#include <rvget/node.hpp>

#include "signal_watch.hpp"

namespace rvget::tools {

/// Move-only; closes the file.
class source_file {
public:
    /// Opens `path` ("-" is standard input). Directories and special files are refused.
    static result<source_file> open(const std::string& path);
    source_file(source_file&& other) noexcept;
    source_file& operator=(source_file&& other) noexcept;
    ~source_file();

    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    /// The size when it was opened; 0 for standard input, which has none before it ends.
    [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

    /// A copy of the whole content in staging memory, pinned if `pinned` and possible. A file that
    /// has not exactly bytes() bytes when it is read is an error; `cancelled` where a signal came.
    result<staging> stage_into(node& n, bool pinned, signal_watch& signals);

private:
    source_file(std::string name, int fd, std::uint64_t bytes, bool stream) noexcept;
    result<void> read_file(std::span<std::byte> into, signal_watch& signals);
    result<std::vector<std::byte>> read_stream(signal_watch& signals);

    std::string name_;
    int fd_ = -1;
    std::uint64_t bytes_ = 0;
    bool stream_ = false;
};

}  // namespace rvget::tools
