#include "diag/facts_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include <boost/json/parse.hpp>

#include "diag/described.hpp"
#include "diag/masks.hpp"

namespace rvget::diag {

boost::json::value to_value(const inventory::facts& facts) {
    auto value = to_json(facts);
    boost::json::object with_schema{{"schema", facts_schema}};
    for (auto& [name, part] : value.as_object()) with_schema[name] = std::move(part);
    return with_schema;
}

result<inventory::facts> facts_from(const boost::json::value& value) {
    inventory::facts facts;
    try {
        const auto* object = value.if_object();
        const auto* schema = object == nullptr ? nullptr : object->if_contains("schema");
        if (schema != nullptr && *schema != boost::json::value(facts_schema)) {
            return failure{request_errc::invalid_argument,
                           "the facts' schema is not " + std::string(facts_schema)};
        }
        from_json(value, facts);
    } catch (const std::exception& e) {
        return failure{request_errc::invalid_argument,
                       std::string("these are no facts: ") + e.what() + "; make some with --save"};
    }
    return facts;
}

result<boost::json::value> read_json(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    // A directory can be opened, and only reading it says what it is.
    if (in) in.peek();
    if (!in && !in.eof()) {
        return failure{request_errc::io,
                       "cannot read " + file.string() + ": " + std::strerror(errno)};
    }
    in.clear();
    std::stringstream text;
    text << in.rdbuf();
    boost::json::error_code error;
    auto value = boost::json::parse(text.str(), error);
    if (error) {
        return failure{request_errc::invalid_argument,
                       file.string() + " is not JSON: " + error.message()};
    }
    return value;
}

namespace {

/// What is misspelt must not pass for not expected.
result<expectations> expectations_from(const boost::json::value& value) {
    const auto wrong = [](const std::string& what) {
        return failure{request_errc::invalid_argument, what};
    };
    const auto* object = value.if_object();
    if (object == nullptr) return wrong("this must be an object");
    const auto known = keys_of<expectations>();
    for (const auto& [key, one] : *object) {
        if (std::ranges::find(known, std::string_view(key)) != known.end()) continue;
        std::string list;
        for (const auto& k : known) list.append(list.empty() ? "" : ", ").append(k);
        return wrong("'" + std::string(key) + "' is nothing that can be expected; there are " +
                     list);
    }
    expectations e;
    try {
        from_json(value, e);
    } catch (const std::exception& error) {
        return wrong(error.what());
    }
    if (object->contains("gid_family") && e.gid_family != "IPv4" && e.gid_family != "IPv6") {
        return wrong("gid_family: this must be IPv4 or IPv6");
    }
    return e;
}

}  // namespace

result<expectations> read_expectations(const std::filesystem::path& file) {
    const auto value = read_json(file);
    if (!value) return value.error();
    auto e = expectations_from(*value);
    if (!e) return failure{e.error().code, file.string() + ": " + e.error().detail};
    return e;
}

void redact(inventory::facts& facts) {
    masks m;
    if (!facts.host.name.empty()) facts.host.name = "host";
    // A rule of the packet filter may hold addresses; that it drops is all that counts.
    auto& rule = facts.host.firewall;
    if (rule != "open" && !rule.empty() && !rule.starts_with("unknown")) rule = "a rule drops 4791";
    for (auto& d : facts.devices) {
        m.guid(d.node_guid);
        for (auto& p : d.ports) {
            for (auto& g : p.gids) m.address(g.gid);
        }
        for (auto& t : d.trials) {
            m.address(t.gid);
            for (auto* text : {&t.allocate, &t.loop, &t.event, &t.cm}) {
                if (!text->empty() && *text != "ok") *text = "failed";
            }
        }
    }
    for (auto& n : facts.netdevs) {
        m.mac(n.mac);
        for (auto& a : n.addresses) m.address(a.text);
    }
}

}  // namespace rvget::diag
