#pragma once
// Described structs (Boost.Describe) to JSON and back: each member under its own name. What a file
// does not have keeps its default, so that facts recorded by an older version stay readable.

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
}  // namespace detail

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
        to.clear();
        for (const auto& one : from.as_array()) from_json(one, to.emplace_back());
    } else if constexpr (detail::is_map<T>::value) {
        to.clear();
        for (const auto& [name, one] : from.as_object()) from_json(one, to[std::string(name)]);
    } else if constexpr (std::is_same_v<T, std::string>) {
        to = from.as_string().c_str();
    } else if constexpr (std::is_same_v<T, bool>) {
        to = from.as_bool();
    } else if constexpr (std::is_arithmetic_v<T>) {
        to = from.to_number<T>();
    } else {
        const auto& object = from.as_object();
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
