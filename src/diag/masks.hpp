#pragma once
// Stand-ins for what tells who a machine is, the same for the same text, so that what belongs
// together still does.

#include <map>
#include <string>

namespace rvget::diag {

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

}  // namespace rvget::diag
