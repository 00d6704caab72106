"""rvget serve: what it takes, what it prints, and how it ends."""

import json
import os
import signal
import socket
import subprocess

from support import (COMMAND, IO, LIMIT, MIB, OK, REFUSED, CONNECTION, USAGE, Case, Proxy, main, pattern, run, split,
                     start)


class Printing(Case):
    def test_one_line_for_each_file_in_order(self):
        names = ["b", "a", "with  blanks"]
        files = [self.file(name, name.encode()) for name in names]
        _, printed = self.serve(*files, lines=3)
        for name, line in zip(names, printed):
            url, _, shown = line.partition("  ")
            self.assertEqual(shown, self.path(name))
            self.assertEqual(run("get", url).stdout, name.encode())
        self.assertEqual(len({line.split()[0] for line in printed}), 3)

    def test_json_objects_parse(self):
        files = [self.file("a", b"abc"), self.file("empty", b"")]
        _, printed = self.serve(*files, "--json", lines=2)
        for path, size, line in zip(files, (3, 0), printed):
            told = json.loads(line)
            self.assertEqual((told["schema"], told["file"], told["bytes"]), ("rvget.serve/1", path, size))
            self.assertFalse(told["pinned"])
            self.assertEqual(told["why_plain"], "zero_length" if size == 0 else "kill_switch")
            self.assertEqual(run("get", told["url"]).stdout, self.content(path))

    def test_names_forge_no_line_and_are_json(self):
        # A line feed, a terminal's command, and a byte that is no UTF-8; "é" stays as it is.
        for name, shown in ((b"a\nb", "a\\x0ab"), (b"\x1b[2J", "\\x1b[2J"), (b"\xff", "\\xff"), ("é".encode(), "é"),
                            (b"\xc2\x9b", "\\xc2\\x9b")):
            with self.subTest(name=name):
                path = self.file(os.fsdecode(name), b"abc")
                _, printed = self.serve(path, lines=1)
                self.assertTrue(printed[0].endswith("/" + shown), printed[0])
                _, printed = self.serve(path, "--json", lines=1)
                self.assertTrue(json.loads(printed[0])["file"].endswith("/" + shown))
                url = json.loads(printed[0])["url"]
                got = run("get", url, "-o", path + "2", "--json")
                self.assertTrue(json.loads(got.stdout)["file"].endswith("/" + shown + "2"))

    def test_no_pin_is_plain_by_choice(self):
        _, printed = self.serve(self.file("a", b"abc"), "--no-pin", "--json")
        self.assertEqual(json.loads(printed[0])["why_plain"], "plain")

    def test_standard_error_says_what_is_served_and_why_rdma_is_off(self):
        process, _ = self.serve(self.file("a", b"abc"), stderr=subprocess.PIPE)
        process.terminate()
        _, told = process.communicate(timeout=LIMIT)
        self.assertRegex(told, rb"\Arvget: serving 1 file, 3 B, on 127\.0\.0\.1:\d+; rdma off: kill_switch")

    def test_contract_6_4_handles_are_never_in_the_log(self):
        process, url = self.serve_url(self.file("a", pattern(MIB)), "--log-level", "trace", stderr=subprocess.PIPE)
        _, _, owner, slot = split(url)
        got = run("get", url, "-o", self.path("out"), "--log-level", "trace")
        self.assertStatus(got, OK)
        process.terminate()
        _, told = process.communicate(timeout=LIMIT)
        for half in (owner, slot):
            self.assertNotIn(half.encode(), told + got.stderr + got.stdout)
            self.assertNotIn(str(int(half, 16)).encode(), told + got.stderr + got.stdout)

    def test_full_disk_for_the_urls_is_an_io_error(self):
        with open("/dev/full", "wb") as full:
            finished = run("serve", self.file("a", b"abc"), stdout=full)
        self.assertStatus(finished, IO)
        self.assertIn(b"standard output", finished.stderr)


