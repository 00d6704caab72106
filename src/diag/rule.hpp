#pragma once
// A check of `rvget doctor` as a row of a table: who it is about, what it is called, what it says
// when it does not hold, and a pure function over facts that decides.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "diag/finding.hpp"
#include "fabric/inventory/facts.hpp"

namespace rvget::diag {

namespace inventory = fabric::inventory;

/// What a site expects of a machine (--expect FILE); what it does not say is not checked.
struct expectations {
    std::optional<std::uint32_t> devices;
    std::optional<std::uint32_t> rate_mbps;
    std::optional<std::uint32_t> mtu_bytes;
    std::vector<std::string> firmware;
    std::vector<std::string> pci;  ///< addresses at which a device must be
    std::string gid_family;        ///< "IPv4" or "IPv6"
    /// Of READs of 64 KiB one after another between two machines: judged by check, not by doctor.
    std::optional<std::uint32_t> bandwidth_mbps;
};
BOOST_DESCRIBE_STRUCT(expectations, (),
                      (devices, rate_mbps, mtu_bytes, firmware, pci, gid_family, bandwidth_mbps))

/// What a rule looks at. Which of the pointers are set follows from the rule's scope; `net` is the
/// port's netdev where its facts are there.
struct subject {
    const inventory::facts& facts;
    const expectations& expected;
    std::uint64_t budget_bytes = 0;  ///< memory that rvget would register
    const inventory::device* device = nullptr;
    const inventory::port* port = nullptr;
    const inventory::netdev* net = nullptr;
};

struct judgement {
    diag::outcome outcome = diag::outcome::pass;
    std::string message{};
    std::vector<std::string> fix{};
    boost::json::value observed{};
};

enum class scope : std::uint8_t {
    host,
    device,
    port,
    roce,  ///< Ethernet ports whose netdev's facts are there
};

struct rule {
    std::string_view id;
    diag::scope scope;
    std::string_view needs;   ///< another rule: where that fails for this subject, this is skipped
    std::string_view source;  ///< where the facts come from
    std::string_view holds;   ///< what passes, what warns, what fails
    judgement (*judge)(const subject& s);
};

/// All of them, in the order in which causes come before effects.
[[nodiscard]] const std::vector<rule>& rules();

/// Every rule over every subject that it applies to.
[[nodiscard]] std::vector<finding> judge(const inventory::facts& facts,
                                         const expectations& expected, std::uint64_t budget_bytes);

/// One line per device and port: usable, or the first reason why not. Also the exit for machines
/// without any: the first cause.
struct verdict {
    std::string subject;
    bool usable = false;
    std::string reason;
    std::string id;  ///< of the finding that decided; empty if usable
    std::string fix;
};
[[nodiscard]] std::vector<verdict> verdicts(const inventory::facts& facts,
                                            const std::vector<finding>& findings);

/// The GIDs of a port, best first for a peer of whom nothing is known, each with its class.
struct ranked_gid {
    const inventory::gid_entry* entry = nullptr;
    int rank = 0;             ///< higher is better; 0 and below: never to be chosen
    std::string_view reason;  ///< "global IPv4", "link-local", ...
};
[[nodiscard]] std::vector<ranked_gid> ranked(const inventory::facts& facts,
                                             const inventory::port& port);

}  // namespace rvget::diag
