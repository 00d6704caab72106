"""Faults between two hosts: rvget check names each, and what it proposes mends it.

Runs on host a; agent.py runs on host b. Each case sets a fault and expects exactly one verdict and its exit status; then
every fix line of that verdict is executed on the host that it names, and the next check must pass. RVGET_MATRIX=all
takes all cases, else those marked quick; RVGET_RECORD=DIR keeps the report of each there. Loss is injected on ingress
only (rxe loses track of packets that its own kernel refuses), except where that very fault is the case.
"""
import dataclasses
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
import unittest

RVGET = os.environ["RVGET_COMMAND"]
A, B = os.environ["RVGET_ADDR"], os.environ["RVGET_PEER_ADDR"]
DEV, WIRE = os.environ["RVGET_NETDEV"], os.environ["RVGET_WIRE"]
HW_COUNTERS = f"/sys/class/infiniband/{os.environ['RVGET_RDMA_DEVICE']}/ports/1/hw_counters/"
READS = (HW_COUNTERS + "rcvd_pkts", r"(\d+)", 1000)  # more than comes before the soak
LADDER = ("/proc/net/snmp", r"Udp: \d+ \d+ \d+ (\d+)", 1)  # GIDs have been chosen
RECORD = os.environ.get("RVGET_RECORD")
ALL = os.environ.get("RVGET_MATRIX") == "all"


def drop(what, hook="prerouting"):
    return (f"nft 'add table inet t; add chain inet t c {{ type filter hook {hook} priority raw; }}; "
            f"add rule inet t c {what} drop'")


UNDROP = "nft delete table inet t 2>/dev/null; true"
LONG, ROCE = drop("ip length gt 1500"), drop("udp dport 4791")
MTU = f"ip link set {DEV} mtu "


def address(last, prefix=24):
    return f"ip address add 10.7.0.{last}/{prefix} dev {DEV}"


def vlan(number, last, more=""):
    return (f"ip link add link {DEV} name v{number} type vlan id {number}; "
            f"ip address add 10.5.0.{last}/24 dev v{number}; ip link set v{number} up {more}")