class Taking(Case):
    def refused(self, path, *words):
        finished = run("serve", self.file("good", b"x"), path)
        self.assertOneError(finished, IO, *words)
        self.assertEqual(finished.stdout, b"", "every file is served, or none")

    def test_missing_file_is_an_io_error(self):
        self.refused(self.path("missing"), self.path("missing"), "No such file")

    def test_directory_is_an_io_error(self):
        self.refused(self.directory, self.directory, "is a directory")

    def test_fifo_is_an_io_error_and_does_not_block(self):
        os.mkfifo(self.path("fifo"))
        self.refused(self.path("fifo"), self.path("fifo"), "is a FIFO", "standard input")

    def test_device_is_an_io_error(self):
        self.refused("/dev/zero", "/dev/zero", "is a character device")

    def test_socket_is_an_io_error(self):
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(self.path("socket"))
            self.refused(self.path("socket"), self.path("socket"))

    def test_unreadable_file_is_an_io_error(self):
        path = self.file("secret", b"x")
        os.chmod(path, 0)
        # Root reads all, unless the capabilities for that are taken away.
        without = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
        finished = subprocess.run([*without, COMMAND, "serve", path], capture_output=True, timeout=LIMIT, check=False)
        self.assertOneError(finished, IO, path, "Permission denied")

    def test_file_that_has_fewer_bytes_than_its_size_is_an_io_error(self):
        # A file of sysfs says 4096 and ends earlier: just what a file does that shrinks meanwhile.
        path = next(p for p in ("/sys/kernel/uevent_seqnum", "/sys/kernel/profiling", "/sys/kernel/fscaps",
                                "/sys/class/net/lo/mtu")
                    if os.path.exists(p) and len(self.content(p)) < os.stat(p).st_size)
        finished = run("serve", path)
        self.assertOneError(finished, IO, path, "it shrank to", str(os.stat(path).st_size))
        self.assertEqual(finished.stdout, b"")

    def test_file_that_has_more_bytes_than_its_size_is_an_io_error(self):
        # A file of proc says 0 and has more: just what a file does that grows meanwhile.
        self.assertEqual(os.stat("/proc/version").st_size, 0)
        self.assertOneError(run("serve", "/proc/version"), IO, "/proc/version", "it grew", "0 bytes")

    def test_file_that_changes_or_vanishes_afterwards_is_served_as_it_was(self):
        data = pattern(2 * MIB)
        shrunk, gone, changed = (self.file(name, data) for name in ("shrunk", "gone", "changed"))
        _, printed = self.serve(shrunk, gone, changed, lines=3)
        os.truncate(shrunk, 10)
        os.unlink(gone)
        self.file("changed", b"else" * 1000)
        for line in printed:
            finished = run("get", line.split("  ")[0])
            self.assertStatus(finished, OK)
            self.assertEqual(finished.stdout, data)

    def test_standard_input_is_staged_whole(self):
        for size in (0, 1, 64 << 10, 3 * MIB + 1):
            with self.subTest(size=size):
                with open(self.file("in", pattern(size)), "rb") as stream:
                    _, url = self.serve_url("-", stdin=stream)
                self.assertEqual(run("get", url).stdout, pattern(size))

    def test_standard_input_from_a_pipe_is_staged_whole(self):
        data = pattern(MIB + 1)
        process = start("serve", "-", stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(self.end, process)
        process.stdin.write(data[:1000])
        process.stdin.write(data[1000:])
        process.stdin.close()
        process.stdin = None
        line = process.stdout.readline().decode()
        self.assertTrue(line.endswith("  standard input\n"))
        self.assertEqual(run("get", line.split("  ")[0]).stdout, data)

    def test_signal_ends_the_wait_for_standard_input(self):
        reading, writing = os.pipe()
        process = start("serve", "-", stdin=reading)
        self.addCleanup(self.end, process)
        os.close(reading)
        # Read at least once: it is in the loop then, and has its signals blocked.
        os.write(writing, pattern(1 << 16))
        os.set_blocking(writing, True)
        os.write(writing, pattern(1 << 16))
        process.terminate()
        self.assertEqual(self.status_of(process), 128 + signal.SIGTERM)
        os.close(writing)

    def test_standard_input_twice_is_a_usage_error(self):
        self.assertOneError(run("serve", "-", "-"), USAGE, "standard input")

    def test_no_file_is_a_usage_error(self):
        self.assertOneError(run("serve"), USAGE, "no file")

    def test_wrong_values_of_options_are_usage_errors(self):
        path = self.file("a", b"x")
        for option, value in (("--budget", "much"), ("--arena", "1Q"), ("--rdma-min", "-1"),
                              ("--lease-timeout", "1s"), ("--lease-timeout", "5"), ("--wireup-wait", "x"),
                              ("--lease-keys", "weakest"), ("--handshake-timeout", "0"), ("--advertise", "a b"),
                              ("--advertise", "a/b")):
            with self.subTest(option=option, value=value):
                finished = run("serve", path, f"{option}={value}")
                self.assertOneError(finished, USAGE, option)

    def test_options_that_do_not_go_together_are_named_as_the_command_has_them(self):
        path = self.file("a", b"x")
        for options, said in ((("--arena", "100"), "--arena is 100 and at least 4096"),
                              (("--budget", "100"), "--budget is 100 and at least --arena, 4096"),
                              (("--arena", "2M", "--budget", "1M"), "--budget is 1048576 and at least --arena, 2097152"),
                              (("--arena", "2G"), "--budget is 1073741824 and at least --arena, 2147483648"),
                              (("--tls-cert", "x"), "--tls-cert, --tls-key and --tls-ca: give all"),
                              (("--tls-peer", "x"), "--tls-peer is given without --tls-cert, --tls-key and --tls-ca")):
            with self.subTest(options=options):
                finished = run("serve", path, *options)
                self.assertOneError(finished, USAGE, said)
                self.assertNotRegex(finished.stderr.decode(), r"[a-z]_[a-z]")


class Listening(Case):
    def listening_on(self, *arguments):
        """The URL, and what was said on standard error."""
        process, url = self.serve_url(self.file("a", b"abc"), *arguments, stderr=subprocess.PIPE)
        self.assertEqual(run("get", url.replace("rvget://nowhere.example:", "rvget://127.0.0.1:")).stdout, b"abc")
        process.terminate()
        _, told = process.communicate(timeout=LIMIT)
        return split(url), told.decode()

    def test_contract_6_5_default_is_loopback_and_a_free_port_without_a_warning(self):
        (host, port, _, _), told = self.listening_on()
        self.assertEqual(host, "127.0.0.1")
        self.assertGreater(port, 1023)
        self.assertNotIn("WARNING", told)

    def test_given_port_is_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        (_, taken, _, _), _ = self.listening_on("--listen", f"127.0.0.1:{port}")
        self.assertEqual(taken, port)

    def test_host_name_and_port_zero_are_understood(self):
        for text in ("127.0.0.1:0", "127.0.0.2", "127.0.0.2:0"):
            with self.subTest(listen=text):
                (host, _, _, _), told = self.listening_on("--listen", text)
                self.assertEqual(host, text.split(":")[0])
                self.assertNotIn("WARNING", told)

    def test_ipv6_loopback_is_bracketed(self):
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError as error:
            self.skipTest(f"no IPv6 loopback here: {error}")
        for text in ("[::1]", "[::1]:0", "::1"):
            (host, _, _, _), told = self.listening_on("--listen", text)
            self.assertEqual(host, "[::1]")
            self.assertNotIn("WARNING", told)

    def test_contract_6_5_all_addresses_warns_loudly_and_prints_a_host_that_works(self):
        (host, _, _, _), told = self.listening_on("--listen", "0.0.0.0", "--advertise", "nowhere.example")
        self.assertEqual(host, "nowhere.example")
        self.assertRegex(told, r"\Arvget: WARNING: open without authentication on 0\.0\.0\.0:\d+")

    def test_all_addresses_prints_the_name_of_the_machine(self):
        _, url = self.serve_url(self.file("a", b"abc"), "--listen", "0.0.0.0")
        self.assertEqual(split(url)[0], socket.gethostname())

    def test_port_in_use_is_an_io_error(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
            finished = run("serve", self.file("a", b"x"), "--listen", f"127.0.0.1:{port}")
        self.assertOneError(finished, IO, f"127.0.0.1:{port}", "in use")

    def test_malformed_address_is_a_usage_error(self):
        for text in ("", ":1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "[::1", "[::1]x", "a b", "::1:x"):
            with self.subTest(listen=text):
                self.assertOneError(run("serve", self.file("a", b"x"), f"--listen={text}"), USAGE, "--listen")

    def test_address_of_another_machine_is_an_io_error(self):
        self.assertOneError(run("serve", self.file("a", b"x"), "--listen", "192.0.2.1"), IO, "192.0.2.1")


class Ending(Case):
    def test_signal_ends_it_with_success(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(signal=number.name):
                process, _ = self.serve(self.file("a", b"abc"))
                process.send_signal(number)
                self.assertEqual(self.status_of(process), OK)

    def test_signal_during_a_get_ends_both(self):
        server, url = self.serve_url(self.file("a", pattern(16 * MIB)))
        proxy = Proxy(url, 2 * MIB)
        self.addCleanup(proxy.close)
        os.mkdir(self.path("to"))
        getting = start("get", proxy.url, "-o", self.path("to/out"))
        self.addCleanup(self.end, getting)
        self.assertTrue(proxy.stalled.wait(LIMIT))
        server.terminate()
        self.assertEqual(self.status_of(server), OK)
        self.assertIn(self.status_of(getting), (REFUSED, CONNECTION))
        self.assertEqual(self.names(self.path("to")), [])

    def test_get_after_the_end_is_a_connection_error(self):
        process, url = self.serve_url(self.file("a", b"abc"))
        process.terminate()
        self.assertEqual(self.status_of(process), OK)
        self.assertOneError(run("get", url), CONNECTION, "refused")

    def test_restart_on_the_same_port_is_another_owner(self):
        path = self.file("a", b"abc")
        first, url = self.serve_url(path)
        first.terminate()
        self.assertEqual(self.status_of(first), OK)
        self.serve(path, "--listen", f"127.0.0.1:{split(url)[1]}")
        self.assertOneError(run("get", url), 3, "another owner")


if __name__ == "__main__":
    main()
