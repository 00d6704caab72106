#pragma once
// Fetches a range of a slot in segments and writes it in order.

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <rvget/node.hpp>

#include "byte_range.hpp"
#include "output_file.hpp"
#include "progress_bar.hpp"
#include "signal_watch.hpp"

namespace rvget::tools {

struct download_settings {
    url from;
    std::optional<byte_range> range;
    path_policy policy = path_policy::prefer;
    bool checksum = false;
    std::optional<signal_watch::time_point> until;  ///< over all
    std::uint64_t segment_bytes = 0;                ///< 0: one segment
    std::uint32_t segments_in_flight = 1;
};

/// What came of it, over all segments. Segments overlap in time, so that acquire, transfer, copy
/// and write, which are sums, may amount to more than the total.
struct download_summary {
    using nanoseconds = std::chrono::nanoseconds;

    std::uint64_t slot_bytes = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::uint64_t segments = 0;
    std::array<std::uint64_t, 3> path_bytes{};     ///< by rvget::path
    std::array<std::uint64_t, 3> path_segments{};  ///< by rvget::path
    rvget::reason reason = rvget::reason::ok;      ///< of the first segment not by RDMA
    std::string detail;                            ///< and what that segment said
    std::string device;                            ///< of the first segment by RDMA
    unsigned port = 0;
    std::string gid;
    std::uint32_t path_mtu = 0;
    std::uint64_t copied_bytes = 0;
    nanoseconds acquire{0};
    nanoseconds transfer{0};
    nanoseconds copy{0};
    nanoseconds write{0};
    nanoseconds total{0};

    /// The one path that all segments took, or "mixed".
    [[nodiscard]] std::string_view path_name() const noexcept;
};

/// Memory is bounded: no more segments are asked for, or wait to be written, than are allowed in
/// flight. Used by one thread.
class download {
public:
    /// `context` is run by run() alone; like the node it outlives this.
    download(boost::asio::io_context& context, node& n, const download_settings& settings,
             output_file& out, progress_bar& bar, signal_watch& signals);

    /// Blocks until all bytes are written (not yet committed), something failed, or a signal came
    /// (`cancelled`). Called once. After a failure shut the node down: gets may still run.
    result<void> run();

    [[nodiscard]] const download_summary& summary() const noexcept { return summary_; }

private:
    using clock = std::chrono::steady_clock;

    template <class F>
    void ask(std::uint64_t offset, std::uint64_t length, F then);
    void measured(get_pinned_result probe);
    void ask_more();
    void arrived(std::uint64_t offset, std::uint64_t length, get_pinned_result segment);
    void write_ready();
    void account(const transfer_report& report);
    void end(result<void> outcome);

    boost::asio::io_context& context_;
    node& node_;
    const download_settings& settings_;
    output_file& out_;
    progress_bar& bar_;
    signal_watch& signals_;
    boost::asio::posix::stream_descriptor signal_;
    const clock::time_point begin_ = clock::now();

    std::uint64_t segment_bytes_ = 0;
    std::uint64_t asked_ = 0;    ///< of the range
    std::uint64_t written_ = 0;  ///< of the range
    std::uint32_t in_flight_ = 0;
    std::map<std::uint64_t, pinned_buffer> ready_;  ///< by offset in the range
    std::optional<result<void>> outcome_;
    download_summary summary_;
};

}  // namespace rvget::tools
