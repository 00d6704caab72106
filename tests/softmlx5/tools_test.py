"""Debian's RDMA tools, unmodified, on the software ConnectX: each must succeed, and break no rule.

SOFTMLX5 names the library to preload, SOFTMLX5_MODE how it watches doorbells.
"""
import os
import pathlib
import select
import socket
import subprocess
import time
import unittest

LIBRARY = os.environ["SOFTMLX5"]
# A rule that is broken ends the tool, so that no exit status hides it.
ENVIRONMENT = dict(os.environ, LD_PRELOAD=LIBRARY, SOFTMLX5_ABORT="1",
                   SOFTMLX5_NET=f"tools-{os.getpid()}")
SECONDS = 60


def listening(port):
    """Whether something on this machine listens there, without connecting to it."""
    wanted = f":{port:04X} "
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in pathlib.Path(name).read_text().splitlines()[1:]:
            local, _, state = line.split()[1:4]
            if f"{local} ".endswith(wanted) and state == "0A":
                return True
    return False


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Tools(unittest.TestCase):
    def run_tool(self, *command):
        done = subprocess.run(command, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=SECONDS)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertNotIn("violation", done.stdout)
        return done.stdout

    def run_pair(self, *command):
        """The tool as server and, once that listens, as client."""
        port = free_port()
        command = [*command, "-p", str(port)]
        server = subprocess.Popen(command, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT)
        try:
            end = time.monotonic() + SECONDS
            while not listening(port):
                self.assertIsNone(server.poll(), "the server ended before it listened")
                self.assertLess(time.monotonic(), end, "the server does not listen")
                select.select([server.stdout], [], [], 0.01)
            text = self.run_tool(*command, "127.0.0.1")
            said, _ = server.communicate(timeout=SECONDS)
            self.assertEqual(server.returncode, 0, said)
            self.assertNotIn("violation", said)
            return text
        finally:
            server.kill()
            server.wait()
            server.stdout.close()

    def test_devices_lists_it(self):
        self.assertIn("mlx5_0", self.run_tool("ibv_devices"))

    def test_devinfo_describes_it(self):
        text = self.run_tool("ibv_devinfo", "-v")
        for part in ("hca_id:\tmlx5_0", "PORT_ACTIVE", "link_layer:\t\tEthernet", "RoCE v2"):
            self.assertIn(part, text)

    def test_pingpong_polling_completes(self):
        self.assertIn("200 iters", self.run_pair("ibv_rc_pingpong", "-g", "1", "-n", "200", "-c"))

    def test_pingpong_with_events_completes(self):
        self.assertIn("200 iters",
                      self.run_pair("ibv_rc_pingpong", "-g", "1", "-n", "200", "-e", "-c"))

    def test_pingpong_with_the_new_post_api_completes(self):
        self.assertIn("200 iters", self.run_pair("ibv_rc_pingpong", "-g", "1", "-n", "200", "-N"))

    def test_pingpong_of_several_packets_completes(self):
        self.assertIn("20 iters", self.run_pair("ibv_rc_pingpong", "-g", "1", "-n", "20", "-s",
                                                "100000", "-m", "256", "-c"))

    def test_read_bandwidth_completes(self):
        self.run_pair("ib_read_bw", "-x", "1", "-n", "100", "-s", "65536")

    def test_read_latency_completes(self):
        self.run_pair("ib_read_lat", "-x", "1", "-n", "100")

    def test_read_latency_with_events_completes(self):
        self.run_pair("ib_read_lat", "-x", "1", "-n", "100", "-e")

    def test_send_latency_completes(self):
        self.run_pair("ib_send_lat", "-x", "1", "-n", "100")

    def test_send_latency_with_events_completes(self):
        self.run_pair("ib_send_lat", "-x", "1", "-n", "100", "-e")

    def test_send_bandwidth_completes(self):
        self.run_pair("ib_send_bw", "-x", "1", "-n", "100", "-s", "4096")

    def test_write_bandwidth_completes(self):
        self.run_pair("ib_write_bw", "-x", "1", "-n", "100", "-s", "4096", "-q", "3")

    def test_write_latency_completes(self):
        self.run_pair("ib_write_lat", "-x", "1", "-n", "100")

    def test_atomic_latency_completes(self):
        self.run_pair("ib_atomic_lat", "-x", "1", "-n", "100")

    def test_atomic_compare_and_swap_completes(self):
        self.run_pair("ib_atomic_lat", "-x", "1", "-n", "100", "-A", "CMP_AND_SWAP")


if __name__ == "__main__":
    unittest.main()
