#pragma once
// The subcommands. Each takes what follows its name and returns the exit status.

#include "command_line.hpp"

namespace rvget::tools {

int serve(const arguments& given);
int get(const arguments& given);
int doctor(const arguments& given);
int list(const arguments& given);
int show_route(const arguments& given);
int check(const arguments& given);
int perf(const arguments& given);

}  // namespace rvget::tools