def tagged_wire(own, peer):
    """In place of the bench's wire, one that carries VLAN tags."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tagged_wire.py")
    return ("ip tuntap add tap0 mode tap && ip link set tap0 mtu 9000 up && "
            f"{sys.executable} -B {program} {peer} >/tmp/tagged 2>&1 && ip link set tap0 master {DEV} && "
            f"ip link set {WIRE} nomaster && ip address add {own}/24 dev {WIRE}")


TAG_A, TAG_B = tagged_wire("10.9.0.1", "10.9.0.2"), tagged_wire("10.9.0.2", "10.9.0.1")
UNTAG = f"ip address flush dev {WIRE}; ip link set {WIRE} master {DEV}; ip link del tap0"

THIRD = "02:00:00:00:07:02"


def third_host(given):
    """A host beside b, on the same link."""
    # A bridge takes the smallest MTU of its ports.
    return ("ip netns add third; ip link add th0 mtu 9000 type veth peer name th1 mtu 9000 netns third; "
            f"ip link set th0 master {DEV} up; ip -n third link set th1 address {THIRD} up; "
            f"ip -n third address add {given} dev th1")


class Agent:
    def __init__(self):
        for _ in range(100):
            connection = socket.socket()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
            try:
                connection.connect((B, 7400))
                self.stream = connection.makefile("rw")
                return
            except OSError:
                connection.close()
                time.sleep(0.1)  # until the agent listens; it has no other way to say so
        raise RuntimeError("no agent on host b")

    def run(self, command):
        return self.ask({"run": command})

    def run_later(self, command):
        """Once the answer is on its way: for commands that interrupt the connection."""
        return self.ask({"later": command})

    def ask(self, what):
        print(json.dumps(what), file=self.stream, flush=True)
        answer = json.loads(self.stream.readline())
        return answer["status"], answer["output"]


def local(command):
    ran = subprocess.run(command, shell=True, stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, check=False)
    return ran.returncode, ran.stdout


@dataclasses.dataclass
class Case:
    """What is done to a and b, how it is checked, what must come out."""

    verdict: str = None  # None: no verdict; "a|b": one of the two, as it happens
    status: int = 0
    a: tuple = ()  # commands that set the fault
    b: tuple = ()
    options: str = ""  # of the check
    during: tuple = ()  # a command, its host, and after how many packets of which kind it comes
    then: str = None  # options of the check after the fix, where those of the first are the fault
    also: tuple = ()  # findings that must warn or fail besides
    elsewhere: str = ""  # how to run a fix that is for a third host
    quick: bool = False
    tagged: bool = False  # frames have VLAN tags


CASES = {
    "nothing_wrong": Case(options="--reads 500", quick=True),
    "lab_fault_wrong_gid_index": Case("gid.family", 2, options="--gid 0 --peer-gid 1", then="", quick=True),
    "lab_fault_mtu_mismatch": Case("mtu.cm", 0, b=(MTU + "1500",), also=("path.cm.mtu",), quick=True),
    "lab_fault_mtu_mismatch_the_other_way": Case("mtu.cm", 0, a=(MTU + "1500",), also=("path.cm.mtu",)),
    # RDMA-CM is not tried between link-local addresses.
    "mtus_differ": Case("mtu.differ", 0, b=(MTU + "1500",), options="--gid 0 --peer-gid 0"),
    "lab_fault_mtu_mismatch_with_hard_coded_path_mtu":
        Case("mtu.pinned_high", 2, b=(MTU + "1500",), options="--mtu 4096", quick=True),
    "own_index_is_empty": Case("gid.empty", 2, options="--gid 200", then="", quick=True),
    "peer_index_is_empty": Case("gid.empty", 2, options="--peer-gid 200", then=""),
    "long_packets_lost_both_ways": Case("mtu.path.reverse", 2, a=(LONG,), b=(LONG,), quick=True),
    "long_packets_lost_towards_a": Case("mtu.path.reverse", 2, a=(LONG,)),
    "long_packets_lost_towards_b": Case("mtu.path.forward", 2, b=(LONG,)),
    "long_packets_lost_and_path_mtu_1024": Case(a=(LONG,), b=(LONG,), options="--mtu 1024"),
    "roce_blocked_at_b": Case("net.udp4791", 2, b=(ROCE,), quick=True),
    "roce_blocked_at_a": Case("net.udp4791", 2, a=(ROCE,)),
    "long_roce_alone_lost": Case("mtu.rdma_only", 2, a=(drop("udp dport 4791 ip length gt 1500"),)),
    "long_roce_lost_on_one_of_two_links":
        Case("mtu.ecmp", 2, a=(drop("udp dport 4791 udp sport & 1 == 1 ip length gt 1500"),), also=("path.ecmp",), quick=True),
    "roce_lost_on_one_of_two_links":
        Case(None, 2, b=(drop("udp dport 4791 udp sport & 1 == 1"),), also=("path.ecmp",)),
    "packets_lost_now_and_then":
        Case(None, 2, a=(drop("udp dport 4791 numgen random mod 20 == 0"),), options="--reads 60", also=("path.loss",)),
    "roce_blocked_for_a_second":
        Case(None, 2, during=("b", ROCE + "; sleep 1; " + UNDROP, READS), options="--reads 20000", also=("path.loss",)),
    "first_packets_refused_by_the_responder_itself":
        Case("rxe.false_success", 2, b=(drop("udp dport 4791 @th,64,8 0x0d", "output"),)),
    "packets_refused_by_the_responder_itself_now_and_then":
        Case("rxe.false_success|net.egress", 2, b=(drop("udp dport 4791 numgen random mod 20 == 0", "output"),),
             options="--reads 500", then=""),
    # With one READ at a time it costs retries; with eight, rxe gives wrong bytes for right ones.
    "responder_behind_a_shaper":
        Case("net.egress", 2, b=(f"tc qdisc add dev {DEV} root tbf rate 200mbit burst 12k limit 24k",), options="--reads 60",
             also=("path.loss",), then=""),
    "netdev_one_byte_short_of_the_path_mtu_and_hard_coded_path_mtu":
        Case("mtu.pinned_high", 2, b=(MTU + "4143",), options="--mtu 4096"),
    "netdev_one_byte_short_of_path_mtu_1024_and_hard_coded_path_mtu":
        Case("mtu.pinned_high", 2, a=(MTU + "1500",), b=(MTU + "1071",), options=f"--mtu 1024 --gid {A} --peer-gid {B}"),
    "second_address_without_a_route":
        Case(None, 0, b=(address(2),), options=f"--gid {A} --peer-gid 10.7.0.2", also=("path.route",)),
    # To anything but the GID's own address another way is right; --strict: there is nothing to warn of, but for other pairs.
    "route_of_the_gids_own_address":
        Case(a=(address(1), "ip link add pr0 type veth peer name pr1", "ip link set pr0 up", "ip route add 10.7.0.2 dev pr0",
                f"ip route add 10.7.0.0/24 dev {DEV} table 77", "ip rule add from 10.7.0.1 table 77"),
             b=(address(2),), options="--gid 10.7.0.1 --peer-gid 10.7.0.2 --strict --skip path.gid.matrix"),
    "no_route_from_the_gids_own_address":
        Case(a=(address(1), "ip route add unreachable 10.7.0.0/24 table 77", "ip rule add from 10.7.0.1 table 77"),
             b=(address(2),), options="--gid 10.7.0.1 --peer-gid 10.7.0.2", also=("path.route",)),
    "peers_address_is_this_hosts_own_too":
        Case("net.duplicate", 2, a=(address(1), address(2)), b=(address(2),), options="--gid 10.7.0.1 --peer-gid 10.7.0.2",
             also=("path.route",)),
    "link_local_at_both_ends": Case(options="--gid 0 --peer-gid 0"),
    "vlan_against_plain": Case("gid.unreachable", 2, a=(vlan(5, 1),), options="--gid 10.5.0.1", then="",
                                tagged=True),
    "vlan_ids_differ": Case("gid.unreachable", 2, a=(vlan(5, 1),), b=(vlan(6, 2),),
                            options="--gid 10.5.0.1 --peer-gid 10.5.0.2", then="", tagged=True),
    "vlan_smaller_than_its_port": Case("mtu.upper", 0, a=(vlan(5, 1, "mtu 1500"),), b=(vlan(5, 2, "mtu 1500"),),
                                       options="--gid 10.5.0.1 --peer-gid 10.5.0.2", tagged=True),
    "vlan_smaller_than_its_port_and_hard_coded_path_mtu":
        Case("mtu.pinned_high", 2, a=(vlan(5, 1, "mtu 1500"),), b=(vlan(5, 2, "mtu 1500"),),
             options="--gid 10.5.0.1 --peer-gid 10.5.0.2 --mtu 4096", tagged=True),
    "address_removed_in_the_middle":
        Case("gid.deleted", 2, a=(address(1),), b=(address(2),), during=("b", f"ip address del 10.7.0.2/24 dev {DEV}", READS),
             options="--gid 10.7.0.1 --peer-gid 10.7.0.2 --reads 100000",
             then="--gid 10.7.0.1 --peer-gid 10.7.0.2"),
    "own_address_removed_in_the_middle":
        Case("gid.deleted", 2, a=(address(1),), b=(address(2),), during=("a", f"ip address del 10.7.0.1/24 dev {DEV}", READS),
             options="--gid 10.7.0.1 --peer-gid 10.7.0.2 --reads 100000",
             then="--gid 10.7.0.1 --peer-gid 10.7.0.2"),
    "address_removed_between_choice_and_use":
        Case("gid.stale", 2, a=(address(1),), b=(address(2),), during=("b", f"ip address del 10.7.0.2/24 dev {DEV}", LADDER),
             options="--gid 10.7.0.1 --peer-gid 10.7.0.2", then=""),
    "path_mtu_larger_than_the_peers": Case("mtu.qp_disagree", 2, options="--mtu 4096 --peer-mtu 1024", then=""),
    "path_mtu_smaller_than_the_peers": Case("mtu.qp_disagree", 2, options="--mtu 1024 --peer-mtu 4096", then=""),
    "gid_of_another_queue_pair":
        Case("gid.mismatch", 2, a=(address(1),), b=(address(2),), then="",
             options=f"--gid {A} --peer-gid {B} --target-gid 10.7.0.2"),
    "duplicate_address":
        Case("net.duplicate", 2, a=(address(1), f"ip neigh replace 10.7.0.2 lladdr {THIRD} dev {DEV} nud reachable"),
             b=(address(2), third_host("10.7.0.2/24"),
                # Host b must not ask for a's link address: a would learn b's from the question.
                f"ip neigh replace 10.7.0.1 dev {DEV} nud permanent "
                f"lladdr $(ip neigh show {A} dev {DEV} | awk '{{print $3}}')"),
             options="--gid 10.7.0.1 --peer-gid 10.7.0.2", elsewhere="nsenter --net=/run/netns/third sh -c "),
    # IPv6 still passes, and would be taken.
    "roce_blocked_one_way":
        Case("net.udp4791", 2, b=(drop(f"ip saddr {A} udp dport 4791"),), options=f"--gid {A} --peer-gid {B}"),
    "long_packets_refused_by_the_responder_itself":
        Case("net.egress", 2, b=(drop("udp dport 4791 ip length gt 1500", "output"),)),
    "peer_mtu_lowered_in_the_middle": Case("mtu.changed", 2, during=("b", MTU + "1500", READS), options="--reads 100000", then=""),
}


class Matrix(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.agent = Agent()
        cls.agent.run(f"setsid {RVGET} check --listen --idle 600000 >/tmp/listen 2>&1 &")
        for _ in range(100):
            if "listening" in cls.agent.run("cat /tmp/listen")[1]:
                return
            time.sleep(0.1)  # until the listener says so in its file
        raise RuntimeError("no listener on host b: " + cls.agent.run("cat /tmp/listen")[1])

    def must(self, run, command):
        status, output = run(command)
        self.assertEqual(status, 0, f"{command}: {output}")

    def check(self, options, during=()):
        """Status and report of a check; `during` comes in its middle."""
        if "--reads" not in options:
            options += " --reads 0"
        with subprocess.Popen(f"exec {RVGET} check {B} --json {options}", shell=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as checker:
            if during:
                host, command, when = during
                self.wait_for(*when)
                self.must(local if host == "a" else self.agent.run, command)
            out, err = checker.communicate(timeout=90)
        try:
            return checker.returncode, json.loads(out)
        except ValueError:
            self.fail(f"status {checker.returncode}, no JSON: {out!r} {err!r}")

    def wait_for(self, file, pattern, number):
        """Until the number in a kernel's file has grown by so much: nothing tells when it does."""
        def now():
            with open(file, encoding="ascii") as opened:
                return int(re.search(pattern, opened.read()).group(1))
        begin, limit = now(), time.monotonic() + 60
        while now() < begin + number:
            self.assertLess(time.monotonic(), limit, f"{file} does not grow")
            time.sleep(0.01)

    def mend(self, case, fixes):
        for fix in fixes:
            host, command = re.fullmatch(r"\[([^]]*)\] (.*)", fix).groups()
            if host == "switch":
                continue  # the bench has none; the lines before it are the other way to mend the fault
            command = re.sub(r"^rvget check", f"{RVGET} check --reads 0", command)
            if host == "rvget-a":
                self.must(local, command)
            elif host == "rvget-b":
                self.must(self.agent.run, command)
            else:
                self.assertTrue(case.elsewhere, f"nobody there to run: {fix}")
                self.must(self.agent.run, case.elsewhere + shlex.quote(command))

    def restore(self):
        both = [UNDROP, "for v in /sys/class/net/v[0-9]; do ip link del ${v##*/}; done 2>/dev/null; true", MTU + "9000",
                f"ip neigh flush dev {DEV} nud all", "ip address show | awk '$1==\"inet\"&&$2~/^10[.]/{print $2,$NF}' | "
                "while read a d; do ip address del $a dev $d; done", "ip netns del third 2>/dev/null; true",
                f"tc qdisc del dev {DEV} root 2>/dev/null; true", "ip link del pr0 2>/dev/null; true",
                "ip rule del table 77 2>/dev/null; ip route flush table 77 2>/dev/null; true"]
        for command in both:
            local(command)
            self.agent.run(command)

    def swap_wires(self, at_a, at_b):
        self.agent.run_later(at_b)
        self.must(local, at_a)
        self.must(self.agent.run, "true")  # it is there again

    def check_on_a_busy_machine(self, case, options, during=None):
        """A guest that gets no time for seconds leaves packets unanswered, and check rightly says so: once more, then,
        where no packet is dropped on purpose."""
        status, report = self.check(options, during)
        lossy = {f["id"] for f in report["findings"] if f["outcome"] != "pass"} & {"path.lossy", "path.loss"}
        if lossy and not during and not lossy & {*case.also, case.verdict}:
            print("packets were lost that nobody dropped: once more", file=sys.stderr)
            status, report = self.check(options)
        return status, report

    def one(self, case):
        self.addCleanup(self.restore)
        if case.tagged:
            self.addCleanup(self.swap_wires, UNTAG, UNTAG)
            self.swap_wires(TAG_A, TAG_B)
        for command in case.a:
            self.must(local, command)
        for command in case.b:
            self.must(self.agent.run, command)
        begun = time.monotonic()
        status, report = self.check_on_a_busy_machine(case, case.options, case.during)
        seen = [f for f in report["findings"] if f["outcome"] in ("fail", "warn", "error")]
        if RECORD:
            with open(f"{RECORD}/{self.id().split('.test_')[1]}.json", "w", encoding="utf-8") as file:
                json.dump(report, file, indent=1)
        told = json.dumps([[f["id"], f["message"], f["fix"], f["evidence"]] for f in report["findings"]
                           if f["outcome"] != "pass"], indent=1)
        print(f"{time.monotonic() - begun:.1f} s {told}", file=sys.stderr)
        told += json.dumps(report["facts"].get("observations"))
        verdicts = {f["id"] for f in seen if not f["id"].startswith("path.")}
        expected = case.verdict.split("|") if case.verdict else []
        self.assertEqual(len(verdicts), len(expected[:1]), told)
        self.assertLessEqual(verdicts, set(expected), told)
        self.assertLessEqual(set(case.also), {f["id"] for f in seen}, told)
        self.assertEqual((status, report["exit"]), (case.status, case.status), told)
        if not case.verdict:
            return
        self.mend(case, [line for f in seen if f["id"] in verdicts for line in f["fix"]])
        status, report = self.check_on_a_busy_machine(case, case.options if case.then is None else case.then)
        # Other pairs of GIDs may still fail where the way out is to use this one, and a VLAN stays another netdev than
        # that of the control connection.
        left = [f for f in report["findings"] if f["outcome"] in ("fail", "error") or f["outcome"] == "warn"
                and f["id"] not in ("path.gid.matrix", "path.control_netdev")]
        self.assertEqual((status, left), (0, []))


    def test_self_without_any_privilege(self):
        ran = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", RVGET, "check",
                              "--self", "--reads", "100", "--json"], stdout=subprocess.PIPE, timeout=90, check=False)
        report = json.loads(ran.stdout)
        left = [f for f in report["findings"] if f["outcome"] in ("warn", "fail", "error")]
        self.assertEqual((ran.returncode, left), (0, []))
        self.assertIn("path.loss", [f["id"] for f in report["findings"]])


def add(name, case):
    def test(self):
        try:
            self.one(case)
        except Exception as error:  # told at once: the bench may end before the summary
            print(f"{name}: {error}", file=sys.stderr)
            raise
    setattr(Matrix, f"test_{name}", test)


for case_name, one_case in CASES.items():
    if ALL or one_case.quick:
        add(case_name, one_case)

if __name__ == "__main__":
    unittest.main(verbosity=2)
