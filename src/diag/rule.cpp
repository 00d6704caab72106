#include "diag/rule.hpp"

#include <map>

#include "diag/judgement.hpp"

namespace rvget::diag {

const std::vector<rule>& rules() {
    static const std::vector<rule> table = [] {
        std::vector<rule> all;
        add_host_rules(all);
        add_device_rules(all);
        add_network_rules(all);
        add_gid_rules(all);
        add_traffic_rules(all);
        return all;
    }();
    return table;
}

namespace {

class bench {
public:
    bench(const inventory::facts& facts, const expectations& expected, std::uint64_t budget)
        : host_{.facts = facts, .expected = expected, .budget_bytes = budget} {}

    std::vector<finding> run() {
        for (const auto& r : rules()) apply(r);
        return std::move(findings_);
    }

private:
    void apply(const rule& r) {
        auto s = host_;
        if (r.scope == scope::host) return add(r, s, "host");
        for (const auto& d : s.facts.devices) {
            s.device = &d;
            if (r.scope == scope::device) add(r, s, d.name);
            if (r.scope == scope::device) continue;
            for (const auto& p : d.ports) {
                s.port = &p;
                s.net = p.netdev_elsewhere ? nullptr : s.facts.find_netdev(p.netdev);
                // The GIDs of iWARP are hardware addresses, by which nobody finds anything.
                if (d.node_type == "RNIC" && r.id.starts_with("gid.")) continue;
                if (r.scope == scope::roce && (p.link_layer != "Ethernet" || s.net == nullptr))
                    continue;
                add(r, s, d.name + "/" + text(p.number));
            }
        }
    }

    /// Whether `id` failed, or was itself skipped for a failure, for this subject or one above it.
    [[nodiscard]] bool failed(std::string_view id, const std::string& subject) const {
        for (const auto& above :
             {subject, subject.substr(0, subject.find('/')), std::string("host")}) {
            if (blocked_.contains({std::string(id), above})) return true;
        }
        return false;
    }

    void add(const rule& r, const subject& s, const std::string& name) {
        finding f{.id = std::string(r.id), .subject = name, .expected = std::string(r.holds)};
        if (!r.needs.empty() && failed(r.needs, name)) {
            f.outcome = outcome::skip;
            f.message = "depends on " + std::string(r.needs);
            blocked_[{f.id, name}] = true;
        } else {
            auto j = r.judge(s);
            f.outcome = j.outcome;
            f.message = std::move(j.message);
            f.fix = std::move(j.fix);
            f.observed = std::move(j.observed);
            if (f.outcome == outcome::fail) blocked_[{f.id, name}] = true;
        }
        findings_.push_back(std::move(f));
    }

    subject host_;
    std::vector<finding> findings_;
    std::map<std::pair<std::string, std::string>, bool> blocked_;
};

/// Faults that keep data from flowing now; others are risks or someone else's trouble.
bool decides(const std::string& id) {
    for (const auto* word : {"env", "dev.present", "dev.node_type", "dev.guid", "dev.caps", "port",
                             "net.mapped", "net.up", "net.address", "net.duplicate_ip",
                             "net.firewall", "gid.any", "gid.v2", "gid.operable", "self"}) {
        if (selects(word, id)) return true;
    }
    return false;
}

}  // namespace

std::vector<finding> judge(const inventory::facts& facts, const expectations& expected,
                           std::uint64_t budget_bytes) {
    return bench(facts, expected, budget_bytes).run();
}

std::vector<verdict> verdicts(const inventory::facts& facts, const std::vector<finding>& findings) {
    std::vector<verdict> all;
    const auto decide = [&](const std::string& device, const std::string& port) {
        verdict v{.subject = port, .usable = true};
        for (const auto& f : findings) {
            const bool about = f.subject == "host" || f.subject == device || f.subject == port;
            if (!about || f.outcome != outcome::fail || !decides(f.id)) continue;
            v = {port, false, f.message, f.id, f.fix.empty() ? "" : f.fix.front()};
            break;
        }
        all.push_back(std::move(v));
    };
    for (const auto& d : facts.devices) {
        if (d.ports.empty()) decide(d.name, d.name);
        for (const auto& p : d.ports) decide(d.name, d.name + "/" + text(p.number));
    }
    if (all.empty()) decide("host", "host");
    return all;
}

}  // namespace rvget::diag
