#pragma once
// The command line of one subcommand.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/positional_options.hpp>
#include <boost/program_options/variables_map.hpp>

#include <rvget/error.hpp>
#include <rvget/path.hpp>

#include "exit_status.hpp"

namespace rvget::tools {

using arguments = std::vector<std::string>;

/// What a subcommand's exit status says. The diagnostic ones have numbers of their own, those of
/// monitoring systems.
struct exit_convention {
    int usage = static_cast<int>(exit_status::usage);
    std::string_view help = exit_status_help();
};

/// Options of its own plus those that every subcommand has: --help, --json, --verbose, --log-level.
class command_line {
public:
    /// `usage` is the line behind "usage: rvget "; `text` the paragraphs that follow it in --help.
    command_line(std::string usage, std::string text, exit_convention exits = {});

    /// Adds an option; `spelling` as in "output,o". One without `value_name` is a switch.
    void add(const char* spelling, const char* value_name, const char* text);
    /// What is not an option is a value of `name`; any number of them.
    void take_operands(const char* name);

    /// Sets the log level, too. A number: the subcommand is over, exit with it (help was shown, or
    /// the usage was wrong and has been told).
    std::optional<int> parse(const arguments& given);

    [[nodiscard]] bool has(const std::string& name) const { return values_.count(name) != 0; }
    [[nodiscard]] bool json() const { return json_; }
    /// A list with commas.
    [[nodiscard]] std::vector<std::string> texts(const std::string& name) const;
    [[nodiscard]] std::optional<std::string> text(const std::string& name) const;
    [[nodiscard]] std::vector<std::string> operands() const;
    [[nodiscard]] result<std::optional<std::uint64_t>> bytes(const std::string& name) const;
    [[nodiscard]] result<std::optional<std::chrono::milliseconds>> milliseconds(
        const std::string& name) const;
    [[nodiscard]] result<std::optional<path_policy>> policy(const std::string& name) const;

    /// Tells what is wrong and where to look; returns the exit status for it.
    int wrong(const std::string& what) const;

private:
    const std::string usage_;
    const std::string text_;
    const exit_convention exits_;
    bool json_ = false;  ///< wanted, even where the rest of the line is wrong
    std::string operand_name_;
    boost::program_options::options_description options_{"Options"};
    boost::program_options::options_description hidden_;
    boost::program_options::positional_options_description positions_;
    boost::program_options::variables_map values_;
};

}  // namespace rvget::tools
