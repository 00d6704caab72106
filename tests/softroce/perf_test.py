"""rvget perf over a real queue pair, in a Soft-RoCE guest: every transfer by RDMA, every byte compared.

RVGET_COMMAND names the program; the bench gives address and device (docs/bench.md).
"""
import json
import os
import subprocess
import unittest

RVGET = os.environ["RVGET_COMMAND"]
COUNT = 4


def perf(*options):
    ran = subprocess.run([RVGET, "perf", "--json", "--on", os.environ["RVGET_ADDR"], "--warmup", "0", "--repeat", "1",
                          "--iterations", str(COUNT), *options], capture_output=True, text=True, timeout=100, check=False)
    return ran.returncode, [json.loads(line) for line in ran.stdout.splitlines()], ran.stderr


class PerfOverRdma(unittest.TestCase):
    def test_all_operations_run_by_rdma_with_every_byte_compared(self):
        status, records, errors = perf("--op", "get,get_into,get_pinned", "--size", "64K,256K", "--depth", "2",
                                       "--policy", "require")
        self.assertEqual(status, 0, (records, errors))
        self.assertIn(records[0]["server"]["lease_keys"], ("window", "exact"))
        points = [r for r in records if r["type"] == "point"]
        self.assertEqual(len(points), 6)
        for p in points:
            self.assertEqual(p["paths"], {"rdma/ok": COUNT})
            self.assertEqual((p["verified"], p["wrong"], p["errors"]), (COUNT, 0, 0))
            self.assertEqual(p["route"]["device"], os.environ["RVGET_RDMA_DEVICE"])
            sent = p["counters_delta"]["server"][f"{p['route']['device']}/1 sent_pkts"]
            self.assertGreaterEqual(sent, COUNT * p["size_bytes"] // p["route"]["path_mtu_bytes"])
            # get_into a registered destination is what has no copy; get_pinned has none, either.
            self.assertEqual(p["split_us"]["copy"] == 0, p["op"] != "get")

    def test_policy_never_takes_chunks_from_the_same_pinned_memory(self):
        status, records, errors = perf("--size", "64K", "--policy", "never")
        self.assertEqual(status, 0, (records, errors))
        p = next(r for r in records if r["type"] == "point")
        self.assertEqual((p["paths"], p["pinned"], p["route"]), ({"chunked/policy": COUNT}, True, None))

    def test_memory_costs_are_told_by_size(self):
        ran = subprocess.run([RVGET, "perf", "memory", "--json", "--size", "4K,64K"], capture_output=True, text=True,
                             timeout=100, check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        records = [json.loads(line) for line in ran.stdout.splitlines()]
        self.assertEqual([(r["type"], r.get("size_bytes")) for r in records],
                         [("registration", 4096), ("registration", 65536), ("pool", 4096), ("pool", 65536),
                          ("end", None)])
        self.assertTrue(all(r["register_us"] > 0 and r["deregister_us"] > 0 for r in records[:2]))
        self.assertTrue(all(r["allocate_and_free_ns"] > 0 for r in records[2:4]))


if __name__ == "__main__":
    unittest.main()
