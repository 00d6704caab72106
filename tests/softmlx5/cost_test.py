"""Instructions to post one READ and to poll its completion, by libmlx5 and by the direct path.

COST names the program, built with optimisation. What a figure in instructions says about time on a
ConnectX is another question; it is a ratio that a change may not spoil.
"""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

COUNT = 400


def instructions(path):
    """Those of a post and a poll together: from one run with COUNT of them and one with twice as
    many, so that first calls (which bind symbols) do not count."""
    return (total(path, 2 * COUNT) - total(path, COUNT)) / COUNT


def total(path, count):
    with tempfile.TemporaryDirectory() as directory:
        out = pathlib.Path(directory) / "out"
        subprocess.run(["valgrind", "--tool=callgrind", "--collect-atstart=no", "--toggle-collect=measured_*",
                        f"--callgrind-out-file={out}", os.environ["COST"], path, str(count)],
                       check=True, capture_output=True, text=True, timeout=200,
                       env=dict(os.environ, SOFTMLX5_MODE="manual", SOFTMLX5_ABORT="1"))
        return int(re.search(r"^(?:summary|totals): (\d+)$", out.read_text(), re.MULTILINE)[1])


class CostOfARead(unittest.TestCase):
    def test_rings_take_at_most_half_of_what_libmlx5_takes(self):
        libmlx5, rings = instructions("libmlx5"), instructions("rings")
        print(f"instructions for one READ, posted and polled: libmlx5 {libmlx5:.0f}, rings {rings:.0f}")
        self.assertGreater(rings, 0)
        self.assertLessEqual(rings, libmlx5 / 2)

    def test_fabric_body_takes_less_than_that_of_verbs(self):
        verbs, direct = instructions("verbs"), instructions("mlx5")
        print(f"through the fabric interface: verbs {verbs:.0f}, mlx5 {direct:.0f}")
        self.assertGreater(direct, 0)
        self.assertLess(direct, verbs)


if __name__ == "__main__":
    unittest.main()
