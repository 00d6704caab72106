#include "download.hpp"

#include <algorithm>
#include <utility>

#include <unistd.h>
#include <boost/asio/bind_executor.hpp>

namespace rvget::tools {

namespace asio = boost::asio;

std::string_view download_summary::path_name() const noexcept {
    std::optional<path> only;
    for (const auto p : {path::rdma, path::inline_answer, path::chunked}) {
        if (path_segments[static_cast<std::size_t>(p)] != 0) {
            if (only) {
                return "mixed";
            }
            only = p;
        }
    }
    return to_string(only.value_or(path::inline_answer));
}

download::download(asio::io_context& context, node& n, const download_settings& settings,
                   output_file& out, progress_bar& bar, signal_watch& signals)
    : context_(context),
      node_(n),
      settings_(settings),
      out_(out),
      bar_(bar),
      signals_(signals),
      signal_(context, ::dup(signals.descriptor())) {}

result<void> download::run() {
    signal_.async_wait(asio::posix::stream_descriptor::wait_read, [this](error_code ec) {
        if (!ec) {
            end(failure{request_errc::cancelled, "a signal came"});
        }
    });
    // No bytes yet, only how many there are: then the segments can be cut so that none is too small
    // for RDMA, and room be made for all of them. It has the queue pair made on the side.
    ask(settings_.range ? settings_.range->first : 0, 0,
        [this](get_pinned_result probe) { measured(std::move(probe)); });
    context_.run();
    summary_.total = clock::now() - begin_;
    return *outcome_;
}

/// Gets a part of the slot; `then` runs unless all is over before.
template <class F>
void download::ask(std::uint64_t offset, std::uint64_t length, F then) {
    get_options options;
    options.offset = offset;
    options.length = length;
    options.policy = settings_.policy;
    options.checksum = settings_.checksum;
    if (settings_.until) {
        using std::chrono::milliseconds;
        const auto left = std::chrono::ceil<milliseconds>(*settings_.until - clock::now());
        options.deadline = std::max(left, milliseconds(1));
    }
    node_.async_get_pinned(
        settings_.from, options,
        asio::bind_executor(
            context_, [this, then = std::move(then)](error_code ec, get_pinned_result r) mutable {
                if (outcome_) {
                    return;
                }
                if (ec) {
                    return end(failure{ec, std::move(r.report.detail)});
                }
                summary_.acquire += r.report.acquire;
                then(std::move(r));
            }));
}

void download::measured(get_pinned_result probe) {
    const auto slot_bytes = probe.report.slot_bytes;
    const auto length = settings_.range.value_or(byte_range{}).length_in(slot_bytes);
    if (!length) {
        return end(length.error());
    }
    summary_.slot_bytes = slot_bytes;
    summary_.offset = settings_.range ? settings_.range->first : 0;
    summary_.bytes = *length;
    if (const auto begun = out_.begin(*length); !begun) {
        return end(begun.error());
    }
    if (*length == 0) {
        account(probe.report);
        return end({});
    }
    // Of equal size, whole pages: a short last one would be too small for RDMA.
    constexpr std::uint64_t page = 4096;
    const auto wanted = settings_.segment_bytes == 0 ? *length : settings_.segment_bytes;
    const auto count = (*length - 1) / wanted + 1;
    segment_bytes_ = (((*length - 1) / count + 1) + page - 1) / page * page;
    ask_more();
}

void download::ask_more() {
    while (asked_ < summary_.bytes && in_flight_ + ready_.size() < settings_.segments_in_flight) {
        const auto at = asked_;
        const auto length = std::min(segment_bytes_, summary_.bytes - at);
        asked_ += length;
        ++in_flight_;
        ask(summary_.offset + at, length, [this, at, length](get_pinned_result segment) {
            --in_flight_;
            arrived(at, length, std::move(segment));
        });
    }
}

void download::arrived(std::uint64_t offset, std::uint64_t length, get_pinned_result segment) {
    if (segment.data.size() != length) {
        return end(failure{connection_errc::protocol,
                           std::to_string(segment.data.size()) + " bytes came where " +
                               std::to_string(length) + " were asked for; try again"});
    }
    account(segment.report);
    summary_.transfer += segment.report.transfer;
    summary_.copy += segment.report.copy;
    summary_.copied_bytes += segment.report.copied_bytes;
    ready_.emplace(offset, std::move(segment.data));
    write_ready();
}

void download::write_ready() {
    while (!ready_.empty() && ready_.begin()->first == written_) {
        const auto began = clock::now();
        const auto bytes = ready_.begin()->second.bytes();
        if (const auto put = out_.write(bytes, signals_); !put) {
            return end(put.error());
        }
        summary_.write += clock::now() - began;
        written_ += bytes.size();
        ready_.erase(ready_.begin());
        bar_.show(written_, summary_.bytes);
    }
    if (written_ == summary_.bytes) {
        return end({});
    }
    ask_more();
}

void download::account(const transfer_report& report) {
    const auto which = static_cast<std::size_t>(report.path);
    ++summary_.segments;
    ++summary_.path_segments[which];
    summary_.path_bytes[which] += report.bytes;
    if (report.path == path::rdma) {
        if (summary_.device.empty()) {
            summary_.device = report.device;
            summary_.port = report.port;
            summary_.gid = report.gid;
            summary_.path_mtu = report.path_mtu;
        }
    } else if (summary_.reason == reason::ok) {
        summary_.reason = report.reason;
        summary_.detail = report.detail;
    }
}

void download::end(result<void> outcome) {
    if (!outcome_) {
        outcome_ = std::move(outcome);
        context_.stop();
    }
}

}  // namespace rvget::tools
