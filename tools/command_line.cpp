#include "command_line.hpp"

#include <algorithm>
#include <charconv>
#include <iostream>
#include <sstream>

#include <boost/program_options/parsers.hpp>

#include <rvget/log.hpp>

#include "console.hpp"
#include "quantity.hpp"

namespace rvget::tools {

namespace po = boost::program_options;

namespace {

std::optional<log_level> parse_level(std::string_view text) {
    for (const auto level : {log_level::trace, log_level::debug, log_level::info,
                             log_level::warning, log_level::error, log_level::off}) {
        if (text == to_string(level)) {
            return level;
        }
    }
    return std::nullopt;
}

failure not_of_option(const std::string& name, const std::string& value, const char* wanted) {
    return {request_errc::invalid_argument, "--" + name + " '" + value + "': give " + wanted};
}

}  // namespace

command_line::command_line(std::string usage, std::string text, exit_convention exits)
    : usage_(std::move(usage)), text_(std::move(text)), exits_(exits) {}

void command_line::add(const char* spelling, const char* value_name, const char* text) {
    if (value_name == nullptr) {
        options_.add_options()(spelling, text);
    } else {
        options_.add_options()(spelling, po::value<std::string>()->value_name(value_name), text);
    }
}

void command_line::take_operands(const char* name) {
    operand_name_ = name;
    hidden_.add_options()(name, po::value<std::vector<std::string>>());
    positions_.add(name, -1);
}

std::optional<int> command_line::parse(const arguments& given) {
    add("json", nullptr, "results and errors as JSON, one object per line");
    add("verbose,v", nullptr, "say more on standard error; the same as --log-level info");
    add("log-level", "LEVEL", "trace, debug, info, warning (default), error or off");
    add("help,h", nullptr, "show this text");
    json_ = std::find(given.begin(), given.end(), "--json") != given.end();
    po::options_description all;
    all.add(options_).add(hidden_);
    try {
        // An abbreviation that works today becomes ambiguous with the next option: none are taken.
        const int style =
            po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
        po::store(
            po::command_line_parser(given).options(all).positional(positions_).style(style).run(),
            values_);
    } catch (const po::error& e) {
        return wrong(e.what());
    }
    if (has("help")) {
        std::ostringstream help;
        help << "usage: rvget " << usage_ << "\n\n"
             << text_ << "\n"
             << options_ << "\n"
             << exits_.help;
        std::string shown = help.str();
        shown.pop_back();
        const auto printed = print_line(stdout, shown);
        return static_cast<int>(printed ? exit_status::ok : exit_status::io);
    }
    const auto level = parse_level(text("log-level").value_or(has("verbose") ? "info" : "warning"));
    if (!level) {
        return wrong("--log-level '" + *text("log-level") + "' is no level");
    }
    set_log_level(*level);
    return std::nullopt;
}

std::optional<std::string> command_line::text(const std::string& name) const {
    return has(name) ? std::optional(values_[name].as<std::string>()) : std::nullopt;
}

std::vector<std::string> command_line::texts(const std::string& name) const {
    std::vector<std::string> words;
    std::istringstream given(text(name).value_or(""));
    for (std::string word; std::getline(given, word, ',');) words.push_back(word);
    return words;
}

std::vector<std::string> command_line::operands() const {
    return has(operand_name_) ? values_[operand_name_].as<std::vector<std::string>>()
                              : std::vector<std::string>{};
}

result<std::optional<std::uint64_t>> command_line::bytes(const std::string& name) const {
    const auto given = text(name);
    if (!given) {
        return std::nullopt;
    }
    if (const auto value = parse_bytes(*given)) {
        return value;
    }
    return not_of_option(name, *given, "a number of bytes, such as 65536, 64K, 16M or 1G");
}

result<std::optional<std::chrono::milliseconds>> command_line::milliseconds(
    const std::string& name) const {
    const auto given = text(name);
    if (!given) {
        return std::nullopt;
    }
    std::uint32_t value = 0;
    const char* const end = given->data() + given->size();
    const auto [rest, error] = std::from_chars(given->data(), end, value);
    if (error != std::errc{} || rest != end) {
        return not_of_option(name, *given, "a whole number of milliseconds");
    }
    return std::chrono::milliseconds(value);
}

result<std::optional<path_policy>> command_line::policy(const std::string& name) const {
    const auto given = text(name);
    if (!given) {
        return std::nullopt;
    }
    for (const auto policy : {path_policy::prefer, path_policy::require, path_policy::never}) {
        if (*given == to_string(policy)) {
            return policy;
        }
    }
    return not_of_option(name, *given, "prefer, require or never");
}

int command_line::wrong(const std::string& what) const {
    const auto subcommand = usage_.substr(0, usage_.find(' '));
    return report_error(static_cast<exit_status>(exits_.usage),
                        subcommand + ": " + what + "; see 'rvget " + subcommand + " --help'",
                        json());
}

}  // namespace rvget::tools
