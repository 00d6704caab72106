#include "diag/check/expected.hpp"

#include <string>
#include <utility>
#include <vector>

#include "diag/check/words.hpp"

namespace rvget::diag {

namespace {

/// What was compared, and what of it is not as expected.
class comparison {
public:
    void compare(bool as_expected, const std::string& what, const std::string& fix) {
        any_ = true;
        if (as_expected) return;
        missed_ += (missed_.empty() ? "" : "; ") + what;
        fix_.push_back(fix);
    }
    void leave_out(const std::string& what) { left_out_ += (left_out_.empty() ? "" : "; ") + what; }

    finding conclude(finding f) {
        f.outcome = !missed_.empty()              ? outcome::fail
                    : !any_ || !left_out_.empty() ? outcome::skip
                                                  : outcome::pass;
        f.message = !missed_.empty()     ? missed_
                    : !left_out_.empty() ? left_out_
                    : any_               ? "as expected"
                                         : "nothing that is expected is about a path";
        f.fix = std::move(fix_);
        return f;
    }

private:
    bool any_ = false;
    std::string missed_, left_out_;
    std::vector<std::string> fix_;
};

void compare_end(comparison& c, const end_point& e, const expectations& wanted) {
    if (wanted.mtu_bytes) {
        c.compare(e.netdev_mtu_bytes == *wanted.mtu_bytes,
                  e.netdev + " of " + e.host + " has MTU " + text(e.netdev_mtu_bytes) +
                      ", expected " + text(*wanted.mtu_bytes),
                  set_mtu(e, *wanted.mtu_bytes));
    }
    if (wanted.rate_mbps && e.rate_mbps == 0) {
        c.leave_out("the rate of " + e.device + " of " + e.host + " is not known");
    } else if (wanted.rate_mbps) {
        c.compare(e.rate_mbps >= *wanted.rate_mbps,
                  e.device + " of " + e.host + " has " + text(e.rate_mbps) + " Mb/s, expected " +
                      text(*wanted.rate_mbps),
                  on(e.host, "rvget doctor --only port.rate"));
    }
    if (!wanted.gid_family.empty()) {
        c.compare(!e.gid.empty() && is_ipv4(e.gid) == (wanted.gid_family == "IPv4"),
                  "GID " + name_of(e) + " is not " + wanted.gid_family, on(e.host, "rvget list"));
    }
}

}  // namespace

finding judge_expected(const observations& o, const expectations& expected) {
    finding f{.id = "path.expected", .subject = "path"};
    comparison c;
    if (o.pairs.empty()) {
        c.leave_out("depends on path.gid.choice");
        return c.conclude(std::move(f));
    }
    const auto& pair = o.pairs.front();
    f.subject = pair.a.host + "->" + pair.b.host;
    for (const auto* e : {&pair.a, &pair.b}) compare_end(c, *e, expected);
    if (expected.bandwidth_mbps) {
        const bool measured = o.soak_reads > 0 && o.soak.ok() && o.soak.median_us > 0;
        // Bits in a microsecond are megabits in a second.
        const auto mbps = measured ? std::uint64_t{o.soak.bytes} * 8 / o.soak.median_us : 0;
        if (measured) {
            c.compare(mbps >= *expected.bandwidth_mbps,
                      "READs of " + text(o.soak.bytes) + " bytes one after another bring " +
                          text(mbps) + " Mb/s, expected " + text(*expected.bandwidth_mbps),
                      on(pair.a.host, "rvget perf " + pair.b.host));
        } else {
            c.leave_out("the bandwidth was not measured: see path.loss and --reads");
        }
    }
    return c.conclude(std::move(f));
}

}  // namespace rvget::diag
