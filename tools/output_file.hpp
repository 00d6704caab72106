#pragma once
// Where the bytes of a get go: a file that appears whole or not at all, a device or FIFO, or
// standard output.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <rvget/error.hpp>

#include "signal_watch.hpp"

namespace rvget::tools {

/// Whether a file could be written at `path` now, so that it need not be found out when there is
/// something to write. Creates and changes nothing; a full disk shows later.
result<void> can_be_written(const std::string& path);

/// Writes in order. A regular file is written under a temporary name (".rvget-" and 16 digits) in
/// the same directory and takes its final name in commit(); until then, and when this is destroyed
/// without, nothing is under the final name but what was there before. Move-only.
class output_file {
public:
    using time_point = signal_watch::time_point;
    /// `path` "-" is standard output. Opens what is no regular file, a FIFO for instance, which
    /// blocks until somebody reads; creates nothing. Where it is still to be opened or written at
    /// `until`, that fails with `deadline_exceeded`; then the process should end, because a thread
    /// may go on to wait for the reader.
    static result<output_file> open(const std::string& path,
                                    std::optional<time_point> until = std::nullopt);
    output_file(output_file&& other) noexcept;
    output_file& operator=(output_file&&) = delete;
    ~output_file();

    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    [[nodiscard]] bool is_standard_output() const noexcept { return standard_output_; }

    /// Creates the temporary file and has the file system set `bytes` aside, so that a full disk
    /// shows now.
    result<void> begin(std::uint64_t bytes);
    /// `cancelled` where a signal came before all was written, `deadline_exceeded` at `until`.
    result<void> write(std::span<const std::byte> bytes, signal_watch& signals);
    /// Checks that all announced bytes were written and gives the file its name; with `sync` after
    /// they have reached the disk.
    result<void> commit(bool sync);

private:
    output_file(std::string name, int fd) noexcept;
    void prepare_pipe();
    [[nodiscard]] failure cannot(const std::string& what, int error) const;
    [[nodiscard]] failure late() const;

    std::string name_;       ///< as it was given, for people
    std::string final_;      ///< empty for what is written directly
    std::string temporary_;  ///< empty where none is there
    std::optional<time_point> until_;
    int fd_ = -1;
    bool standard_output_ = false;
    std::size_t write_step_;  ///< at most this much between two looks at the signals
    std::uint64_t announced_ = 0;
    std::uint64_t written_ = 0;
};

}  // namespace rvget::tools
