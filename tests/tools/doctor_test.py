"""rvget doctor and rvget list: recorded machines, broken trees, and valid JSON on every way out."""

import json
import os
import signal

from support import LIMIT, Case, main, run, start

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures")
HEALTHY = os.path.join(FIXTURES, "healthy.json")
RXE = os.path.join(FIXTURES, "rxe.json")


def parsed(finished, schema="rvget.doctor/1"):
    report = json.loads(finished.stdout)
    assert report["schema"] == schema, report["schema"]
    assert report["exit"] == finished.returncode, (report["exit"], finished.returncode)
    return report


def outcomes(report):
    return {(f["id"], f["subject"]): f["outcome"] for f in report["findings"]}


class Doctor(Case):
    def facts(self, change):
        with open(HEALTHY, encoding="utf-8") as file:
            machine = json.load(file)
        change(machine)
        return self.file("facts", json.dumps(machine).encode())

    def test_recorded_machine_is_judged_the_same_anywhere(self):
        report = parsed(run("doctor", "--json", "--facts", RXE))
        self.assertEqual([v["usable"] for v in report["facts"]["verdicts"]], [True])
        self.assertEqual(outcomes(report)["self.loop", "rxe0/1"], "pass")

    def test_this_machine_gives_json_with_a_verdict(self):
        finished = run("doctor", "--json", "--timeout", "30000")
        report = parsed(finished)
        self.assertIn(finished.returncode, (0, 2))
        self.assertTrue(report["facts"]["verdicts"])
        self.assertEqual(sum(report["summary"].values()), len(report["findings"]))

    def test_path_of_each_device_is_told_with_the_reason_why_no_other(self):
        def direct(machine):
            machine["devices"][0]["fast_path"] = "mlx5"
            machine["devices"][1]["fast_path"] = "verbs"
            machine["devices"][1]["fast_path_detail"] = "MLX5_QP_SIGNATURE is set"
        facts = self.facts(direct)
        told = parsed(run("doctor", "--json", "--facts", facts))["facts"]["rendezvous"]
        self.assertEqual([(d["fast_path"], d["fast_path_detail"]) for d in told[:2]],
                         [("mlx5", ""), ("verbs", "MLX5_QP_SIGNATURE is set")])
        # Recorded before there was a choice.
        told = parsed(run("doctor", "--json", "--facts", HEALTHY))["facts"]["rendezvous"]
        self.assertEqual({d["fast_path"] for d in told}, {"verbs"})

    def test_down_port_is_status_2_with_the_command_that_mends_it(self):
        def down(machine):
            machine["devices"][0]["ports"][0]["state"] = "DOWN"
        finished = run("doctor", "--facts", self.facts(down))
        self.assertEqual(finished.returncode, 2)
        self.assertIn(b"mlx5_0/1: NOT usable: port is DOWN", finished.stdout)
        self.assertIn(b"fix: ip link set eth0 up", finished.stdout)
        self.assertIn(b"mlx5_1/1: usable for RDMA", finished.stdout)

    def test_what_people_read_is_lines(self):
        def down(machine):
            machine["devices"][0]["ports"][0]["state"] = "DOWN"
        text = run("doctor", "--facts", self.facts(down)).stdout.decode()
        self.assertNotIn("\\x0a", text)
        self.assertRegex(text.splitlines()[0], r"^PORT +STATE")

    def test_strict_and_nagios_make_warnings_status_1(self):
        def slow(machine):
            machine["host"]["governor"] = "powersave"
        facts = self.facts(slow)
        self.assertEqual(run("doctor", "--facts", facts).returncode, 0)
        self.assertEqual(run("doctor", "--facts", facts, "--strict").returncode, 1)
        finished = run("doctor", "--facts", facts, "--nagios")
        self.assertEqual(finished.returncode, 1)
        self.assertRegex(finished.stdout, rb"\ARVGET WARNING - env.governor [^\n]*\n\Z")
        self.assertEqual(run("doctor", "--facts", facts, "--strict", "--skip", "env.governor").returncode, 0)

    def test_only_selects_ids_and_groups(self):
        report = parsed(run("doctor", "--json", "--facts", HEALTHY, "--only", "gid,net.up"))
        groups = {f["id"].split(".")[0] for f in report["findings"]}
        self.assertEqual(groups, {"gid", "net"})
        # All that was asked for is skipped: nothing could be judged.
        self.assertEqual(run("doctor", "--facts", HEALTHY, "--only", "dev.count").returncode, 3)

    def test_words_that_select_nothing_are_a_usage_error_that_names_the_choice(self):
        for option in ("--only", "--skip"):
            for words, choice in (("bogus", "cnt, dev, env, gid, "), ("net,gid.bogus", "gid.any, gid.cm_mode, "),
                                  ("gid.", "gid.any"), ("net,,gid", "groups"), ("", "groups")):
                with self.subTest(option=option, words=words):
                    self.assertOneError(run("doctor", option, words), 64, option, choice)
        # What is there in some runs only is no mistake.
        self.assertStatus(run("doctor", "--facts", HEALTHY, "--skip", "run.timeout,net"), 0)

    def test_baseline_that_is_no_report_of_doctors_is_a_usage_error(self):
        report = json.loads(run("doctor", "--json", "--facts", HEALTHY).stdout)
        for name, content in (("empty", b""), ("text", b"OK\n"), ("number", b"7"), ("object", b"{}"),
                              ("facts", self.content(HEALTHY)),
                              ("other", json.dumps({**report, "schema": "rvget.check/1"}).encode()),
                              ("list", json.dumps({**report, "findings": {}}).encode()),
                              ("words", json.dumps({**report, "findings": ["gid.any"]}).encode()),
                              ("half", json.dumps({**report, "findings": [{"id": "gid.any"}]}).encode())):
            with self.subTest(name=name):
                finished = run("doctor", "--facts", HEALTHY, "--baseline", self.file(name, content))
                self.assertOneError(finished, 64, "--baseline", name)
        self.assertOneError(run("doctor", "--baseline", self.directory), 64, "directory")

    def test_expectation_that_is_none_is_a_usage_error_without_words_of_a_parser(self):
        for content, words in ((b'{"device": 8}', ("'device'", "devices, rate_mbps, ")),
                               (b'{"devices": "8"}', ("devices: this must be a whole number from 0 to ",)),
                               (b'{"devices": -1}', ("devices: this must be a whole number from 0 to ",)),
                               (b'{"devices": 1.5}', ("devices: this must be a whole number from 0 to ",)),
                               (b'{"pci": "0000:3b:00.0"}', ("pci: this must be a list",)),
                               (b'{"firmware": [28]}', ("firmware: this must be a string",)),
                               (b'{"gid_family": "ipv4"}', ("gid_family: this must be IPv4 or IPv6",)),
                               (b'[]', ("this must be an object",)), (b'{', ("is not JSON",))):
            with self.subTest(content=content):
                finished = run("doctor", "--facts", HEALTHY, "--expect", self.file("expect", content))
                self.assertOneError(finished, 64, "--expect", *words)
                self.assertNotIn(b"boost", finished.stderr)

    def test_expectation_missed_is_status_2(self):
        expect = self.file("expect", b'{"devices": 8}')
        report = parsed(run("doctor", "--json", "--facts", HEALTHY, "--expect", expect))
        self.assertEqual(outcomes(report)["dev.count", "host"], "fail")
        self.assertEqual(report["exit"], 2)

    def test_baseline_leaves_only_changes(self):
        def slow(machine):
            machine["host"]["governor"] = "powersave"
        before = run("doctor", "--json", "--facts", HEALTHY)
        baseline = self.file("baseline", before.stdout)
        report = parsed(run("doctor", "--json", "--facts", self.facts(slow), "--baseline", baseline))
        self.assertEqual([(f["id"], f["outcome"]) for f in report["findings"]], [("env.governor", "warn")])
        same = parsed(run("doctor", "--json", "--facts", HEALTHY, "--baseline", baseline))
        self.assertEqual([f["id"] for f in same["findings"]], ["run.baseline"])

    def test_saved_and_redacted_facts_can_be_read_again(self):
        saved = self.path("saved")
        self.assertEqual(run("doctor", "--facts", HEALTHY, "--save", saved, "--redact").returncode, 0)
        self.assertNotIn(b"10.0.0.1", self.content(saved))
        self.assertEqual(run("doctor", "--facts", saved).returncode, 0)

    def test_every_finding_can_be_explained(self):
        ids = {f["id"] for f in parsed(run("doctor", "--json", "--facts", HEALTHY))["findings"]}
        self.assertGreater(len(ids), 80)
        for one in sorted(ids):
            finished = run("doctor", "--explain", one, "--json")
            self.assertStatus(finished, 0)
            self.assertEqual(json.loads(finished.stdout)["id"], one)

    def broken(self, make):
        root = self.path("root")
        os.makedirs(os.path.join(root, "sys/class"))
        make(root)
        finished = run("doctor", "--json", "--sysroot", root, "--timeout", "2000")
        report = parsed(finished)
        self.assertEqual(finished.returncode, 2)
        self.assertNotIn("run.timeout", {f["id"] for f in report["findings"]})
        return report["facts"]["verdicts"][0]

    def test_tree_without_rdma_says_so_within_two_seconds(self):
        self.assertEqual(self.broken(lambda root: None)["id"], "env.core")

    def test_class_that_is_a_loop_is_unreadable(self):
        def loop(root):
            os.symlink("infiniband", os.path.join(root, "sys/class/infiniband"))
        verdict = self.broken(loop)
        self.assertEqual(verdict["id"], "env.core")
        self.assertIn("cannot be read", verdict["reason"])

    def test_device_of_junk_truncated_and_blocking_files_has_a_first_cause(self):
        def junk(root):
            port = os.path.join(root, "sys/class/infiniband/bad0/ports/1")
            os.makedirs(os.path.join(port, "gids"))
            os.makedirs(os.path.join(port, "hw_counters"))
            for name, content in (("state", b"\xff\x00\x01" * 1000), ("rate", b"1e999 Gb/sec"), ("link_layer", b""),
                                  ("phys_state", b"5: "), ("lid", b"0x"), ("gids/0", b"fe80:0000:"),
                                  ("gids/x", b"fe80::1"), ("hw_counters/n", b"99999999999999999999999")):
                with open(os.path.join(port, name), "wb") as file:
                    file.write(content)
            os.mkfifo(os.path.join(root, "sys/class/infiniband/bad0/node_guid"))
            os.makedirs(os.path.join(root, "sys/class/infiniband/bad0/fw_ver"))
        verdict = self.broken(junk)
        self.assertEqual(verdict["subject"], "bad0/1")
        self.assertEqual(verdict["id"], "env.uverbs")

    def test_unprivileged_process_without_capabilities_gets_its_verdict(self):
        finished = run("doctor", "--json", preexec_fn=lambda: (os.setgid(65534), os.setuid(65534)) if os.getuid() == 0 else None)
        self.assertTrue(parsed(finished)["facts"]["verdicts"])

    def test_wrong_usage_is_status_64_and_json_too(self):
        for wrong in (["--frobnicate"], ["--timeout", "soon"], ["--explain", "no.such"], ["--expect", "/nonexistent"],
                      ["--facts", HEALTHY, "--watch", "1"], ["--baseline", "/nonexistent"],
                      ["--save", "/nonexistent/facts"], ["--save", self.directory]):
            finished = run("doctor", "--json", *wrong)
            self.assertEqual(finished.returncode, 64, wrong)
            self.assertEqual(parsed(finished, "rvget.error/1")["code"], "usage")

    def test_facts_that_are_none_are_status_3_with_the_cause(self):
        finished = run("doctor", "--json", "--facts", self.file("bad", b"{\"host\": 7}"))
        report = parsed(finished)
        self.assertEqual(finished.returncode, 3)
        self.assertEqual(report["findings"][-1]["id"], "run.failed")
        self.assertIn("host", report["findings"][-1]["message"])

    def test_out_of_time_is_status_3_with_what_there_is(self):
        finished = run("doctor", "--json", "--watch", "60", "--timeout", "1500")
        report = parsed(finished)
        self.assertEqual(finished.returncode, 3)
        self.assertEqual(report["findings"][-1]["id"], "run.timeout")

    def test_interrupt_is_status_130_with_what_there_is(self):
        doctor = start("doctor", "--json", "--watch", "60", "--timeout", "60000")
        self.addCleanup(doctor.kill)
        # From the moment that the signals are blocked the kernel shows them so.
        while True:
            with open(f"/proc/{doctor.pid}/status", encoding="ascii") as status:
                blocked = [line for line in status if line.startswith("SigBlk")][0]
            if int(blocked.split()[1], 16) & (1 << (signal.SIGINT - 1)):
                break
        doctor.send_signal(signal.SIGINT)
        out, _ = doctor.communicate(timeout=LIMIT)
        report = json.loads(out)
        self.assertEqual((doctor.returncode, report["exit"]), (130, 130))
        self.assertEqual(report["findings"][-1]["id"], "run.interrupted")


class List(Case):
    def test_list_shows_ports_and_ranked_gids(self):
        finished = run("list", "--facts", HEALTHY)
        self.assertStatus(finished, 0)
        lines = finished.stdout.decode().splitlines()
        self.assertRegex(lines[1], r"^mlx5_0/1 +ACTIVE +400G +eth0 +9000 +4096 +mlx5")
        self.assertRegex(lines[2], r"^  gid 3 +RoCE v2 +10\.0\.0\.1 +eth0 +IPv4$")
        ports = parsed(run("list", "--json", "--facts", HEALTHY), "rvget.list/1")["ports"]
        self.assertEqual([p["device"] for p in ports], ["mlx5_0", "mlx5_1", "mlx5_2"])
        self.assertEqual(ports[0]["gids"][0]["index"], 3)

    def test_list_without_devices_points_to_doctor(self):
        root = self.path("root")
        os.makedirs(root)
        self.assertIn(b"rvget doctor", run("list", "--sysroot", root).stdout)
        self.assertEqual(parsed(run("list", "--json", "--sysroot", root), "rvget.list/1")["ports"], [])


if __name__ == "__main__":
    main()
