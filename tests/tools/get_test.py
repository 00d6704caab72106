"""rvget get: what it fetches, what it says, and what it leaves behind when it fails."""

import json
import os
import pty
import select
import signal
import socket
import stat
import subprocess
import threading
import time

from support import (COMMAND, CONNECTION, DEADLINE, IO, LIMIT, MIB, NOT_FOUND, OK, PATH, RANGE, USAGE, Case, Proxy,
                     main, other_half, pattern, run, split, start, values)

SIZES = (0, 1, 4095, 4096, 4097, 64 << 10, MIB + 4097, 64 * MIB)


class Fetching(Case):
    def test_every_size_arrives_whole(self):
        files = [self.file(f"in-{size}", pattern(size)) for size in SIZES]
        _, printed = self.serve(*files, lines=len(files))
        for size, line in zip(SIZES, printed):
            with self.subTest(size=size):
                out = self.path("out")
                finished = run("get", line.split("  ")[0], "-o", out)
                self.assertStatus(finished, OK)
                self.assertEqual(self.content(out), pattern(size))
                result = values(finished.stdout)
                self.assertEqual(result["bytes"], str(size))
                self.assertEqual(result["path"], "inline" if size <= 4096 else "chunked")
                self.assertEqual(result["reason"], "kill_switch")
                self.assertEqual(finished.stderr, b"")
                os.unlink(out)

    def test_without_kill_switch_says_not_configured_or_ran_by_rdma(self):
        environment = {k: v for k, v in os.environ.items() if k != "RVGET_RDMA_DISABLE"}
        _, url = self.serve_url(self.file("in", pattern(MIB)), env=environment)
        finished = run("get", url, "-o", self.path("out"), env=environment)
        self.assertStatus(finished, OK)
        result = values(finished.stdout)
        self.assertIn((result["path"], result["reason"]), [("chunked", "not_configured"), ("rdma", "ok")])
        self.assertEqual(result["device"] == "-", result["path"] == "chunked")

    def test_unknown_mlx5_path_is_ignored_with_a_warning(self):
        _, url = self.serve_url(self.file("in", pattern(5000)))
        for value, said in (("verbs_qp", b""), ("fast", b"RVGET_MLX5=fast action=ignored")):
            with self.subTest(value=value):
                finished = run("get", url, "-o", self.path("out"), env=dict(os.environ, RVGET_MLX5=value))
                self.assertStatus(finished, OK)
                self.assertIn(said, finished.stderr)
                self.assertEqual(bool(finished.stderr), bool(said))

    def test_wireup_is_an_option_and_a_variable(self):
        _, url = self.serve_url(self.file("in", pattern(5000)))
        for value in ("auto", "exchange", "cm"):
            with self.subTest(value=value):
                self.assertStatus(run("get", url, "-o", self.path("out"), "--wireup", value), OK)
        finished = run("get", url, "-o", self.path("out"), "--wireup", "fast")
        self.assertStatus(finished, USAGE)
        self.assertIn(b"--wireup 'fast' is not auto, exchange or cm", finished.stderr)
        finished = run("get", url, "-o", self.path("out"), env=dict(os.environ, RVGET_WIREUP="fast"))
        self.assertStatus(finished, OK)
        self.assertIn(b"RVGET_WIREUP=fast action=ignored", finished.stderr)

    def test_segments_of_any_size_give_the_same_bytes(self):
        size = 3 * MIB + 5
        _, url = self.serve_url(self.file("in", pattern(size)))
        for segment in ("0", "4096", "64K", "1M", "100M"):
            with self.subTest(segment=segment):
                finished = run("get", url, "-o", self.path("out"), "--segment", segment, "--json")
                self.assertStatus(finished, OK)
                self.assertEqual(self.content(self.path("out")), pattern(size))

    def test_ranges_at_both_ends_are_exact(self):
        size = MIB + 4097
        whole = pattern(size)
        _, url = self.serve_url(self.file("in", whole))
        for text, wanted in (("0-0", whole[:1]), ("0-4999", whole[:5000]), ("5-9", whole[5:10]), ("0-", whole),
                             (f"{size - 1}-", whole[-1:]), (f"{size - 5000}-{size - 1}", whole[-5000:]),
                             (f"0-{size - 1}", whole), ("4096-1048575", whole[4096:MIB])):
            with self.subTest(range=text):
                finished = run("get", url, "--range", text)
                self.assertStatus(finished, OK)
                self.assertEqual(finished.stdout, wanted)

    def test_range_past_the_end_is_refused(self):
        size = 10000
        _, url = self.serve_url(self.file("in", pattern(size)))
        for text in (f"{size}-", f"0-{size}", f"{size}-{size}", "18446744073709551614-"):
            with self.subTest(range=text):
                finished = run("get", url, "-o", self.path("out"), "--range", text)
                self.assertOneError(finished, RANGE, text.split("-")[0])
                self.assertEqual(self.names(), ["in"])

    def test_range_of_nothing_is_the_whole_of_it(self):
        _, url = self.serve_url(self.file("in", b""))
        self.assertEqual(run("get", url, "--range", "0-").stdout, b"")
        self.assertOneError(run("get", url, "--range", "0-0"), RANGE)

    def test_malformed_range_is_a_usage_error(self):
        _, url = self.serve_url(self.file("in", b"x"))
        for text in ("5", "9-5", "-5", "a-b", "1-2-3", "", "1-18446744073709551615", "99999999999999999999-"):
            with self.subTest(range=text):
                self.assertOneError(run("get", url, f"--range={text}"), USAGE, "--range")

    def test_policy_never_pulls_chunks_and_says_so(self):
        _, url = self.serve_url(self.file("in", pattern(MIB)))
        finished = run("get", url, "-o", self.path("out"), "--policy", "never")
        self.assertStatus(finished, OK)
        result = values(finished.stdout)
        self.assertEqual((result["path"], result["reason"]), ("chunked", "policy"))

    def test_policy_require_without_rdma_has_a_status_of_its_own(self):
        _, url = self.serve_url(self.file("in", pattern(MIB)))
        finished = run("get", url, "-o", self.path("out"), "--policy", "require")
        self.assertOneError(finished, PATH, "kill_switch")
        self.assertEqual(self.names(), ["in"])


