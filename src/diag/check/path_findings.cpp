#include "diag/check/verdict.hpp"

namespace rvget::diag {

const std::vector<path_finding>& path_findings() {
    static const std::vector<path_finding> all{
        {"path.control", "The listener could be reached over TCP, and how long that took."},
        {"path.version", "Both ends speak one protocol of check; told where they do not."},
        {"path.gid.choice", "Both ends have a GID that can be tried, and which these are."},
        {"path.family", "The GIDs of the pair are both IPv4 or both IPv6."},
        {"path.roce_version", "Both GIDs are RoCE v2; warns of v1, fails where they differ."},
        {"path.gid.match", "A sends to the GID that B's queue pair is bound to."},
        {"path.gid.echo", "The GIDs are at the end what they were announced to be."},
        {"path.link_layer", "Both ends are Ethernet, or both InfiniBand."},
        {"path.control_netdev",
         "TCP runs over the netdev that RDMA uses; else TCP proves nothing."},
        {"path.ladder.forward",
         "UDP packets that may not be fragmented pass from A (who asks) to B, by length."},
        {"path.ladder.reverse", "The same from B to A."},
        {"path.depth", "READs that both devices have at once; warns below four."},
        {"path.pkey", "The ports have a partition in common, one of them as a full member."},
        {"path.latency.forward", "READs of 8 bytes by A; a figure without a limit."},
        {"path.latency.reverse", "READs of 8 bytes by B; a figure without a limit."},
        {"path.bandwidth", "READs of 64 KiB one after another; a figure without a limit."},
        {"path.gid.matrix", "Pairs of GIDs over which a READ of one byte works both ways."},
        {"path.mtu.static",
         "The path MTUs of the two ends' netdevs and ports; warns where they differ, fails where a "
         "larger one is pinned."},
        {"path.mtu.qp", "The two queue pairs were given one path MTU."},
        {"path.mtu.read_forward", "READs by A of growing size."},
        {"path.mtu.read_reverse", "READs by B of growing size."},
        {"path.cm.connect", "RDMA-CM connects from either end; each step has two seconds."},
        {"path.cm.mtu",
         "RDMA-CM gives no larger path MTU than both ends take; it gives the client's."},
        {"path.loss", "Retries during many READs; fails from one in 10000."},
        {"path.data", "READs that succeeded brought the right bytes."},
        {"path.peer_doctor",
         "What fails by B's own doctor, of its host and of the port in use; a warning where READs "
         "of one byte pass."},
        {"path.route",
         "Each kernel sends from its GID's address to the other one's by the netdev that RDMA "
         "uses; "
         "fails where the address is its own, too, and where it has no route and no READ passes."},
        {"path.neighbour",
         "The next hop answers ARP or ND, or READs; fails where it answers neither, warns where "
         "that is not known."},
        {"path.l2",
         "The next hop is the peer's netdev; warns of a router, fails where another host answers "
         "and no READ passes."},
        {"path.hops", "Routers between, by the TTL of UDP packets, against the hop limit."},
        {"path.ecmp",
         "READs over up to eight queue pairs, each with a UDP source port of its own; fails where "
         "some pass and some do not, skipped where none passes or too few were tried."},
        {"path.oversize", "No port counts frames that are too large for it while READs run."},
        {"path.tclass",
         "Packets arrive on the priority on which they left, by the ports' counters."},
        {"path.sl", "InfiniBand: READs pass on service level 0."},
        {"path.death",
         "A READ from a queue pair that is gone ends in the time that the timers give."},
        {"path.expected",
         "With --expect: MTU, port rate and GID family of both ends, and the bandwidth of READs."},
        {"gid.link_layer", "Verdict: Ethernet against InfiniBand."},
        {"gid.family", "Verdict: an IPv4 GID against an IPv6 one; RTR gives EINVAL."},
        {"gid.empty", "Verdict: the pinned index is empty; RTR gives ENODATA."},
        {"gid.stale", "Verdict: the GID left its index between the exchange and its use."},
        {"gid.netdev",
         "Verdict: the GID's netdev is gone, or the peer's address is the own; RTR gives ENODEV."},
        {"gid.unreachable",
         "Verdict: the peer's GID has no neighbour on the own GID's netdev (RTR ETIMEDOUT); "
         "another pair works."},
        {"gid.deleted", "Verdict: the address was removed while queue pairs used it."},
        {"gid.mismatch",
         "Verdict: A sends to another GID than the one that B's queue pair is bound to."},
        {"gid.version", "Verdict: RoCE v1 against v2."},
        {"gid.path", "Verdict: this pair is dead (VLAN, ACL, rail) while another works."},
        {"gid.asymmetric", "Verdict: READ works one way only."},
        {"gid.pinned", "The pinned GIDs work and are not those that would be chosen."},
        {"net.duplicate",
         "Verdict: another host answers for the peer's address, or has it itself."},
        {"net.neighbour",
         "Verdict: the peer answers on no pair: not on this link, no route, another VLAN."},
        {"net.udp4791", "Verdict: RoCE's UDP port is blocked; other UDP passes."},
        {"net.egress",
         "Verdict: a host's own kernel refuses what its queue pairs send (filter, shaper); a "
         "warning "
         "where READs were not hit by it."},
        {"net.path", "Verdict: no IP passes between the GIDs' addresses."},
        {"mtu.differ", "Warning: the ends' MTUs differ; works at the smaller one."},
        {"mtu.cm",
         "Warning: the ends' MTUs differ, and RDMA-CM gives queue pairs the larger one, over which "
         "a READ fails."},
        {"mtu.upper", "Warning: the GID's own netdev (VLAN, bond) is smaller than its port."},
        {"mtu.stale_port",
         "Warning: a port announces less than its netdev's MTU gives with this driver."},
        {"mtu.wasted_step", "An end's MTU is just short of the next path MTU."},
        {"mtu.pinned_high", "Verdict: a pinned path MTU is larger than an end takes."},
        {"mtu.qp_disagree", "Verdict: the two queue pairs have different path MTUs."},
        {"mtu.path.forward", "Verdict: long packets vanish from A to B."},
        {"mtu.path.reverse", "Verdict: long packets vanish from B to A."},
        {"mtu.rdma_only", "Verdict: long UDP passes, RoCE of the same length does not."},
        {"mtu.port", "Verdict: the port counts frames that are too large for it."},
        {"mtu.ecmp", "Verdict: some of several parallel links have a smaller MTU."},
        {"mtu.local", "Verdict: a host cannot send what its own queue pair makes."},
        {"mtu.changed", "Verdict: an MTU was changed while queue pairs were connected."},
        {"rxe.false_success", "Verdict: software RDMA reported success without data."},
        {"path.lossy", "Verdict: a READ failed among many that passed."},
        {"path.unknown", "Error: something fails and no cause fits."},
    };
    return all;
}

}  // namespace rvget::diag
