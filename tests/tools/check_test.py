"""rvget check without RDMA: every way out is valid JSON with its status, and no peer can hold or break either end."""

import json
import os
import signal
import socket
import threading

from support import LIMIT, Case, main, read_line, run, start

RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "check")
GREETING = b'{"schema":"rvget.check-control/1"}\n'


def parsed(finished, schema="rvget.check/1"):
    report = json.loads(finished.stdout)
    assert report["schema"] == schema, report["schema"]
    assert report["exit"] == finished.returncode, (report["exit"], finished.returncode)
    return report


def found(report, name):
    return [f for f in report["findings"] if f["id"] == name]


class Peer:
    """A listener that says what it is told to say, then holds the connection."""

    def __init__(self, case, *answers):
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen()
        self.port = self.listener.getsockname()[1]
        self.over, self.asked = threading.Event(), threading.Event()
        thread = threading.Thread(target=self.serve, args=(answers,), daemon=True)
        thread.start()
        case.addCleanup(self.listener.close)
        case.addCleanup(self.over.set)

    def serve(self, answers):
        connection, _ = self.listener.accept()
        with connection, connection.makefile("rb") as stream:
            for answer in answers:
                stream.readline()
                connection.sendall(answer)
            stream.readline()  # the request that is never answered
            self.asked.set()
            self.over.wait(LIMIT)


