#pragma once
// Described structs (Boost.Describe) to JSON and back: each member under its own name. What a file
// does not have keeps its default, so that facts recorded by an older version stay readable.

#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <boost/describe/members.hpp>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <boost/mp11/algorithm.hpp>

namespace rvget::diag {

namespace detail {
template <class T>
struct is_vector : std::false_type {};
template <class T>
struct is_vector<std::vector<T>> : std::true_type {};
template <class T>
struct is_map : std::false_type {};
template <class T>
struct is_map<std::map<std::string, T>> : std::true_type {};
template <class T>
struct is_optional : std::false_type {};
template <class T>
struct is_optional<std::optional<T>> : std::true_type {};
template <class T>
using members = boost::describe::describe_members<T, boost::describe::mod_public>;

/// Of whoever wrote the file: what should be there, not which call of the parser's failed.
inline void require(bool right, const std::string& kind) {
    if (!right) throw std::invalid_argument("this must be " + kind);
}
}  // namespace detail

/// The names of a described struct's members: the keys that from_json() knows.
template <class T>
std::vector<std::string> keys_of() {
    std::vector<std::string> all;
    boost::mp11::mp_for_each<detail::members<T>>(
        [&](auto member) { all.emplace_back(member.name); });
    return all;
}

template <class T>
boost::json::value to_json(const T& from) {
    if constexpr (detail::is_optional<T>::value) {
        return from ? to_json(*from) : boost::json::value(nullptr);
    } else if constexpr (detail::is_vector<T>::value) {
        boost::json::array all;
        for (const auto& one : from) all.push_back(to_json(one));
        return all;
    } else if constexpr (detail::is_map<T>::value) {
        boost::json::object all;
        for (const auto& [name, one] : from) all[name] = to_json(one);
        return all;
    } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
        return boost::json::value(from);
    } else {
        boost::json::object all;
        boost::mp11::mp_for_each<detail::members<T>>(
            [&](auto member) { all[member.name] = to_json(from.*member.pointer); });
        return all;
    }
}

/// Throws std::exception where `from` is not of the kind that `to` is.
template <class T>
void from_json(const boost::json::value& from, T& to) {
    if constexpr (detail::is_optional<T>::value) {
        to.reset();
        if (!from.is_null()) from_json(from, to.emplace());
    } else if constexpr (detail::is_vector<T>::value) {
        detail::require(from.is_array(), "a list");
        to.clear();
        for (const auto& one : from.get_array()) from_json(one, to.emplace_back());
    } else if constexpr (detail::is_map<T>::value) {
        detail::require(from.is_object(), "an object");
        to.clear();
        for (const auto& [name, one] : from.get_object()) from_json(one, to[std::string(name)]);
    } else if constexpr (std::is_same_v<T, std::string>) {
        detail::require(from.is_string(), "a string");
        to = from.get_string().c_str();
    } else if constexpr (std::is_same_v<T, bool>) {
        detail::require(from.is_bool(), "true or false");
        to = from.get_bool();
    } else if constexpr (std::is_arithmetic_v<T>) {
        boost::json::error_code wrong;
        const auto number = from.is_number() ? from.to_number<T>(wrong) : T{};
        using limits = std::numeric_limits<T>;
        detail::require(from.is_number() && !wrong, std::is_integral_v<T>
                                                        ? "a whole number from " +
                                                              std::to_string(limits::min()) +
                                                              " to " + std::to_string(limits::max())
                                                        : std::string("a number"));
        to = number;
    } else {
        detail::require(from.is_object(), "an object");
        const auto& object = from.get_object();
        boost::mp11::mp_for_each<detail::members<T>>([&](auto member) {
            const auto* found = object.if_contains(member.name);
            if (found == nullptr) return;
            try {
                from_json(*found, to.*member.pointer);
            } catch (const std::exception& e) {
                throw std::invalid_argument(std::string(member.name) + ": " + e.what());
            }
        });
    }
}

}  // namespace rvget::diag
