#include "wireup.hpp"

namespace rvget::tools {

void add_wireup(command_line& line) {
    line.add("wireup", "HOW",
             "auto (default: by exchange, by RDMA-CM where that fails), exchange or cm");
}

result<std::optional<wireup_choice>> read_wireup(const command_line& line) {
    using enum wireup_choice;
    const auto named = line.text("wireup");
    if (!named) return std::optional<wireup_choice>();
    if (*named == "auto") return std::optional(automatic);
    if (*named == "exchange") return std::optional(exchange);
    if (*named == "cm") return std::optional(cm);
    return failure{request_errc::invalid_argument,
                   "--wireup '" + *named + "' is not auto, exchange or cm"};
}

}  // namespace rvget::tools