class Check(Case):
    def listen(self, *arguments):
        listener = start("check", "--listen", "127.0.0.1", "--port", "0", "--json", *arguments)
        self.addCleanup(self.end, listener)
        line = read_line(listener.stderr).decode()
        self.assertRegex(line, r"listening on port \d+")
        return listener, int(line.split("port ")[1].split(";")[0])

    def test_words_that_are_no_utf8_become_json(self):
        for arguments in (("nowhere\udcff",), ("--self", "--gid", "z\udcff"), ("--observations", "n\udcff")):
            with self.subTest(arguments=arguments):
                finished = run("check", "--json", *arguments)
                finished.stdout.decode()
                parsed(finished)

    def test_peer_that_does_not_listen_is_status_3_and_says_what_to_start(self):
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))  # and does not listen
            report = parsed(run("check", "127.0.0.1", "--port", bound.getsockname()[1], "--json"))
        self.assertEqual(report["exit"], 3)
        self.assertIn("refused", found(report, "path.control")[0]["message"])
        self.assertIn("[127.0.0.1] rvget check --listen", found(report, "path.control")[0]["fix"][0])

    def test_peer_that_is_no_check_is_status_3(self):
        peer = Peer(self, b"SSH-2.0-other\n")
        report = parsed(run("check", "127.0.0.1", "--port", peer.port, "--json"))
        self.assertEqual(report["exit"], 3)
        self.assertIn("no rvget check", found(report, "path.control")[0]["message"])

    def test_peer_of_another_version_is_status_3_and_says_where_to_look(self):
        for greeting in (b'{"schema":"rvget.check-control/2"}\n', b'{"lost":"another version of rvget check"}\n', b'{}\n'):
            peer = Peer(self, greeting)
            report = parsed(run("check", "127.0.0.1", "--port", peer.port, "--json"))
            self.assertEqual(report["exit"], 3, greeting)
            self.assertIn("[127.0.0.1] rvget --version", found(report, "path.version")[0]["fix"])

    def test_peer_that_answers_nonsense_is_status_3(self):
        for nonsense in (b"{}\n", b'{"host":1,"ends":"x"}\n', b"[1]\n", b'{"error":7}\n', b'{"lost":{}}\n',
                         b'{"host":"b","ends":[{"gid":5}],"firewall":"","addresses":{}}\n',
                         b'{"host":"b","ends":[],"firewall":"","addresses":{},"doctor":7}\n',
                         b'{"host":"b","ends":[],"firewall":"","addresses":{},"doctor":[{"id":"$(reboot)"}]}\n'):
            peer = Peer(self, GREETING, nonsense)
            report = parsed(run("check", "127.0.0.1", "--port", peer.port, "--json"))
            self.assertEqual((report["exit"], report["findings"][-1]["id"]), (3, "run.failed"), nonsense)

    def test_out_of_time_is_status_3_with_what_there_is(self):
        peer = Peer(self, GREETING)
        report = parsed(run("check", "127.0.0.1", "--port", peer.port, "--json", "--timeout", "1500"))
        self.assertEqual((report["exit"], report["findings"][-1]["id"]), (3, "run.timeout"))
        # Which step waited, and for whom.
        self.assertIn(f"while waiting for 127.0.0.1:{peer.port} (its devices and GIDs)", report["findings"][-1]["message"])
        self.assertEqual(found(report, "path.control")[0]["outcome"], "pass")

    def test_redacted_report_of_a_wait_names_no_host(self):
        peer = Peer(self, GREETING)
        finished = run("check", "127.0.0.1", "--port", peer.port, "--json", "--redact", "--timeout", "1500")
        self.assertIn("the other end (its devices", found(parsed(finished), "run.timeout")[0]["message"])
        self.assertNotIn(b"127.0.0.1", finished.stdout)

    def test_interrupt_is_status_130_with_what_there_is(self):
        peer = Peer(self, GREETING)
        checker = start("check", "127.0.0.1", "--port", peer.port, "--json")
        self.addCleanup(self.end, checker)
        self.assertTrue(peer.asked.wait(LIMIT))
        checker.send_signal(signal.SIGINT)
        out, _ = checker.communicate(timeout=LIMIT)
        report = json.loads(out)
        self.assertEqual((checker.returncode, report["exit"]), (130, 130))
        self.assertEqual(report["findings"][-1]["id"], "run.interrupted")

    def test_peer_that_takes_the_connection_and_says_nothing_is_named_with_the_step(self):
        for timeout, name in (("1500", "run.timeout"), ("60000", "path.control")):
            with self.subTest(timeout=timeout), socket.socket() as silent:
                silent.bind(("127.0.0.1", 0))
                silent.listen()
                at = f"127.0.0.1:{silent.getsockname()[1]}"
                report = parsed(run("check", at, "--json", "--timeout", timeout))
                message = found(report, name)[0]["message"]
                self.assertEqual(report["exit"], 3)
                self.assertIn(at, message)
                self.assertIn("greet", message)

    def test_peer_that_is_lost_is_named_with_the_step(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            checker = start("check", "127.0.0.1", "--port", port, "--json")
            self.addCleanup(self.end, checker)
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as stream:
                stream.readline()
                connection.sendall(GREETING)
                stream.readline()
            out, _ = checker.communicate(timeout=LIMIT)
        self.assertIn(f"127.0.0.1:{port} (its devices and GIDs): the other end closed the connection",
                      found(json.loads(out), "run.failed")[0]["message"])

    def test_listener_counts_checks_and_not_connections(self):
        listener, port = self.listen("--once")
        for said in (b"GET / HTTP/1.0\n", b"\n", b"", GREETING):  # the last greets and asks nothing
            with socket.create_connection(("127.0.0.1", port), LIMIT) as peer:
                peer.settimeout(LIMIT)
                peer.sendall(said)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(4096):
                    pass
        self.assertIsNone(listener.poll())
        parsed(run("check", "127.0.0.1", "--port", port, "--json"))
        out, _ = listener.communicate(timeout=LIMIT)
        report = json.loads(out)
        self.assertEqual((listener.returncode, report["exit"]), (0, 0))
        self.assertEqual(found(report, "path.control")[0]["message"], "checks served: 1")

    def test_listener_that_nobody_asked_could_not_judge(self):
        report = parsed(run("check", "--listen", "127.0.0.1", "--port", "0", "--json", "--idle", "100"))
        self.assertEqual((report["exit"], report["summary"]["pass"]), (3, 0))
        self.assertEqual(found(report, "path.control")[0]["outcome"], "error")
        told = run("check", "--listen", "127.0.0.1", "--port", "0", "--idle", "100")
        self.assertIn(b"nobody came for a check within 100 ms", told.stdout)

    def test_listener_serves_only_who_gives_its_token(self):
        listener, port = self.listen("--once", "--token", "one two")
        for given in ((), ("--token", "one"), ("--token", "other")):
            report = parsed(run("check", "127.0.0.1", "--port", port, "--json", *given))
            self.assertEqual(report["exit"], 3)
            self.assertIn("--token", found(report, "path.control")[0]["message"])
            self.assertIn("--token WORD", found(report, "path.control")[0]["fix"][0])
        self.assertIsNone(listener.poll())
        report = parsed(run("check", "127.0.0.1", "--port", port, "--json", "--token", "one two"))
        self.assertEqual(found(report, "path.control")[0]["outcome"], "pass")
        self.assertNotIn("one two", json.dumps(report))
        self.assertEqual(self.status_of(listener), 0)

    def test_address_is_printed_so_that_it_can_be_used_again(self):
        with socket.socket(socket.AF_INET6) as bound:
            bound.bind(("::1", 0))  # and does not listen
            port = bound.getsockname()[1]
            for given in ((f"[::1]:{port}",), ("::1", "--port", port), ("[::1]", "--port", port)):
                control = found(parsed(run("check", *given, "--json")), "path.control")[0]
                self.assertEqual((control["subject"], control["fix"][1]), (f"[::1]:{port}", f"rvget check [::1]:{port}"))

    def test_listener_ends_by_signal_with_json(self):
        listener, _ = self.listen()
        listener.send_signal(signal.SIGTERM)
        out, _ = listener.communicate(timeout=LIMIT)
        self.assertEqual((listener.returncode, json.loads(out)["exit"]), (143, 143))

    def test_listener_survives_peers_that_send_nonsense(self):
        _, port = self.listen()
        for nonsense in (b"\n", b"GET / HTTP/1.0\n", GREETING + b'{"ask":"read"}\n', GREETING + b'{"ask":7}\n',
                         GREETING + b'{"ask":"make","end":{},"seed":-1}\n',
                         GREETING + b'{"ask":"udp_open","gid":"127.0.0.1"}\n'
                         b'{"ask":"udp_send","to":"127.0.0.1","port":9,"sizes":[1,0,4294967295]}\n'):
            with socket.create_connection(("127.0.0.1", port), LIMIT) as peer:
                peer.settimeout(LIMIT)
                peer.sendall(nonsense)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(4096):
                    pass
        with socket.create_connection(("127.0.0.1", port), LIMIT) as peer, peer.makefile("rwb") as stream:
            stream.write(GREETING)
            stream.flush()
            self.assertEqual(json.loads(stream.readline())["schema"], "rvget.check-control/1")

    def test_end_without_rdma_is_a_failed_choice_that_points_to_doctor(self):
        nobody = b'{"host":"b","ends":[],"firewall":"open","addresses":{}}\n'
        peer = Peer(self, GREETING, nobody)
        report = parsed(run("check", "127.0.0.1", "--port", peer.port, "--json"))
        self.assertEqual(report["exit"], 2)
        # This end comes first where it has no GID either.
        self.assertRegex(found(report, "path.gid.choice")[0]["fix"][0], r"^\[[^]]+\] rvget doctor$")

    def test_recorded_checks_of_two_hosts_are_judged_as_they_were(self):
        def judged(report):
            return sorted((f["id"], f["outcome"], f["fix"]) for f in report["findings"] if f["id"] != "path.control")
        names = [name for name in os.listdir(RECORDED) if name.endswith(".json")]
        self.assertGreaterEqual(len(names), 6)
        for name in names:
            path = os.path.join(RECORDED, name)
            with open(path, encoding="utf-8") as file:
                before = json.load(file)
            after = parsed(run("check", "--json", "--observations", path))
            self.assertEqual((judged(after), after["exit"]), (judged(before), before["exit"]), name)

    def test_recorded_check_with_a_command_in_a_name_is_refused(self):
        with open(os.path.join(RECORDED, "duplicate_address.json"), encoding="utf-8") as file:
            report = json.load(file)
        report["facts"]["observations"]["a_sees_mac"] = "/{system(\"reboot\")}/"
        forged = self.file("forged", json.dumps(report).encode())
        told = parsed(run("check", "--json", "--observations", forged))
        self.assertEqual((told["exit"], [f["id"] for f in told["findings"]]), (3, ["run.failed"]))
        self.assertIn("a_sees_mac: this cannot be the name", told["findings"][0]["message"])

    def test_path_that_is_not_as_expected_is_status_2(self):
        path = os.path.join(RECORDED, "nothing_wrong.json")
        for wanted, outcome, status in ((b'{"mtu_bytes": 9000, "gid_family": "IPv4"}', "pass", 0),
                                        (b'{"mtu_bytes": 4200}', "fail", 2),
                                        (b'{"gid_family": "IPv6"}', "fail", 2),
                                        (b'{"bandwidth_mbps": 4000000000}', "fail", 2),
                                        (b'{"devices": 1}', "skip", 0)):
            with self.subTest(wanted=wanted):
                report = parsed(run("check", "--json", "--observations", path, "--expect", self.file("expect", wanted)))
                self.assertEqual(([f["outcome"] for f in found(report, "path.expected")], report["exit"]),
                                 ([outcome], status))
        self.assertEqual(found(parsed(run("check", "--json", "--observations", path)), "path.expected"), [])
        self.assertOneError(run("check", "a", "--expect", self.file("expect", b'{"mtu": 9000}')), 64, "'mtu'", "mtu_bytes")

    def test_redacted_report_is_judged_alike_and_names_no_host(self):
        path = os.path.join(RECORDED, "lab_fault_wrong_gid_index.json")
        plain, redacted = (run("check", "--json", "--observations", path, *more) for more in ((), ("--redact",)))
        self.assertIn(b"rvget-a", plain.stdout)
        self.assertNotIn(b"rvget-a", redacted.stdout)
        self.assertNotIn(b"fe80::ff:fe00:a", redacted.stdout)
        self.assertEqual([f["id"] for f in parsed(plain)["findings"]], [f["id"] for f in parsed(redacted)["findings"]])

    def test_only_selects_findings(self):
        path = os.path.join(RECORDED, "long_packets_lost_towards_a.json")
        self.assertEqual(run("check", "--observations", path).returncode, 2)
        self.assertEqual(run("check", "--observations", path, "--only", "path.link_layer").returncode, 0)

    def test_wrong_usage_is_status_64_and_json_too(self):
        for wrong in ([], ["a", "b"], ["--self", "a"], ["a", "--mtu", "1000"], ["a", "--gid", "256"],
                      ["a", "--frobnicate"], ["--explain", "no.such"], ["a", "--only", "mtu.bogus"],
                      ["a", "--token", ""], ["a", "--token", "x" * 257], ["a:1", "--port", "1"],
                      *(["a", "--port", port] for port in ("0", "70000", "x", "", "-1", "1x")),
                      *([address] for address in ("a:0", "a:70000", "a:x", "a:", ":1", "[::1]:0", "[::1]x", "[::1]:",
                                                  "[]:1", "[::1")),
                      ["a", "--once"], ["--self", "--idle", "5"],
                      ["--listen", "--port", "70000"], ["--listen", "127.0.0.1:70000"], ["--listen", "127.0.0.1:x"]):
            finished = run("check", "--json", *wrong)
            self.assertEqual(finished.returncode, 64, wrong)
            self.assertEqual(parsed(finished, "rvget.error/1")["code"], "usage")

    def test_findings_can_be_explained(self):
        explained = json.loads(run("check", "--json", "--explain", "mtu.path.reverse").stdout)
        self.assertEqual(explained["id"], "mtu.path.reverse")


if __name__ == "__main__":
    main()
