"""The rvget command over a real queue pair, in a Soft-RoCE guest: what a person sees of it.

RVGET_COMMAND names the program; the bench gives address and device (docs/bench.md).
"""
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

RVGET = os.environ["RVGET_COMMAND"]
ADDRESS = os.environ["RVGET_ADDR"]
MEMLOCK = ["setpriv", "--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock", "prlimit", "--memlock=65536"]
SIZE = (8 << 20) + 4097


class CommandOverRdma(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.path = pathlib.Path(self.directory.name)
        self.data = bytes((i * 31 + (i >> 8)) & 0xFF for i in range(65536)) * (SIZE // 65536 + 1)
        self.data = self.data[:SIZE]
        (self.path / "data").write_bytes(self.data)

    def test_route_is_the_one_that_a_get_takes(self):
        shown = subprocess.run([RVGET, "route", ADDRESS, "--json"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(shown.returncode, 0, (shown.stdout, shown.stderr))
        route = json.loads(shown.stdout)
        self.assertEqual((route["schema"], route["local"], route["source"]), ("rvget.route/1", True, ADDRESS))
        chosen = [c for c in route["candidates"] if c["chosen"]]
        self.assertEqual([(c["device"], c["gid"]) for c in chosen], [(os.environ["RVGET_RDMA_DEVICE"], ADDRESS)])
        # The link-local GID of the same port is there, and is told why it lost.
        self.assertTrue(all(c["reason"] for c in route["candidates"]) and len(route["candidates"]) > 1)
        pinned = subprocess.run([RVGET, "route", ADDRESS, "--gid", "198.18.77.7"], capture_output=True, text=True,
                                timeout=60, check=False)
        self.assertEqual(pinned.returncode, 2)
        self.assertIn("not the pinned GID 198.18.77.7", pinned.stdout)

    def test_pinned_gid_is_taken_and_a_foreign_one_leaves_chunks_with_the_reason(self):
        server, url = self.serve("--gid", ADDRESS)
        code, report, told = self.get(url, "--gid", ADDRESS)
        self.assertEqual((code, report["path"], report["gid"]), (0, "rdma", ADDRESS), told)
        self.assert_copied()
        code, report, told = self.get(url, "--gid", "198.18.77.7")
        self.assertEqual((code, report["path"], report["reason"]), (0, "chunked", "not_configured"), told)
        self.assert_copied()
        server.terminate()
        self.assertEqual(server.wait(60), 0)

    def serve(self, *options, before=()):
        server = subprocess.Popen(
            [*before, RVGET, "serve", self.path / "data", "--listen", ADDRESS, "--wireup-wait", "10000", *options],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        url = server.stdout.readline().split()[0]
        return server, url

    def get(self, url, *options, before=()):
        out = self.path / "copy"
        ran = subprocess.run([*before, RVGET, "get", url, "-o", out, "--json", "--deadline", "60000", *options],
                             capture_output=True, text=True, timeout=200, check=False)
        return ran.returncode, json.loads(ran.stdout.splitlines()[-1]) if ran.stdout else None, ran.stderr

    def assert_copied(self, first=0, last=SIZE):
        copy = (self.path / "copy").read_bytes()
        self.assertEqual(hashlib.sha256(copy).digest(), hashlib.sha256(self.data[first:last]).digest())

    def test_get_takes_the_rdma_path_and_says_over_what(self):
        server, url = self.serve()
        for policy in ("prefer", "require"):
            status, report, errors = self.get(url, "--policy", policy)
            self.assertEqual(status, 0, errors)
            self.assertEqual((report["path"], report["reason"]), ("rdma", "ok"))
            self.assertEqual(report["device"], os.environ["RVGET_RDMA_DEVICE"])
            self.assertEqual(report["bytes"], SIZE)
            self.assert_copied()
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(timeout=60), 0)

    def test_get_of_a_range_is_exactly_that_range(self):
        _, url = self.serve()
        status, report, errors = self.get(url, "--range", f"{SIZE - 100000}-{SIZE - 1}")
        self.assertEqual(status, 0, errors)
        self.assertEqual(report["path"], "rdma")
        self.assert_copied(SIZE - 100000, SIZE)

    def test_require_of_an_unpinned_slot_is_status_5(self):
        _, url = self.serve("--no-pin")
        self.assertEqual(self.get(url, "--policy", "require")[0], 5)
        self.assertFalse((self.path / "copy").exists())
        status, report, _ = self.get(url)
        self.assertEqual((status, report["path"], report["reason"]), (0, "chunked", "not_pinned"))
        self.assert_copied()

    def test_too_little_memlock_on_either_side_falls_back(self):
        _, url = self.serve()
        status, report, _ = self.get(url, before=MEMLOCK)
        self.assertEqual((status, report["path"], report["reason"]), (0, "chunked", "registration"))
        self.assert_copied()
        _, url = self.serve(before=MEMLOCK)
        status, report, _ = self.get(url)
        self.assertEqual((status, report["path"]), (0, "chunked"))
        self.assert_copied()

    def test_owner_killed_in_the_middle_leaves_no_file_and_is_status_7(self):
        server, url = self.serve()
        fifo = self.path / "copy-fifo"
        os.mkfifo(fifo)
        getter = subprocess.Popen([RVGET, "get", url, "-o", fifo, "--segment", "65536", "--policy", "require"],
                                  stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        with open(fifo, "rb") as reader:
            self.assertEqual(len(reader.read(65536)), 65536)  # it is in the middle now
            server.kill()
            server.wait()
            while reader.read(1 << 20):
                pass
        errors = getter.communicate(timeout=60)[1]
        self.assertEqual(getter.returncode, 7, errors)
        status, _, errors = self.get(url)
        self.assertEqual(status, 7, errors)
        self.assertEqual(sorted(p.name for p in self.path.iterdir()), ["copy-fifo", "data"])


if __name__ == "__main__":
    unittest.main()
