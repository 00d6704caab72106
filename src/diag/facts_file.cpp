#include "diag/facts_file.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include <boost/json/parse.hpp>

#include "diag/described.hpp"

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
        const auto& object = value.as_object();
        const auto* schema = object.if_contains("schema");
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
    std::stringstream text;
    if (in) text << in.rdbuf();
    if (!in) {
        return failure{request_errc::io,
                       "cannot read " + file.string() + ": " + std::strerror(errno)};
    }
    boost::json::error_code error;
    auto value = boost::json::parse(text.str(), error);
    if (error) {
        return failure{request_errc::invalid_argument,
                       file.string() + " is not JSON: " + error.message()};
    }
    return value;
}

result<expectations> read_expectations(const std::filesystem::path& file) {
    auto value = read_json(file);
    if (!value) return value.error();
    expectations e;
    try {
        from_json(*value, e);
    } catch (const std::exception& error) {
        return failure{request_errc::invalid_argument, file.string() + ": " + error.what()};
    }
    return e;
}

namespace {

/// Gives each new text the next number.
class numbering {
public:
    unsigned of(const std::string& text) {
        return numbers_.try_emplace(text, static_cast<unsigned>(numbers_.size() + 1)).first->second;
    }

private:
    std::map<std::string, unsigned> numbers_;
};

class masks {
public:
    void address(std::string& a) {
        if (a.empty() || a.starts_with("127.") || a == "::1") return;
        const auto last = a.find_last_of(".:");
        const bool local = a.starts_with("fe8") || a.starts_with("169.254.");
        const auto network = std::to_string(networks_.of(local ? "" : a.substr(0, last)));
        const auto host = std::to_string(addresses_.of(a));
        if (a.find(':') == std::string::npos) {
            a = (local ? "169.254." : "198.18.") + network + "." + host;
        } else {
            a = local ? "fe80::" + host : "2001:db8:0:" + network + "::" + host;
        }
    }
    void guid(std::string& g) {
        if (g.find_first_not_of("0:") == std::string::npos) return;
        g = "0000:0000:0000:" + padded(guids_.of(g), 4);
    }
    void mac(std::string& m) {
        if (!m.empty()) m = "02:00:00:00:00:" + padded(macs_.of(m), 2);
    }

private:
    static std::string padded(unsigned number, std::size_t digits) {
        auto text = std::to_string(number);
        return std::string(digits - std::min(digits, text.size()), '0') + text;
    }
    numbering networks_, addresses_, guids_, macs_;
};

}  // namespace

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
            for (auto* text : {&t.allocate, &t.loop, &t.event}) {
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
