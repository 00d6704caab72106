"""The soak: consumers on this host get from an owner on the other one while the network between them breaks.

usage: soak.py CONSUMER_PROGRAM (RVGET_SOAK_SECONDS, default 30; owner_host runs on the other host)

Eight consumer processes get random ranges by every kind of call, with cancels and short deadlines. Meanwhile one
after the other is killed and begun anew, one packet in a hundred is lost on this host's ingress, the address goes and
comes back, the link goes down and up. At the end: no wrong byte, no answer long past its deadline, nothing unexpected,
and the owner and both kernels hold what they held before.
"""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SECONDS = int(os.environ.get("RVGET_SOAK_SECONDS", "30"))
SEED = int(os.environ.get("RVGET_SOAK_SEED", str(random.randrange(1 << 30))))
SHARE = pathlib.Path(os.environ["RVGET_BENCH_SHARE"])
NETDEV = os.environ["RVGET_NETDEV"]
ADDRESS = os.environ["RVGET_ADDR"]
CONSUMER = sys.argv.pop(1)
CONSUMERS = 8
PATIENCE = 120
AT_REST = 1 + 2  # queue pairs of a host: the kernel's own, and the owner's spares
MEMORY_SLACK_KIB = 16 << 10  # caches of the allocator; a leaked payload of each get would be far more


def wait_for(what, condition, limit=PATIENCE):
    """The other kernel cannot notify this one, so what is awaited is looked for."""
    end = time.monotonic() + limit
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit} s: {what}")
        time.sleep(0.05)
    return value


def take(name):
    path = SHARE / name
    wait_for(f"{name} from the other host", path.exists)
    text = path.read_text()
    path.unlink()
    return text


def host(request):
    (SHARE / "host.request.new").write_text(request + "\n")
    (SHARE / "host.request.new").rename(SHARE / "host.request")
    take("host.reply")


def ask(question):
    (SHARE / f"ask.{question}").touch()
    return take(f"answer.{question}")


def rdma_objects(text):
    """Queue pairs, regions and contexts of the first device in what `rdma resource show` prints."""
    return {kind: int(re.search(rf"\b{kind} (\d+)", text).group(1)) for kind in ("qp", "mr", "ctx")}


def here():
    shown = subprocess.run(["rdma", "resource", "show"], capture_output=True, text=True, check=True)
    return rdma_objects(shown.stdout)


def owner_holds():
    descriptors, resident, objects = ask("resources").split(" ", 2)
    return {"descriptors": int(descriptors), "resident": int(resident), **rdma_objects(objects)}


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class Soak(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.urls = pathlib.Path(self.directory.name) / "urls"
        self.running = []
        self.addCleanup(lambda: [c.kill() for c in self.running])
        self.random = random.Random(SEED)
        self.totals = {}
        self.begun = 0
        self.lost = 0
        host("start --lease-timeout 2000")
        self.addCleanup(host, "exit")
        self.urls.write_text(take("urls"))

    def begin(self, seconds, wireup="auto"):
        self.begun += 1
        self.running.append(subprocess.Popen(
            [CONSUMER, self.urls, str(seconds), str(SEED + self.begun)], stdout=subprocess.PIPE, text=True,
            env=dict(os.environ, RVGET_WIREUP=wireup),
            # It lets the signal in when it can take it.
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])))

    def end(self, consumer):
        output, _ = consumer.communicate(timeout=PATIENCE)
        self.assertEqual(consumer.returncode, 0, f"seed {SEED}: {output}")
        for name, count in json.loads(output).items():
            self.totals[name] = self.totals.get(name, 0) + count

    # What breaks, one at a time; each ends as it found things.

    def kill_one(self):
        victim = self.running.pop(self.random.randrange(len(self.running)))
        victim.kill()
        victim.communicate()
        self.begin(3600)

    def lose_packets(self):
        """One in a hundred on this host's ingress: rxe waits for ever for what its own egress drops."""
        subprocess.run(["nft", "add table inet soak; add chain inet soak in { type filter hook prerouting priority -300; }; "
                        "add rule inet soak in numgen random mod 100 0 counter drop"], check=True)
        time.sleep(3)
        counted = subprocess.run(["nft", "list", "table", "inet", "soak"], check=True, text=True,
                                 capture_output=True).stdout
        self.lost += int(re.search(r"packets (\d+)", counted).group(1))
        subprocess.run(["nft", "delete", "table", "inet", "soak"], check=True)

    def take_address(self):
        ip("addr", "del", self.prefix, "dev", NETDEV)
        time.sleep(1)
        ip("addr", "add", self.prefix, "dev", NETDEV)

    def take_link(self):
        ip("link", "set", NETDEV, "down")
        time.sleep(1)
        ip("link", "set", NETDEV, "up")

    def test_nothing_is_wrong_and_nothing_stays_behind(self):
        shown = json.loads(subprocess.run(["ip", "-j", "-4", "addr", "show", "dev", NETDEV], check=True,
                                          capture_output=True, text=True).stdout)
        self.prefix = next(f"{a['local']}/{a['prefixlen']}" for a in shown[0]["addr_info"] if a["local"] == ADDRESS)
        for wireup in ("exchange", "cm"):  # so that everything has been touched once, and the owner listens for both
            self.begin(1, wireup)
            self.end(self.running.pop())
        wait_for("the first consumer's connection to end", lambda: owner_holds()["qp"] == AT_REST)
        before, before_here = owner_holds(), here()

        for _ in range(CONSUMERS):
            self.begin(3600)
        stop = time.monotonic() + SECONDS
        breaks = [self.kill_one, self.lose_packets, self.take_address, self.take_link]
        done = 0
        while time.monotonic() < stop or done < len(breaks):
            breaks[done % len(breaks)]()
            done += 1
            time.sleep(self.random.uniform(0.5, 2))
            for consumer in self.running:
                self.assertIsNone(consumer.poll(), f"seed {SEED}: a consumer ended by itself")
        for consumer in self.running:
            consumer.send_signal(signal.SIGTERM)
        while self.running:
            self.end(self.running.pop())

        print(f"soak: seed {SEED}, {SECONDS} s, {done} breaks, {self.lost} packets lost, {self.totals}", flush=True)
        self.assertGreater(self.totals["rdma"], 100)
        self.assertGreater(self.totals["chunked"], 10)
        self.assertGreater(self.totals["cancelled"], 0)
        self.assertGreater(self.lost, 0)
        self.assertEqual(here(), before_here)

        def idle():
            granted, released, expired, active, _ = (int(n) for n in ask("statistics").split())
            self.assertEqual(granted, released + expired + active)
            return active == 0
        wait_for("the owner's leases to end", idle)
        wait_for("the owner to hold what it held before", lambda: {
            k: v for k, v in owner_holds().items() if k != "resident"} == {
            k: v for k, v in before.items() if k != "resident"})
        self.assertLess(owner_holds()["resident"], before["resident"] + MEMORY_SLACK_KIB)


if __name__ == "__main__":
    unittest.main()
