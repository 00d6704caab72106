#pragma once
// What the command says to people and to programs, besides its results.

#include <cstdio>
#include <string>
#include <string_view>

#include <rvget/error.hpp>

#include "exit_status.hpp"

namespace rvget::tools {

/// Prints "rvget: <message>" to standard error, as one line.
void note(std::string_view message);

/// Prints the error as note() does, and with `json` also an error object (one line) to
/// `json_stream`; returns the number to exit with.
int report_error(exit_status status, std::string_view message, bool json = false,
                 std::FILE* json_stream = stdout);

/// The same for the end by a signal: 128 and its number.
int report_signal(int signal, std::string_view effect, bool json, std::FILE* json_stream = stdout);

/// The failure's sentence for people: its detail, or the code's own words where it has none.
std::string sentence_of(const failure& f);

/// Writes one line and flushes; a result that nobody received is an error (a full disk, say).
result<void> print_line(std::FILE* stream, std::string_view line);

}  // namespace rvget::tools
