// qos.*, cnt.* and self.*: how traffic is treated, what counters say of it, and trying it out.

#include "diag/judgement.hpp"

namespace rvget::diag {

namespace {

judgement tclass(const subject& s) {
    const auto& set = s.port->traffic_class;
    if (!set) return skip("the driver has no such setting");
    if (*set != 0 || s.net->pfc_enabled.value_or(0) == 0) return pass(*set);
    return warn("traffic class 0 with priority flow control on: RoCE goes to the lossy class",
                {"cma_roce_tos -d " + s.device->name + " -t 106",
                 "echo 106 > /sys/class/infiniband/" + s.device->name + "/tc/" +
                     text(s.port->number) + "/traffic_class"},
                0);
}

judgement trust(const subject& s) {
    if (!s.net->trust_dscp) return skip("the driver has no DCB");
    if (*s.net->trust_dscp || s.net->kind == "vlan") return pass(*s.net->trust_dscp);
    return warn(
        "priorities come from VLAN tags, which untagged packets do not have: all map to priority 0",
        {"dcb app add dev " + s.net->name + " dscp-prio 26:3",
         "dcb apptrust set dev " + s.net->name + " order dscp"},
        false);
}

judgement pfc(const subject& s) {
    if (!s.net->pfc_enabled) return skip("the driver has no DCB");
    const auto mask = *s.net->pfc_enabled;
    const int lossless = __builtin_popcount(mask);
    if (lossless >= 1 && lossless <= 2) return pass(mask);
    return warn(
        lossless == 0 ? "no priority is lossless"
                      : text(lossless) + " priorities are lossless: buffers are cut too thin",
        {"dcb pfc set dev " + s.net->name + " prio-pfc all:off 3:on  # 3: your RoCE priority"},
        mask);
}

judgement watchdog(const subject& s) {
    if (!s.net->pfc_watchdog_ms) return skip("the driver has no PFC watchdog");
    if (s.net->pfc_enabled.value_or(0) == 0 || *s.net->pfc_watchdog_ms > 0)
        return pass(*s.net->pfc_watchdog_ms);
    return warn("priority flow control without watchdog: one stuck receiver stops the fabric",
                {"ethtool --set-tunable " + s.net->name + " pfc-prevention-tout 100"}, 0);
}

judgement ecn(const subject& s) {
    if (!s.net->ecn_on) return skip("the driver tells no DCQCN setting");
    if (*s.net->ecn_on) return pass(true);
    return warn("DCQCN is off: senders do not slow down at congestion",
                {"echo 1 > /sys/class/net/" + s.net->name + "/ecn/roce_np/enable/3",
                 "echo 1 > /sys/class/net/" + s.net->name + "/ecn/roce_rp/enable/3"},
                false);
}

/// A rule about counters of the port that must not grow while they are watched.
judgement still(const subject& s, std::initializer_list<const char*> names, outcome worse,
                const std::string& message, std::vector<std::string> fix) {
    const auto grown = growth(s, s.port->growth, names);
    if (!grown) return unwatched();
    if (*grown == 0) return pass(0);
    return {worse, message + " (" + text(*grown) + " while watched)", std::move(fix), *grown};
}

judgement retry(const subject& s) {
    auto lost = still(s, {"req_transport_retries_exceeded", "retry_exceeded_err"}, outcome::fail,
                      "queue pairs die of exceeded retries", {"rvget check HOST"});
    if (lost.outcome != outcome::pass) return lost;
    return still(s, {"local_ack_timeout_err", "completer_retry_err", "roce_adp_retrans_to"},
                 outcome::warn, "packets are lost and sent again", {"rvget check HOST"});
}

/// What shows whether the kernel finds the address that RDMA-CM did not.
std::string show_own_route(const subject& s) {
    for (const auto& t : s.device->trials) {
        const bool failed = !t.cm.empty() && t.cm != "ok";
        if (t.port == s.port->number && failed && !t.gid.empty()) return "ip route get " + t.gid;
    }
    return "ip route show table local";
}

/// Of each GID tried: the first that did not give "ok".
judgement tried(const subject& s, std::string inventory::trial::*what, outcome worse,
                const std::string& message, std::vector<std::string> fix) {
    bool any = false;
    for (const auto& t : s.device->trials) {
        if (t.port != s.port->number || (t.*what).empty()) continue;
        any = true;
        if (t.*what == "ok") continue;
        return {worse, message + (t.gid.empty() ? "" : " (" + t.gid + ")") + ": " + t.*what,
                std::move(fix), boost::json::value(std::string_view(t.*what))};
    }
    return any ? pass() : skip("not tried; only on this machine, with a usable port");
}

}  // namespace

void add_traffic_rules(std::vector<rule>& table) {
    using inventory::trial;
    const auto roce = scope::roce;
    const auto port = scope::port;
    table.insert(
        table.end(),
        {
            {"qos.tclass", roce, "", "sysfs tc (vendor driver)",
             "warn: 0 with priority flow control on", tclass},
            {"qos.trust", roce, "", "DCB netlink", "warn: DSCP not trusted, no VLAN", trust},
            {"qos.pfc", roce, "", "DCB netlink", "warn: none, or more than 2 lossless priorities",
             pfc},
            {"qos.pfc_watchdog", roce, "", "ethtool tunable",
             "warn: off, with priority flow control on", watchdog},
            {"qos.ecn", roce, "", "sysfs ecn (vendor driver)", "warn: off", ecn},
            {"cnt.retry", port, "", "hw_counters, --watch",
             "warn: retries grow; fail: exceeded retries grow", retry},
            {"cnt.sequence", port, "", "hw_counters, --watch", "warn: grows",
             [](const subject& s) {
                 return still(s,
                              {"packet_seq_err", "implied_nak_seq_err", "out_of_sequence",
                               "out_of_seq_request", "rcvd_seq_err"},
                              outcome::warn, "packets are lost or overtake each other",
                              {"rvget check HOST"});
             }},
            {"cnt.buffer", port, "", "hw_counters, --watch", "warn: grows",
             [](const subject& s) {
                 return still(s, {"out_of_buffer", "rnr_nak_retry_err", "rcvd_rnr_err"},
                              outcome::warn, "receivers are not ready in time",
                              {"rdma resource show qp dev " + s.device->name});
             }},
            {"cnt.access", port, "", "hw_counters, --watch", "warn: grows",
             [](const subject& s) {
                 return still(s, {"req_remote_access_errors", "resp_remote_access_errors"},
                              outcome::warn, "refused keys: ended leases, or an attack",
                              {"rdma resource show qp dev " + s.device->name});
             }},
            {"cnt.cnp", port, "", "hw_counters, --watch", "warn: ignored notifications grow",
             [](const subject& s) {
                 return still(
                     s, {"rp_cnp_ignored"}, outcome::warn,
                     "congestion notifications are ignored: DCQCN is off at this sender",
                     {"echo 1 > /sys/class/net/" + s.port->netdev + "/ecn/roce_rp/enable/3"});
             }},
            {"cnt.congestion", port, "", "hw_counters, --watch", "warn: marked packets grow",
             [](const subject& s) {
                 return still(s, {"np_ecn_marked_roce_packets", "rp_cnp_handled"}, outcome::warn,
                              "the fabric marks packets: it is congested",
                              {"rvget doctor --watch 10"});
             }},
            {"cnt.icrc", port, "", "hw_counters, --watch", "fail: grows",
             [](const subject& s) {
                 return still(
                     s, {"rx_icrc_encapsulated"}, outcome::fail, "packets arrive corrupted",
                     {"ethtool -S " + s.port->netdev + "  # then the switches on the way"});
             }},
            {"cnt.send_err", port, "", "hw_counters (rxe), --watch", "fail: grows",
             [](const subject& s) {
                 return still(
                     s, {"send_err"}, outcome::fail,
                     "this host drops its own packets: netdev MTU below the queue pairs' path MTU",
                     {"ip link set " + s.port->netdev + " mtu 9000"});
             }},
            {"self.alloc", port, "port.state", "protection domain, queues, region",
             "fail: with errno",
             [](const subject& s) {
                 return tried(s, &trial::allocate, outcome::fail,
                              "cannot create what a transfer needs",
                              {"prlimit --pid $$ --memlock=unlimited", "rdma resource"});
             }},
            {"self.loop", port, "self.alloc", "READs of 1 byte and 64 KiB on the device, per GID",
             "fail: a READ failed",
             [](const subject& s) {
                 return tried(s, &trial::loop, outcome::fail,
                              "loop-back READ fails: the device or the GID, not the network",
                              {"rvget list", "dmesg | tail"});
             }},
            {"self.event", port, "self.loop", "completion channel", "fail: no event within 1 s",
             [](const subject& s) {
                 return tried(s, &trial::event, outcome::fail, "completion events do not come",
                              {"grep . /proc/irq/*/effective_affinity_list"});
             }},
            {"self.cm", port, "env.rdma_cm", "RDMA-CM to the own address",
             "warn: it does not listen or resolve",
             [](const subject& s) {
                 return tried(s, &trial::cm, outcome::warn,
                              "RDMA-CM cannot resolve this host's own address",
                              {"modprobe rdma_ucm", show_own_route(s)});
             }},
            {"self.async", port, "", "asynchronous events", "warn: one came",
             [](const subject& s) {
                 return tried(s, &trial::async, outcome::warn,
                              "an event came while the device was open", {"dmesg | tail"});
             }},
        });
}

}  // namespace rvget::diag
