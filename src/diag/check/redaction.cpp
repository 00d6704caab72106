#include "diag/check/redaction.hpp"

#include <algorithm>
#include <cctype>
#include <map>

#include "diag/masks.hpp"

namespace rvget::diag {

namespace {

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Whether `part` stands at `at` and is not a piece of a longer word there.
bool stands_at(const std::string& text, std::size_t at, const std::string& part) {
    const auto end = at + part.size();
    return text.compare(at, part.size(), part) == 0 && (at == 0 || !in_word(text[at - 1])) &&
           (end == text.size() || !in_word(text[end]));
}

}  // namespace

redaction::redaction(const observations& o, const std::string& peer) {
    masks m;
    std::map<std::string, std::string> all;
    const auto host = [&](const std::string& name, const char* instead) {
        if (!name.empty()) all.try_emplace(name, instead);
    };
    const auto address = [&](const std::string& text) {
        if (text.empty() || all.contains(text)) return;
        auto& instead = all[text] = text;
        m.address(instead);
    };
    const auto mac = [&](const std::string& text) {
        if (text.empty() || all.contains(text)) return;
        m.mac(all[text] = text);
    };
    const auto end = [&](const end_point& e, const char* instead) {
        host(e.host, instead);
        address(e.gid);
        mac(e.mac);
    };
    for (const auto& p : o.pairs) {
        end(p.a, "host-a"), end(p.b, "host-b");
        address(p.a_target), address(p.b_bound);
    }
    end(o.a_later, "host-a"), end(o.b_later, "host-b");
    mac(o.a_sees_mac), mac(o.b_sees_mac);
    for (const auto* r : {&o.a_route, &o.b_route}) address(r->gateway), mac(r->next_hop_mac);
    host(o.no_gid_at, "host");
    host(peer, "host-b");
    host(o.peer.substr(0, o.peer.find(' ')), "host-b");  // options may follow
    // A rule of the packet filter may hold addresses; that it drops is all that counts.
    for (const auto* rule : {&o.a_firewall, &o.b_firewall}) {
        if (rule->find("4791") != std::string::npos) all[*rule] = "a rule drops 4791";
    }
    // What a finding says may hold any address of its host; its id is what counts.
    for (const auto& f : o.b_doctor.value_or(std::vector<doctor_seen>{})) {
        if (!f.message.empty()) all[f.message] = "see there";
    }
    replacements_.assign(all.begin(), all.end());
    std::stable_sort(replacements_.begin(), replacements_.end(),
                     [](const auto& l, const auto& r) { return l.first.size() > r.first.size(); });
}

std::string redaction::masked(const std::string& text) const {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
        const auto found =
            std::find_if(replacements_.begin(), replacements_.end(),
                         [&](const auto& one) { return stands_at(text, at, one.first); });
        if (found == replacements_.end()) {
            out += text[at++];
        } else {
            out += found->second;
            at += found->first.size();
        }
    }
    return out;
}

void redaction::mask(boost::json::value& value) const {
    if (auto* text = value.if_string()) {
        *text = masked(text->c_str());
    } else if (auto* list = value.if_array()) {
        for (auto& one : *list) mask(one);
    } else if (auto* object = value.if_object()) {
        for (auto& member : *object) mask(member.value());
    }
}

void redaction::apply(report& r) const {
    r.host = masked(r.host);
    for (auto& member : r.facts) mask(member.value());
    for (auto& line : r.lines) line = masked(line);
    for (auto& f : r.findings) {
        f.subject = masked(f.subject);
        f.message = masked(f.message);
        mask(f.observed);
        for (auto* lines : {&f.fix, &f.evidence}) {
            for (auto& line : *lines) line = masked(line);
        }
    }
}

}  // namespace rvget::diag