class Telling(Case):
    def test_result_line_has_every_part(self):
        _, url = self.serve_url(self.file("in", pattern(MIB)))
        finished = run("get", url, "-o", self.path("out"))
        self.assertEqual(list(values(finished.stdout)), ["path", "reason", "device", "port", "gid", "mtu", "bytes",
                                                         "acquire", "transfer", "copy", "write", "total"])

    def test_json_result_parses(self):
        _, url = self.serve_url(self.file("in", pattern(5 * MIB)))
        out = self.path("out")
        finished = run("get", url, "-o", out, "--json")
        self.assertStatus(finished, OK)
        self.assertEqual(finished.stdout.count(b"\n"), 1)
        result = json.loads(finished.stdout)
        self.assertEqual(result["schema"], "rvget.get/1")
        self.assertEqual((result["exit"], result["file"], result["bytes"]), (0, out, 5 * MIB))
        self.assertEqual(result["path_bytes"], {"rdma": 0, "inline": 0, "chunked": 5 * MIB})
        self.assertEqual((result["device"], result["port"], result["path_mtu_bytes"]), (None, None, None))
        self.assertGreater(result["total_ns"], 0)

    def test_json_error_parses(self):
        _, url = self.serve_url(self.file("in", b"x"))
        host, port, owner, slot = split(url)
        for arguments, status, code in (
                (["no-url"], USAGE, "usage"),
                ([f"rvget://{host}:{port}/{owner}{other_half(slot)}"], NOT_FOUND, "not_found"),
                ([url, "--policy", "require", "--range", "7-"], PATH, "path_not_available")):
            with self.subTest(code=code):
                finished = run("get", *arguments, "-o", self.path("out"), "--json")
                self.assertStatus(finished, status)
                error = json.loads(finished.stdout)
                self.assertEqual((error["schema"], error["exit"], error["code"]), ("rvget.error/1", status, code))
                self.assertNotIn(slot, error["message"])

    def test_standard_output_carries_the_data_alone(self):
        data = pattern(MIB + 1)
        _, url = self.serve_url(self.file("in", data))
        for arguments in ([], ["-o", "-"], ["-o", "/dev/stdout"], ["-o", "/proc/self/fd/1"]):
            finished = run("get", url, *arguments)
            self.assertStatus(finished, OK)
            self.assertEqual(finished.stdout, data)
            self.assertEqual(values(finished.stderr)["bytes"], str(len(data)))
        finished = run("get", url, "--json")
        self.assertEqual(finished.stdout, data)
        self.assertEqual(json.loads(finished.stderr)["bytes"], len(data))

    def test_closed_standard_output_is_an_io_error(self):
        _, url = self.serve_url(self.file("in", pattern(MIB)))
        for arguments in (["get", url, "-o", "-"], ["--help"]):
            finished = run(*arguments, preexec_fn=lambda: os.close(1))
            self.assertStatus(finished, IO)

    def test_quiet_says_nothing(self):
        _, url = self.serve_url(self.file("in", b"abc"))
        finished = run("get", url, "-q", "-o", self.path("out"))
        self.assertEqual((finished.returncode, finished.stdout, finished.stderr), (OK, b"", b""))

    def test_terminal_as_output_asks_for_a_file(self):
        _, url = self.serve_url(self.file("in", b"abc"))
        terminal, other_end = pty.openpty()
        self.addCleanup(os.close, terminal)
        finished = run("get", url, stdout=other_end)
        os.close(other_end)
        self.assertOneError(finished, USAGE, "-o FILE")

    def test_progress_bar_is_drawn_on_a_terminal(self):
        size = 8 * MIB
        _, url = self.serve_url(self.file("in", pattern(size)))
        proxy = Proxy(url, 5 * MIB)
        self.addCleanup(proxy.close)
        terminal, other_end = pty.openpty()
        self.addCleanup(os.close, terminal)
        process = start("get", proxy.url, "-o", self.path("out"), "--segment", "64K", stderr=other_end)
        os.close(other_end)
        self.addCleanup(self.end, process)
        self.assertTrue(proxy.stalled.wait(LIMIT))
        # The bar waits for a tenth of a second to have gone, and for a segment to arrive then.
        select.select([terminal], [], [], 0.2)
        proxy.release()
        shown = b""
        while b"\r\x1b[K" not in shown:
            self.assertTrue(select.select([terminal], [], [], LIMIT)[0], shown)
            shown += os.read(terminal, 4096)
        self.assertIn(b"%", shown)
        self.assertIn(b"of 8.0 MiB", shown)
        self.assertEqual(self.status_of(process), OK)

    def test_no_progress_bar_without_a_terminal(self):
        _, url = self.serve_url(self.file("in", pattern(MIB)))
        self.assertEqual(run("get", url, "-o", self.path("out")).stderr, b"")


