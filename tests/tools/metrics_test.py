"""rvget serve --metrics: what Prometheus finds there."""

import re
import socket
import urllib.error
import urllib.request

from support import IO, LIMIT, OK, USAGE, Case, main, pattern, read_line, run, start


class Metrics(Case):
    def serve_metrics(self, *options):
        """A server, the URL of its file and that of its metrics."""
        process = start("serve", self.file("a", pattern(100_000)), "--metrics", "127.0.0.1", *options)
        self.addCleanup(self.end, process)
        told = read_line(process.stderr).decode()
        at = re.fullmatch(r"rvget: metrics at (http://127\.0\.0\.1:\d+/metrics)\n", told)
        self.assertTrue(at, told)
        return process, read_line(process.stdout).decode().split("  ")[0], at.group(1)

    def fetch(self, url):
        with urllib.request.urlopen(url, timeout=LIMIT) as answer:
            self.assertTrue(answer.headers["Content-Type"].startswith("text/plain"))
            return answer.read().decode()

    def value(self, text, name):
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)
        return float(found.group(1)) if found else None

    def test_gets_are_counted_between_two_looks(self):
        _, url, metrics = self.serve_metrics()
        self.assertEqual(self.value(self.fetch(metrics), "rvget_leases_granted_total"), 0)
        self.assertStatus(run("get", url), OK)
        text = self.fetch(metrics)
        self.assertEqual(self.value(text, "rvget_leases_granted_total"), 1)
        self.assertEqual(self.value(text, 'rvget_path_decisions_total{side="owner",path="chunked",reason="no_offer"}'), 1)
        self.assertEqual(self.value(text, "rvget_slots"), 1)

    def test_text_is_what_prometheus_reads(self):
        _, _, metrics = self.serve_metrics()
        for line in self.fetch(metrics).splitlines():
            self.assertRegex(line, r"\A(# (HELP|TYPE) \w+ .+|\w+(\{\w+=\"[^\"]*\"(,\w+=\"[^\"]*\")*\})? \S+)\Z")

    def test_other_paths_and_handles_are_not_there(self):
        _, url, metrics = self.serve_metrics()
        with self.assertRaises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(metrics.replace("/metrics", "/" + url.rsplit("/", 1)[1]), timeout=LIMIT)
        self.assertEqual(caught.exception.code, 404)
        self.assertNotIn(url.rsplit("/", 1)[1], self.fetch(metrics))

    def test_silent_client_holds_up_no_other(self):
        _, _, metrics = self.serve_metrics()
        host, port = re.search(r"//(.+):(\d+)/", metrics).groups()
        with socket.create_connection((host, int(port)), LIMIT):
            self.assertIn("rvget_slots", self.fetch(metrics))

    def test_many_silent_clients_are_sent_away_and_hold_up_no_other_for_long(self):
        process, _, metrics = self.serve_metrics()
        host, port = re.search(r"//(.+):(\d+)/", metrics).groups()
        # More than are served at once; were each left alone for half a minute, this would never end.
        silent = [socket.create_connection((host, int(port)), LIMIT) for _ in range(40)]
        try:
            silent[0].sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
            self.assertIn("rvget_slots", self.fetch(metrics))
            for s in silent:
                while s.recv(4096):
                    pass
        finally:
            for s in silent:
                s.close()
        process.terminate()
        self.assertEqual(self.status_of(process), OK)

    def test_end_by_a_signal_is_as_clean_as_without(self):
        process, _, metrics = self.serve_metrics()
        self.fetch(metrics)
        process.terminate()
        self.assertEqual(self.status_of(process), OK)

    def test_taken_port_is_an_io_error(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            at = "127.0.0.1:%d" % taken.getsockname()[1]
            finished = run("serve", self.file("a", b"x"), "--metrics", at)
        self.assertStatus(finished, IO)
        self.assertIn(at, finished.stderr.decode())
        self.assertEqual(finished.stdout, b"")

    def test_malformed_address_is_a_usage_error(self):
        self.assertOneError(run("serve", self.file("a", b"x"), "--metrics", "127.0.0.1:x"), USAGE, "--metrics")
        self.assertOneError(run("serve", self.file("a", b"x"), "--metrics", "[::1]:0"), USAGE, "--metrics", "IPv4")


if __name__ == "__main__":
    main()
