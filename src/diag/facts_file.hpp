#pragma once
// Facts in a file: recorded on one machine, judged on another.

#include <filesystem>

#include <boost/json/value.hpp>

#include <rvget/error.hpp>

#include "diag/rule.hpp"

namespace rvget::diag {

inline constexpr std::string_view facts_schema = "rvget.facts/1";

[[nodiscard]] boost::json::value to_value(const inventory::facts& facts);
/// What the value does not have keeps its default; a value of the wrong kind is a failure.
[[nodiscard]] result<inventory::facts> facts_from(const boost::json::value& value);
/// The failure names the file and the cause.
[[nodiscard]] result<boost::json::value> read_json(const std::filesystem::path& file);
[[nodiscard]] result<expectations> read_expectations(const std::filesystem::path& file);

/// The same machine with other names: addresses keep family, scope and which of them share a
/// network; GUIDs, MACs and the host's name become numbers.
void redact(inventory::facts& facts);

}  // namespace rvget::diag
