"""rvget perf over loopback: figures of transfers that took place, JSON on every way out, exit statuses."""

import csv
import json
import signal
import socket
import xml.etree.ElementTree

from support import LIMIT, Case, main, read_line, run, start

DONE, NOT_GOOD, NOT_STARTED, USAGE = 0, 2, 3, 64
# As short as it goes: what is tested here is not speed.
SHORT = ("--iterations", "5", "--warmup", "0", "--repeat", "2")


def records(finished):
    """All lines parse, and the last one says how it ended."""
    all_of_them = [json.loads(line) for line in finished.stdout.splitlines()]
    assert all_of_them, finished.stderr
    for record in all_of_them:
        assert record["schema"] == "rvget.perf/1", record
    assert all_of_them[-1]["type"] == "end", all_of_them[-1]
    assert all_of_them[-1]["exit"] == finished.returncode, all_of_them[-1]
    return all_of_them


def points(finished):
    return [r for r in records(finished) if r["type"] == "point"]


class Perf(Case):
    def perf(self, *arguments, **options):
        return run("perf", *SHORT, *arguments, **options)

    def owner(self, *arguments):
        process = start("perf", "--listen", "127.0.0.1:0", "--json", *arguments)
        self.addCleanup(self.end, process)
        told = json.loads(read_line(process.stdout))
        self.assertEqual((told["schema"], told["type"]), ("rvget.perf/1", "listening"))
        return process, told["address"]

    def end_of(self, owner):
        """The record with which an owner ends; all that it prints besides."""
        end = json.loads(read_line(owner.stdout))
        self.assertEqual((end["schema"], end["type"]), ("rvget.perf/1", "end"))
        self.assertEqual(self.status_of(owner), end["exit"])
        self.assertEqual(owner.stdout.read(), b"")
        return end

    def await_interval(self, process, wanted=lambda count: True):
        """Until an interval has been told whose count of transfers is as wanted."""
        while True:
            record = json.loads(read_line(process.stdout))
            self.assertIn(record["type"], ("start", "interval"))
            if record["type"] == "interval" and wanted(record["count"]):
                return

    def test_what_is_no_number_is_a_usage_error(self):
        for arguments in (("--rate", "nan"), ("--duration", "nan"), ("--require", "p99_us<=nan"),
                          ("--require", "p99_us<=inf")):
            with self.subTest(arguments=arguments):
                self.assertStatus(self.perf(*arguments), USAGE)

    def test_every_transfer_is_verified_and_its_path_counted(self):
        finished = self.perf("--json", "--op", "get,get_into,get_pinned", "--size", "100,8K", "--depth", "1,3")
        self.assertStatus(finished, DONE)
        measured = points(finished)
        self.assertEqual([(p["op"], p["depth"], p["size_bytes"]) for p in measured],
                         [(op, depth, size) for op in ("get", "get_into", "get_pinned") for depth in (1, 3)
                          for size in (100, 8192)])
        for p in measured:
            self.assertEqual((p["runs"], p["count"], p["verified"], p["errors"], p["wrong"]), (2, 10, 10, 0, 0))
            way = "inline/kill_switch" if p["size_bytes"] == 100 else "chunked/kill_switch"
            self.assertEqual(p["paths"], {way: 10})
            latency = p["latency_us"]
            order = [latency[k] for k in ("min", "p50", "p90", "p99", "p999", "p9999", "max")]
            self.assertEqual(order, sorted(order))
            self.assertGreater(latency["min"], 0)
            self.assertGreater(p["bw_gbps"], 0)
            self.assertGreaterEqual(p["cpu_s"]["server"], 0)

    def test_owner_elsewhere_ends_when_its_consumer_leaves(self):
        owner, address = self.owner()
        finished = self.perf(address, "--json", "--policy", "never", "--size", "64K")
        self.assertStatus(finished, DONE)
        self.assertEqual(points(finished)[0]["policy"], "never")
        end = self.end_of(owner)
        self.assertEqual((end["exit"], end["consumers"]), (0, 1))

    def test_owner_that_keeps_on_serves_until_a_signal(self):
        owner, address = self.owner("--keep")
        for _ in range(2):
            self.assertStatus(self.perf(address), DONE)
        owner.send_signal(signal.SIGTERM)
        self.assertEqual(self.status_of(owner), 0)

    def test_cold_transfers_each_have_a_connection_of_their_own(self):
        finished = run("perf", "--json", "--cold", "--iterations", "3", "--repeat", "1")
        self.assertStatus(finished, DONE)
        p = points(finished)[0]
        self.assertEqual((p["count"], p["verified"]), (3, 3))
        self.assertIn("cold", p["flags"])

    def test_open_loop_begins_as_many_as_were_due(self):
        finished = run("perf", "--json", "--rate", "200", "--duration", "0.2", "--warmup", "0", "--repeat", "1",
                       "--size", "4K", "--depth", "8")
        self.assertStatus(finished, DONE)
        p = points(finished)[0]
        self.assertEqual((p["mode"], p["rate_target"], p["count"]), ("open", 200, 40))

    def test_open_loop_over_a_stopped_owner_shows_it_in_p999(self):
        owner, address = self.owner()
        process = start("perf", address, "--json", "--rate", "1000", "--duration", "1", "--warmup", "0",
                        "--interval", "0.1", "--repeat", "1", "--size", "100")
        self.addCleanup(self.end, process)
        self.await_interval(process)
        owner.send_signal(signal.SIGSTOP)
        for _ in range(3):  # the second and third have nothing but the stall in them: 200 ms
            self.await_interval(process, lambda count: count == 0)
        owner.send_signal(signal.SIGCONT)
        output, errors = process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, DONE, errors)
        p = next(r for r in map(json.loads, output.splitlines()) if r["type"] == "point")
        self.assertEqual(p["count"], 1000)
        self.assertGreater(p["latency_us"]["p999"], 150_000)

    def test_requirements_decide_the_status(self):
        self.assertStatus(self.perf("--require", "p50_us<=60000000,errors<=0"), DONE)
        missed = self.perf("--json", "--require", "p50_us<=60000000,bw_gbps>=1e9@64K")
        self.assertStatus(missed, NOT_GOOD)
        self.assertEqual([v["held"] for v in records(missed)[-1]["verdicts"]], [True, False])
        self.assertStatus(self.perf("--require", "p50_us<=60000000@8"), NOT_GOOD)

    def test_comparison_decides_the_status(self):
        before = self.perf("--json", "--size", "4K,64K")
        self.assertStatus(before, DONE)
        lines = [json.loads(line) for line in before.stdout.splitlines()]
        for factor, status in ((1e6, DONE), (1e-6, NOT_GOOD)):
            with self.subTest(factor=factor):
                # As if it had been that much slower before.
                for p in lines:
                    if p["type"] == "point":
                        p["spread"] = {"bw_gbps": [1e-9 / factor, 1e-9 / factor],
                                       "p50_us": [1e3 * factor, 1e3 * factor]}
                name = self.file("before", "\n".join(map(json.dumps, lines)).encode())
                finished = self.perf("--json", "--size", "4K,64K", "--compare", name)
                self.assertStatus(finished, status)
                self.assertEqual(len(records(finished)[-1]["verdicts"]), 2)

    def test_csv_and_svg_have_the_points(self):
        picture = self.path("picture.svg")
        finished = self.perf("--csv", "--svg", picture, "--size", "4K..64K:x4", "--op", "get,get_pinned")
        self.assertStatus(finished, DONE)
        rows = list(csv.DictReader(finished.stdout.decode().splitlines()))
        self.assertEqual([r["size_bytes"] for r in rows], ["4096", "16384", "65536"] * 2)
        self.assertTrue(all(float(r["p99_us"]) >= float(r["p50_us"]) > 0 for r in rows))
        tree = xml.etree.ElementTree.parse(picture)
        self.assertTrue(tree.getroot().tag.endswith("svg"))

    def test_text_has_perftests_columns_and_a_line_a_point(self):
        finished = self.perf("--size", "4K,64K")
        self.assertStatus(finished, DONE)
        lines = finished.stdout.decode().splitlines()
        self.assertEqual(len(lines), 3)
        for column in ("#bytes", "#iterations", "t_min[us]", "t_typical[us]", "99.9%[us]", "99.99%[us]"):
            self.assertIn(column, lines[0])
        self.assertEqual(lines[1].split()[:4], ["get", "4096", "1", "10"])

    def test_policy_require_without_rdma_does_not_start(self):
        finished = self.perf("--json", "--policy", "require")
        self.assertStatus(finished, NOT_STARTED)
        self.assertIn("kill_switch", records(finished)[-1]["message"])

    def test_without_an_owner_there_is_an_end_record(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            finished = self.perf(f"127.0.0.1:{port}", "--json")
        self.assertStatus(finished, NOT_STARTED)
        self.assertIn("--listen", records(finished)[-1]["message"])

    def test_owner_refuses_what_exceeds_its_budget(self):
        _, address = self.owner("--budget", "2M")
        finished = self.perf(address, "--json", "--size", "4M")
        self.assertStatus(finished, NOT_STARTED)
        self.assertIn("--budget", records(finished)[-1]["message"])

    def test_stranger_at_the_owner_is_sent_away(self):
        owner, address = self.owner("--keep")
        host, port = address.rsplit(":", 1)
        for said in (b"GET / HTTP/1.0\r\n\r\n", b'{"stage":true,"bytes":1,"count":1}\n', b"[]\n", b""):
            with socket.create_connection((host, int(port)), LIMIT) as s:
                s.sendall(said)
                s.shutdown(socket.SHUT_WR)
                s.settimeout(LIMIT)
                try:
                    self.assertNotIn(b"urls", s.recv(4096))
                except ConnectionResetError:
                    pass  # hung up before it had read everything
        self.assertStatus(self.perf(address), DONE)
        owner.send_signal(signal.SIGTERM)
        self.assertEqual(self.status_of(owner), 0)

    def test_stranger_does_not_end_an_owner(self):
        owner, address = self.owner("--idle", "600")
        host, port = address.rsplit(":", 1)
        for said in (b"GET / HTTP/1.0\r\n\r\n", b""):
            with socket.create_connection((host, int(port)), LIMIT) as s:
                s.sendall(said)
        self.assertStatus(self.perf(address), DONE)
        self.assertEqual(self.end_of(owner)["consumers"], 1)

    def test_owner_for_whom_nobody_comes_could_not_start(self):
        owner, _ = self.owner("--idle", "1")
        end = self.end_of(owner)
        self.assertEqual((end["exit"], end["consumers"]), (NOT_STARTED, 0))
        self.assertIn("--idle", end["message"])

    def test_connection_that_says_nothing_is_no_consumer(self):
        owner, address = self.owner("--idle", "1")
        host, port = address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), LIMIT):
            end = self.end_of(owner)
        self.assertEqual((end["exit"], end["consumers"]), (NOT_STARTED, 0))

    def test_second_consumer_hears_that_the_owner_is_busy(self):
        owner, address = self.owner("--keep")
        first = start("perf", address, "--json", "--duration", "600", "--interval", "0.1", "--warmup", "0")
        self.addCleanup(self.end, first)
        self.await_interval(first)
        second = self.perf(address, "--json")
        self.assertStatus(second, NOT_STARTED)
        self.assertIn("busy with another consumer", records(second)[-1]["message"])
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=LIMIT)
        self.assertEqual(first.returncode, 130)
        # Who comes after it has left finds it free.
        self.assertStatus(self.perf(address), DONE)
        owner.send_signal(signal.SIGTERM)
        self.assertEqual(self.end_of(owner)["consumers"], 2)

    def test_rate_above_what_is_possible_ends_in_time_and_says_so(self):
        # Far more than any machine does, so that this would go on for hours.
        finished = run("perf", "--json", "--rate", "1e9", "--duration", "0.1", "--warmup", "0", "--repeat", "1",
                       "--size", "4K")
        self.assertStatus(finished, DONE)
        p = points(finished)[0]
        self.assertIn("overloaded", p["flags"])
        self.assertEqual(p["count"] + p["never_begun"], 100_000_000)

    def test_picture_that_cannot_be_written_is_told_before_anything_is_measured(self):
        for place in ("/nonexistent/picture.svg", self.directory, ""):
            with self.subTest(place=place):
                finished = run("perf", "--duration", "600", "--svg", place)
                self.assertOneError(finished, USAGE, "--svg")
        self.assertEqual(self.names(), [])

    def test_picture_that_the_disk_does_not_take_is_no_failure_to_start(self):
        finished = run("perf", "--iterations", "3", "--repeat", "1", "--warmup", "0", "--size", "4K", "--svg",
                       "/dev/full", "--json")
        end = json.loads(finished.stdout.splitlines()[-1])
        self.assertEqual((finished.returncode, end["exit"]), (2, 2))
        self.assertIn("/dev/full", end["message"])

    def test_interrupted_says_what_is_done(self):
        process = start("perf", "--json", "--duration", "600", "--interval", "0.1", "--warmup", "0", "--size", "4K")
        self.addCleanup(self.end, process)
        self.await_interval(process)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, 130)
        left = [json.loads(line) for line in output.splitlines()]
        self.assertEqual([r["type"] for r in left if r["type"] != "interval"], ["point", "end"])
        self.assertEqual(left[-1]["exit"], 130)
        point = next(r for r in left if r["type"] == "point")
        self.assertGreater(point["count"], 0)
        self.assertIn("incomplete", point["flags"])

    def test_owner_killed_in_the_middle_fails_with_what_was_done(self):
        owner, address = self.owner()
        process = start("perf", address, "--json", "--duration", "600", "--interval", "0.1", "--warmup", "0")
        self.addCleanup(self.end, process)
        self.await_interval(process)
        owner.kill()
        output, _ = process.communicate(timeout=LIMIT)
        left = [json.loads(line) for line in output.splitlines()]
        self.assertEqual([r["type"] for r in left if r["type"] != "interval"], ["point", "end"])
        self.assertEqual((process.returncode, left[-1]["exit"]), (NOT_GOOD, NOT_GOOD))
        point = left[-2]
        self.assertGreater(point["count"], 0)
        self.assertEqual((point["errors"], point["wrong"]), (1, 0))
        self.assertIn("incomplete", point["flags"])
        self.assertEqual(point["broken_off"], left[-1]["message"])

    def test_sweep_has_each_transfer_and_keeps_the_first_apart(self):
        finished = run("perf", "sweep", "--json", "--size", "4K,64K", "--iterations", "3")
        self.assertStatus(finished, DONE)
        all_of_them = records(finished)
        transfers = [r for r in all_of_them if r["type"] == "transfer"]
        arms = ("get", "get chunked", "get_pinned")
        self.assertEqual([(t["arm"], t["size_bytes"], t["repetition"]) for t in transfers],
                         [(arm, size, n) for arm in arms for size in (4096, 65536) for n in range(3)])
        for t in transfers:
            self.assertEqual(t["path"], "chunked/policy" if t["arm"] == "get chunked" else "chunked/kill_switch")
        summary = [r for r in all_of_them if r["type"] == "sweep"]
        self.assertEqual([r["size_bytes"] for r in summary], [4096, 65536])
        for r in summary:
            self.assertEqual(sorted(r["arms"]), sorted(arms))
            self.assertGreater(r["arms"]["get"]["warm_us"], 0)
        text = run("perf", "sweep", "--size", "4K", "--iterations", "2")
        self.assertStatus(text, DONE)
        self.assertEqual(len(text.stdout.splitlines()), 2)

    def test_sweep_that_finds_no_owner_did_not_start(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            finished = run("perf", "sweep", f"127.0.0.1:{unused.getsockname()[1]}", "--json")
        self.assertStatus(finished, NOT_STARTED)
        self.assertIn("--listen", records(finished)[-1]["message"])

    def test_sweep_that_loses_its_owner_shows_what_was_done(self):
        # An owner without --keep serves the first of the three ways.
        owner, address = self.owner()
        finished = run("perf", "sweep", address, "--json", "--size", "4K", "--iterations", "2")
        self.assertStatus(finished, NOT_GOOD)
        left = records(finished)
        self.assertEqual([r["type"] for r in left], ["transfer", "transfer", "sweep", "end"])
        self.assertEqual(list(left[2]["arms"]), ["get"])
        self.assertEqual(self.end_of(owner)["exit"], 0)

    def test_memory_ends_with_a_record_where_there_is_no_device_too(self):
        finished = run("perf", "memory", "--json", "--size", "4K")
        self.assertIn(finished.returncode, (DONE, NOT_STARTED))
        self.assertEqual(len(records(finished)) > 1, finished.returncode == DONE)

    def test_bad_arguments_are_usage(self):
        for arguments in (["--op", "put"], ["--size", "0"], ["--size", "8..4"], ["--size", "4K:x2"], ["--size", ""],
                          ["--depth", "0"], ["--rate", "x"], ["--repeat", "0"], ["--duration", "-1"], ["--duration", "0"],
                          ["--require", "speed>=1"], ["--compare", "/nonexistent"], ["--json", "--csv"],
                          ["--cold", "--depth", "2"], ["--verify", "never"], ["--lease-keys", "x"],
                          ["sweep", "--iterations", "1"], ["--iterations", "0"], ["a", "b"], [":1"],
                          ["--listen", "127.0.0.1:0", "host"],
                          ["--listen", "127.0.0.1:0", "sweep"], ["sweep", "--require", "bw_gbps>=1"],
                          ["sweep", "--svg", self.path("x.svg")], ["sweep", "--rate", "5"]):
            with self.subTest(arguments=arguments):
                finished = run("perf", *arguments)
                self.assertOneError(finished, USAGE)
        finished = run("perf", "--size", "x", "--json")
        self.assertEqual(json.loads(finished.stdout)["exit"], USAGE)


if __name__ == "__main__":
    main()
