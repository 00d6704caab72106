"""rvget serve and rvget get, each a process of its own, on the software ConnectX: by libibverbs and
by the direct path, with the same bytes and the same report.

RVGET_COMMAND names the program, SOFTMLX5 the library to preload.
"""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

RVGET = os.environ["RVGET_COMMAND"]
SIZES = [0, 1, *range(31, 66), 4095, 4096, 4097, (1 << 20) - 1, 1 << 20, (1 << 20) + 1]
CHOICES = ["off", "verbs_qp", "devx"]


def payload(size):
    return bytes((i * 31 + (i >> 8)) & 0xFF for i in range(size))


class CommandOnMlx5(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = pathlib.Path(directory.name)
        self.environment = dict(os.environ, LD_PRELOAD=os.environ["SOFTMLX5"], SOFTMLX5_ABORT="1",
                                SOFTMLX5_NET=f"command-{os.getpid()}")

    def run_rvget(self, choice, *arguments):
        return subprocess.run([RVGET, *arguments], capture_output=True, text=True, timeout=100, check=False,
                              env=dict(self.environment, RVGET_MLX5=choice))

    def test_get_brings_the_same_bytes_and_report_by_every_path(self):
        for size in SIZES:
            (self.path / f"data-{size}").write_bytes(payload(size))
        with subprocess.Popen(
                [RVGET, "serve", *(self.path / f"data-{size}" for size in SIZES), "--rdma-min", "1",
                 "--wireup-wait", "10000"],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=self.environment) as server:
            try:
                urls = [server.stdout.readline().split()[0] for _ in SIZES]
                for size, url in zip(SIZES, urls):
                    with self.subTest(size=size):
                        # Small ones come inside the reply, by whatever path.
                        wanted = CHOICES if size > 4096 else ["verbs_qp"]
                        reports = [self.get(choice, url, size) for choice in wanted]
                        self.assertEqual(reports[0]["path"], "rdma" if size > 4096 else "inline")
                        for report in reports[1:]:
                            self.assertEqual(report, reports[0])
            finally:
                server.terminate()
                self.assertEqual(server.wait(timeout=60), 0)

    def get(self, choice, url, size):
        copy = self.path / "copy"
        copy.unlink(missing_ok=True)
        ran = self.run_rvget(choice, "get", url, "-o", copy, "--json", "--deadline", "60000")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual(copy.read_bytes(), payload(size))
        report = json.loads(ran.stdout.splitlines()[-1])
        return {key: value for key, value in report.items() if not key.endswith("_ns")}


if __name__ == "__main__":
    unittest.main()
