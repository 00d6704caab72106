#include "base/log.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

namespace rvget {
namespace {

bool is_control(char c) noexcept {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7f;
}

void append_escaped(std::string& to, char c) {
    constexpr char digits[] = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    to += "\\x";
    to += digits[byte >> 4];
    to += digits[byte & 0xf];
}

std::string without_control_characters(std::string_view line) {
    std::string clean;
    clean.reserve(line.size() + 16);
    for (const char c : line) {
        if (is_control(c)) {
            append_escaped(clean, c);
        } else {
            clean += c;
        }
    }
    return clean;
}

spdlog::level::level_enum spdlog_level(log_level level) noexcept {
    switch (level) {
        case log_level::trace:
            return spdlog::level::trace;
        case log_level::debug:
            return spdlog::level::debug;
        case log_level::info:
            return spdlog::level::info;
        case log_level::warning:
            return spdlog::level::warn;
        case log_level::error:
            return spdlog::level::err;
        case log_level::off:
            break;
    }
    return spdlog::level::off;
}

log_sink standard_error_sink() {
    auto logger = std::make_shared<spdlog::logger>(
        "rvget", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger->set_formatter(std::make_unique<spdlog::pattern_formatter>(
        "time=%Y-%m-%dT%H:%M:%S.%fZ level=%l %v", spdlog::pattern_time_type::utc));
    logger->set_level(spdlog::level::trace);  // the level is tested before the sink
    logger->flush_on(spdlog::level::trace);
    return [logger](log_level level, std::string_view line) {
        logger->log(spdlog_level(level), spdlog::string_view_t(line.data(), line.size()));
    };
}

struct process_logger {
    std::atomic<log_level> threshold{log_level::info};
    std::mutex mutex;  ///< held while the sink runs: lines do not mix, and a replaced sink is done
    log_sink sink = standard_error_sink();
};

/// Never destroyed: threads and destructors of static objects may log to the very end.
process_logger& logger() {
    static auto& instance = *new process_logger;
    return instance;
}

thread_local bool inside_sink = false;

}  // namespace

std::string_view to_string(log_level level) noexcept {
    switch (level) {
        case log_level::trace:
            return "trace";
        case log_level::debug:
            return "debug";
        case log_level::info:
            return "info";
        case log_level::warning:
            return "warning";
        case log_level::error:
            return "error";
        case log_level::off:
            return "off";
    }
    return "unknown";
}

void set_log_sink(log_sink sink) {
    if (!sink) {
        sink = standard_error_sink();
    }
    process_logger& to = logger();
    const std::lock_guard lock(to.mutex);
    to.sink.swap(sink);
}  // the lock goes before the old sink, whose destructor is the embedder's code

void set_log_level(log_level level) noexcept {
    logger().threshold.store(level, std::memory_order_relaxed);
}

bool log_enabled(log_level level) noexcept {
    return level != log_level::off && level >= logger().threshold.load(std::memory_order_relaxed);
}

void log(log_level level, std::string_view line) noexcept {
    try {
        if (inside_sink || !log_enabled(level)) {
            return;
        }
        std::string clean;
        if (std::ranges::any_of(line, is_control)) {
            clean = without_control_characters(line);
            line = clean;
        }
        process_logger& to = logger();
        const std::lock_guard lock(to.mutex);
        inside_sink = true;
        try {
            to.sink(level, line);
        } catch (...) {  // a line that cannot be written must not take the caller down
        }
        inside_sink = false;
    } catch (...) {  // no memory for the line: there is nowhere to say so
    }
}

std::string quoted(std::string_view text) {
    const auto needs_quotes = [](char c) {
        return is_control(c) || c == ' ' || c == '"' || c == '\\' || c == '=';
    };
    if (!text.empty() && std::ranges::none_of(text, needs_quotes)) {
        return std::string(text);
    }
    std::string out = "\"";
    for (const char c : text) {
        if (is_control(c)) {
            append_escaped(out, c);
            continue;
        }
        if (c == '"' || c == '\\') {
            out += '\\';
        }
        out += c;
    }
    out += '"';
    return out;
}

}  // namespace rvget