class Refusals(Case):
    def test_malformed_url_is_a_usage_error_that_keeps_the_secret(self):
        _, url = self.serve_url(self.file("in", b"x"))
        host, port, owner, slot = split(url)
        for text in ("", "x", url[:-1], url + "0", url.replace("rvget:", "http:"), url.upper(),
                     f"rvget://{host}/{owner}{slot}", f"rvget://{host}:0/{owner}{slot}",
                     f"rvget://{host}:65536/{owner}{slot}", f"rvget://:{port}/{owner}{slot}", url + "\n", " " + url):
            with self.subTest(url=text):
                finished = run("get", text, "-o", self.path("out"))
                self.assertOneError(finished, USAGE, "url")
                self.assertNotIn(slot[:-1].encode(), finished.stderr)

    def test_number_of_urls_is_one(self):
        self.assertOneError(run("get", "-o", "x"), USAGE, "no URL")
        self.assertOneError(run("get", "a", "b", "-o", "x"), USAGE, "more than one URL")

    def test_handle_of_another_owner_is_not_found(self):
        _, url = self.serve_url(self.file("in", b"x"))
        host, port, owner, slot = split(url)
        finished = run("get", f"rvget://{host}:{port}/{other_half(owner)}{slot}", "-o", self.path("out"))
        self.assertOneError(finished, NOT_FOUND, f"{host}:{port}", "another owner")
        self.assertEqual(self.names(), ["in"])

    def test_unknown_slot_is_not_found(self):
        _, url = self.serve_url(self.file("in", b"x"))
        host, port, owner, slot = split(url)
        finished = run("get", f"rvget://{host}:{port}/{owner}{other_half(slot)}", "-o", self.path("out"))
        self.assertOneError(finished, NOT_FOUND, f"{host}:{port}", "no such slot")
        self.assertNotIn(owner.encode(), finished.stderr)
        self.assertEqual(self.names(), ["in"])

    def test_nobody_at_the_address_is_a_connection_error(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        finished = run("get", f"rvget://127.0.0.1:{port}/{'1' * 32}", "-o", self.path("out"))
        self.assertOneError(finished, CONNECTION, f"127.0.0.1:{port}", "refused")
        self.assertEqual(self.names(), [])

    def test_name_that_does_not_resolve_is_a_connection_error(self):
        finished = run("get", f"rvget://no-such-host.invalid:1/{'1' * 32}", "-o", self.path("out"))
        self.assertOneError(finished, CONNECTION, "no-such-host.invalid")

    def test_wrong_values_of_options_are_usage_errors(self):
        url = f"rvget://127.0.0.1:1/{'1' * 32}"
        for option, value in (("--policy", "always"), ("--deadline", "soon"), ("--segment", "4X"),
                              ("--segment", "99999999999T")):
            with self.subTest(option=option):
                self.assertOneError(run("get", url, "-o", "x", option, value), USAGE, option, value)


class Outputs(Case):
    def test_existing_file_is_replaced_and_keeps_its_permissions(self):
        _, url = self.serve_url(self.file("in", b"new"))
        out = self.file("out", b"old and longer")
        os.chmod(out, 0o640)
        self.assertStatus(run("get", url, "-o", out), OK)
        self.assertEqual(self.content(out), b"new")
        self.assertEqual(stat.S_IMODE(os.stat(out).st_mode), 0o640)

    def test_new_file_obeys_the_umask(self):
        _, url = self.serve_url(self.file("in", b"new"))
        self.assertStatus(run("get", url, "-o", self.path("out"), preexec_fn=lambda: os.umask(0o027)), OK)
        self.assertEqual(stat.S_IMODE(os.stat(self.path("out")).st_mode), 0o640)

    def test_symbolic_link_stays_and_its_target_is_replaced(self):
        _, url = self.serve_url(self.file("in", b"new"))
        os.mkdir(self.path("elsewhere"))
        target = self.file("elsewhere/target", b"old")
        os.symlink(target, self.path("link"))
        self.assertStatus(run("get", url, "-o", self.path("link")), OK)
        self.assertTrue(os.path.islink(self.path("link")))
        self.assertEqual(self.content(target), b"new")

    def test_relative_name_is_written_in_the_working_directory(self):
        _, url = self.serve_url(self.file("in", b"new"))
        self.assertStatus(run("get", url, "-o", "out", cwd=self.directory), OK)
        self.assertEqual(self.content(self.path("out")), b"new")

    def test_sync_gives_the_same_file(self):
        _, url = self.serve_url(self.file("in", pattern(MIB)))
        self.assertStatus(run("get", url, "-o", self.path("out"), "--sync"), OK)
        self.assertEqual(self.content(self.path("out")), pattern(MIB))

    def test_fifo_is_written_and_stays(self):
        data = pattern(MIB)
        _, url = self.serve_url(self.file("in", data))
        fifo = self.path("fifo")
        os.mkfifo(fifo)
        read = []
        reader = threading.Thread(target=lambda: read.append(self.content(fifo)))
        reader.start()
        self.assertStatus(run("get", url, "-o", fifo), OK)
        reader.join(LIMIT)
        self.assertEqual(read, [data])
        self.assertTrue(stat.S_ISFIFO(os.stat(fifo).st_mode))

    def test_output_that_cannot_be_is_an_io_error(self):
        _, url = self.serve_url(self.file("in", b"x"))
        os.mkdir(self.path("directory"))
        for name in ("directory", "directory/", "missing/out", "in/out"):
            with self.subTest(name=name):
                self.assertOneError(run("get", url, "-o", self.path(name)), IO, self.path(name), "-o")
        self.assertEqual(self.names(self.path("directory")), [])

    def test_full_device_is_an_io_error(self):
        _, url = self.serve_url(self.file("in", pattern(MIB)))
        self.assertOneError(run("get", url, "-o", "/dev/full"), IO, "/dev/full", "No space left")
        with open("/dev/full", "wb") as full:
            finished = run("get", url, "-o", "-", stdout=full)
        self.assertOneError(finished, IO, "standard output", "No space left")

    def test_full_disk_leaves_what_was_there(self):
        # A small file system in a mount namespace of its own, which is gone with the shell.
        script = '''mount -t tmpfs -o size=2m none "$1" || exit 77
                    printf old >"$1/out"
                    "$2" get "$3" -o "$1/out" --policy never
                    status=$?
                    [ "$(cat "$1/out")" = old ] && [ "$(ls -A "$1")" = out ] || exit 78
                    exit $status'''
        _, url = self.serve_url(self.file("in", pattern(4 * MIB)))
        os.mkdir(self.path("small"))
        unshare = ["unshare", "--mount", "--map-root-user", "--user"] if os.geteuid() else ["unshare", "--mount"]
        finished = subprocess.run([*unshare, "sh", "-c", script, "sh", self.path("small"), COMMAND, url],
                                  capture_output=True, timeout=LIMIT, check=False)
        if finished.returncode in (1, 77) and b"rvget:" not in finished.stderr:
            self.skipTest(f"no namespace to mount a small file system in: {finished.stderr}")
        self.assertOneError(finished, IO, "No space left", "-o")

    def test_broken_pipe_is_an_io_error(self):
        _, url = self.serve_url(self.file("in", pattern(4 * MIB)))
        reading, writing = os.pipe()
        os.close(reading)
        finished = run("get", url, stdout=writing)
        os.close(writing)
        self.assertOneError(finished, IO, "standard output", "Broken pipe")


class Interrupted(Case):
    """A get that is in the middle of its bytes, over a connection that passes no more of them."""

    SIZE = 16 * MIB

    def setUp(self):
        super().setUp()
        self.server, self.url = self.serve_url(self.file("in", pattern(self.SIZE)))
        # More than what precedes the first segment: the temporary file is there by then.
        self.proxy = Proxy(self.url, 2 * MIB)
        self.addCleanup(self.proxy.close)
        os.mkdir(self.path("to"))
        self.out = self.path("to/out")

    def start_get(self, *arguments):
        process = start("get", self.proxy.url, "-o", self.out, *arguments)
        self.addCleanup(self.end, process)
        self.assertTrue(self.proxy.stalled.wait(LIMIT))
        self.assertEqual(len([n for n in self.names(self.path("to")) if n.startswith(".rvget-")]), 1)
        return process

    def test_signal_removes_the_partial_file(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            with self.subTest(signal=number.name):
                self.proxy.close()
                self.proxy = Proxy(self.url, 2 * MIB)
                self.addCleanup(self.proxy.close)
                self.file("to/out", b"old")
                process = self.start_get()
                process.send_signal(number)
                _, told = process.communicate(timeout=LIMIT)
                self.assertEqual(process.returncode, 128 + number)
                self.assertIn(b"signal", told)
                self.assertEqual(self.names(self.path("to")), ["out"])
                self.assertEqual(self.content(self.out), b"old")

    def test_signal_with_json_is_an_error_object(self):
        process = self.start_get("--json")
        process.terminate()
        told, _ = process.communicate(timeout=LIMIT)
        error = json.loads(told)
        self.assertEqual((error["schema"], error["exit"], error["code"]), ("rvget.error/1", 143, "signal"))

    def test_kill_leaves_only_the_temporary_name(self):
        process = self.start_get()
        process.kill()
        self.assertEqual(self.status_of(process), -signal.SIGKILL)
        left = self.names(self.path("to"))
        self.assertEqual(len(left), 1)
        self.assertRegex(left[0], r"\A\.rvget-[0-9a-f]{16}\Z")

    def test_owner_that_is_killed_ends_the_get_within_seconds(self):
        process = self.start_get()
        killed = time.monotonic()
        self.server.kill()
        _, told = process.communicate(timeout=LIMIT)
        self.assertLess(time.monotonic() - killed, 5)
        self.assertEqual(process.returncode, CONNECTION, told)
        self.assertRegex(told, rb"\Arvget: [^\n]+\n\Z")
        self.assertEqual(self.names(self.path("to")), [])

    def test_deadline_that_passes_has_a_status_of_its_own(self):
        process = start("get", self.proxy.url, "-o", self.out, "--deadline", "700")
        self.addCleanup(self.end, process)
        _, told = process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, DEADLINE, told)
        self.assertIn(b"deadline", told)
        self.assertEqual(self.names(self.path("to")), [])

    def test_release_after_the_stall_completes_the_file(self):
        process = self.start_get()
        self.proxy.release()
        _, told = process.communicate(timeout=LIMIT)
        self.assertEqual((process.returncode, told), (OK, b""))
        self.assertEqual(self.content(self.out), pattern(self.SIZE))
        self.assertEqual(self.names(self.path("to")), ["out"])

    def test_pipe_that_nobody_reads_does_not_hold_up_a_signal(self):
        self.proxy.release()
        reading, writing = os.pipe()
        process = start("get", self.proxy.url, stdout=writing)
        self.addCleanup(self.end, process)
        os.close(writing)
        self.assertTrue(select.select([reading], [], [], LIMIT)[0])
        process.terminate()
        self.assertEqual(self.status_of(process), 128 + signal.SIGTERM)
        os.close(reading)


class Deadline(Case):
    """--deadline holds for what takes the bytes, too."""

    def setUp(self):
        super().setUp()
        _, self.url = self.serve_url(self.file("in", pattern(4 * MIB)))

    def test_fifo_without_a_reader_ends_at_the_deadline(self):
        fifo = self.path("fifo")
        os.mkfifo(fifo)
        finished = run("get", self.url, "-o", fifo, "--deadline", "300")
        self.assertOneError(finished, DEADLINE, fifo, "deadline")
        told = run("get", self.url, "-o", fifo, "--deadline", "300", "--json")
        self.assertEqual(json.loads(told.stdout)["code"], "deadline")
        self.assertEqual(self.names(), ["fifo", "in"])

    def test_fifo_whose_reader_does_not_read_ends_at_the_deadline(self):
        fifo = self.path("fifo")
        os.mkfifo(fifo)
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        finished = run("get", self.url, "-o", fifo, "--deadline", "3000")
        self.assertOneError(finished, DEADLINE, fifo, "deadline")
        self.assertNotIn(b"127.0.0.1", finished.stderr)
        self.assertGreater(len(os.read(reader, 4096)), 0)

    def test_pipe_that_nobody_reads_ends_at_the_deadline(self):
        reading, writing = os.pipe()
        finished = run("get", self.url, "--deadline", "3000", stdout=writing)
        os.close(writing)
        self.assertOneError(finished, DEADLINE, "standard output", "deadline")
        os.close(reading)

    def test_deadline_that_is_far_changes_nothing(self):
        fifo = self.path("fifo")
        os.mkfifo(fifo)
        read = []
        reader = threading.Thread(target=lambda: read.append(self.content(fifo)))
        reader.start()
        self.assertStatus(run("get", self.url, "-o", fifo, "--deadline", "4294967295"), OK)
        reader.join(LIMIT)
        self.assertEqual(read, [pattern(4 * MIB)])


class Checksum(Case):
    def test_checksum_that_agrees_changes_nothing(self):
        data = pattern(9 * MIB + 5)
        _, url = self.serve_url(self.file("a", data))
        got = run("get", url, "--checksum", "--segment", "1M")
        self.assertStatus(got, OK)
        self.assertEqual(got.stdout, data)


if __name__ == "__main__":
    main()
