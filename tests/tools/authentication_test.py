"""How the command proves who it is, and what those get who cannot."""

import json
import os
import select
import socket
import subprocess
import threading

from support import (AUTHENTICATION, CONNECTION, IO, LIMIT, MIB, OK, USAGE, Case, hang_up, main, pattern, run,
                     split, with_port)

SECRET = b"thirty-two bytes of randomness..\n"


class Secret(Case):
    def setUp(self):
        super().setUp()
        self.secret = self.secret_file("secret", SECRET)
        self.other = self.secret_file("other", SECRET.upper())

    def secret_file(self, name, content):
        path = self.file(name, content)
        os.chmod(path, 0o600)
        return path

    def serve_secret(self, content=b"abc", **options):
        return self.serve_url(self.file("a", content), "--secret-file", self.secret, **options)

    def test_same_secret_gets_the_bytes(self):
        data = pattern(3 * MIB + 1)
        _, url = self.serve_secret(data)
        got = run("get", url, "--secret-file", self.secret)
        self.assertStatus(got, OK)
        self.assertEqual(got.stdout, data)

    def test_line_end_behind_the_secret_does_not_matter(self):
        _, url = self.serve_secret()
        for end in (b"", b"\n", b"\r\n"):
            same = self.secret_file("same", SECRET.rstrip() + end)
            self.assertEqual(run("get", url, "--secret-file", same).stdout, b"abc")

    def test_secret_from_a_pipe_is_read(self):
        _, url = self.serve_secret()
        reading, writing = os.pipe()
        os.write(writing, SECRET)
        os.close(writing)
        got = run("get", url, "--secret-file", f"/dev/fd/{reading}", pass_fds=[reading])
        os.close(reading)
        self.assertEqual(got.stdout, b"abc")

    def test_wrong_secret_is_an_authentication_failure(self):
        _, url = self.serve_secret()
        got = run("get", url, "--secret-file", self.other)
        self.assertOneError(got, AUTHENTICATION, "secret", ":".join(map(str, split(url)[:2])))
        self.assertEqual(got.stdout, b"")
        told = run("get", url, "--secret-file", self.other, "--json", "-o", self.path("out"))
        self.assertEqual(json.loads(told.stdout)["code"], "authentication")
        self.assertNotIn("out", self.names())

    def test_no_secret_at_the_consumer_is_refused_and_learns_nothing(self):
        _, url = self.serve_secret()
        self.assertOneError(run("get", url), CONNECTION, "it may ask for a proof", "--secret-file")
        host, port, owner, slot = split(url)
        with socket.create_connection((host, port), LIMIT) as stranger:
            hello = bytes.fromhex("1600000000000000" "0100" "0000000000000000" "0100" "0100" "0700000000000000")
            self.assertEqual(answer_to(stranger, hello), b"")

    def test_no_secret_at_the_owner_is_an_authentication_failure(self):
        _, url = self.serve_url(self.file("a", b"abc"))
        self.assertOneError(run("get", url, "--secret-file", self.secret), AUTHENTICATION, "secret")

    def test_secret_is_never_in_the_log(self):
        process, url = self.serve_secret(pattern(MIB), stderr=subprocess.PIPE)
        got = run("get", url, "-o", self.path("out"), "--secret-file", self.secret, "--log-level", "trace")
        self.assertStatus(got, OK)
        process.terminate()
        _, told = process.communicate(timeout=LIMIT)
        self.assertNotIn(SECRET.strip(), told + got.stderr + got.stdout)

    def test_missing_file_is_an_io_error(self):
        missing = self.path("missing")
        for arguments in (("serve", self.file("a", b"x")), ("get", "rvget://127.0.0.1:1/" + "0" * 31 + "1")):
            with self.subTest(command=arguments[0]):
                finished = run(*arguments, "--secret-file", missing)
                self.assertOneError(finished, IO, missing, "No such file")

    def test_directory_as_the_file_is_an_io_error(self):
        self.assertOneError(run("serve", self.file("a", b"x"), "--secret-file", self.directory), IO, self.directory)

    def test_secret_of_a_wrong_length_is_a_usage_error(self):
        for content in (b"", b"fifteen bytes..\n", b"x" * 4097, b"x" * 100000):
            with self.subTest(bytes=len(content)):
                short = self.secret_file("short", content)
                self.assertOneError(run("serve", self.file("a", b"x"), "--secret-file", short), USAGE, short,
                                    "16 to 4096 bytes")

    def test_file_that_others_may_read_is_warned_of(self):
        for mode, warned in ((0o600, False), (0o400, False), (0o640, True), (0o604, True)):
            with self.subTest(mode=oct(mode)):
                os.chmod(self.secret, mode)
                process, _ = self.serve_secret(stderr=subprocess.PIPE)
                process.terminate()
                _, told = process.communicate(timeout=LIMIT)
                self.assertEqual(b"others may read" in told, warned, told)

    def test_open_address_is_warned_of_only_without_a_secret(self):
        for options, warned in (((), True), (("--secret-file", self.secret), False)):
            process, _ = self.serve(self.file("a", b"x"), "--listen", "0.0.0.0", *options, stderr=subprocess.PIPE)
            process.terminate()
            _, told = process.communicate(timeout=LIMIT)
            self.assertEqual(b"open without authentication" in told, warned, told)


class Strangers(Case):
    def test_crowd_of_silent_strangers_keeps_nobody_out(self):
        secret = self.file("secret", SECRET)
        _, url = self.serve_url(self.file("a", b"abc"), "--secret-file", secret)
        host, port, _, _ = split(url)
        crowd = [socket.create_connection((host, port), LIMIT) for _ in range(400)]
        try:
            self.assertEqual(run("get", url, "--secret-file", secret).stdout, b"abc")
        finally:
            for stranger in crowd:
                stranger.close()

    def test_garbage_is_answered_by_nothing(self):
        secret = self.file("secret", SECRET)
        _, url = self.serve_url(self.file("a", b"abc"), "--secret-file", secret)
        host, port, _, _ = split(url)
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", bytes(100), os.urandom(1000), b"\x16\x03\x01\x02\x00" + bytes(512)):
            with socket.create_connection((host, port), LIMIT) as stranger:
                self.assertEqual(answer_to(stranger, garbage), b"")
        self.assertEqual(run("get", url, "--secret-file", secret).stdout, b"abc")


class Tls(Case):
    def setUp(self):
        super().setUp()
        subprocess.run([os.environ["RVGET_CERTIFICATES"], self.directory], check=True, timeout=LIMIT)

    def identity(self, name, *peers, authority="ca"):
        options = ["--tls-cert", self.path(name + ".pem"), "--tls-key", self.path(name + ".key"),
                   "--tls-ca", self.path(authority + ".pem")]
        return [*options, "--tls-peer", ",".join(peers)] if peers else options

    def serve_tls(self, content=b"abc"):
        return self.serve_url(self.file("a", content), *self.identity("owner", "nobody.test", "consumer.test"))

    def test_right_names_get_the_bytes(self):
        data = pattern(3 * MIB + 1)
        _, url = self.serve_tls(data)
        got = run("get", url, *self.identity("consumer"))
        self.assertStatus(got, OK)
        self.assertEqual(got.stdout, data)
        self.assertEqual(run("get", url, *self.identity("consumer", "owner.test")).stdout, data)

    def test_wrong_certificates_are_authentication_failures(self):
        _, url = self.serve_tls()
        for name in ("another", "only-common-name", "expired", "foreign"):
            with self.subTest(certificate=name):
                self.assertOneError(run("get", url, *self.identity(name)), AUTHENTICATION, "TLS")

    def test_owner_of_another_name_is_an_authentication_failure(self):
        _, url = self.serve_tls()
        self.assertOneError(run("get", url, *self.identity("consumer", "elsewhere.test")), AUTHENTICATION,
                            "elsewhere.test")

    def test_owner_of_another_authority_is_an_authentication_failure(self):
        _, url = self.serve_tls()
        self.assertOneError(run("get", url, *self.identity("consumer", authority="other-ca")), AUTHENTICATION, "TLS")

    def test_plain_consumer_gets_nothing(self):
        _, url = self.serve_tls()
        got = run("get", url)
        self.assertStatus(got, CONNECTION)
        self.assertEqual(got.stdout, b"")

    def test_plain_owner_is_an_authentication_failure(self):
        _, url = self.serve_url(self.file("a", b"abc"))
        self.assertOneError(run("get", url, *self.identity("consumer")), AUTHENTICATION, "TLS")

    def test_recording_said_again_gets_no_answer(self):
        _, url = self.serve_tls()
        recorder = Recorder(url)
        self.addCleanup(recorder.close)
        self.assertEqual(run("get", recorder.url, *self.identity("consumer")).stdout, b"abc")
        recorder.close()
        said = bytes(recorder.said)
        self.assertIn(b"\x16\x03", said[:2])
        host, port, _, _ = split(url)
        with socket.create_connection((host, port), LIMIT) as s:
            heard = answer_to(s, said)
        # The answer to the first message, which nobody can read without the key, and an alert.
        self.assertNotIn(b"abc", heard)
        self.assertLess(len(heard), len(recorder.heard))
        self.assertEqual(run("get", url, *self.identity("consumer")).stdout, b"abc")

    def test_bytes_are_not_on_the_wire(self):
        secret = b"the bytes that nobody else may read"
        _, url = self.serve_tls(secret)
        recorder = Recorder(url)
        self.addCleanup(recorder.close)
        self.assertEqual(run("get", recorder.url, *self.identity("consumer")).stdout, secret)
        recorder.close()
        self.assertNotIn(secret, bytes(recorder.heard))

    def test_part_of_the_options_is_a_usage_error(self):
        for missing in (0, 2, 4):
            options = self.identity("owner", "consumer.test")
            del options[missing:missing + 2]
            self.assertOneError(run("serve", self.file("a", b"x"), *options), USAGE, "give all")
        self.assertOneError(run("serve", self.file("a", b"x"), *self.identity("owner")), USAGE, "--tls-peer is empty")

    def test_file_that_cannot_be_read_is_an_io_error(self):
        options = self.identity("missing", "consumer.test")
        self.assertOneError(run("serve", self.file("a", b"x"), *options), IO, self.path("missing.pem"), "No such file")


def answer_to(s, said):
    """All that the other side says before it ends; it may end, or reset, while it is still spoken to."""
    heard = b""
    try:
        s.sendall(said)
        s.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    try:
        while part := s.recv(1 << 16):
            heard += part
    except ConnectionResetError:
        pass
    return heard


class Recorder:
    """Passes on one connection and keeps what both said."""

    def __init__(self, url):
        host, port, _, _ = split(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(LIMIT)
        self.url = with_port(url, self._listener.getsockname()[1])
        self.said, self.heard = bytearray(), bytearray()
        self._thread = threading.Thread(target=self._run, args=((host, port),))
        self._thread.start()

    def close(self):
        self._thread.join(LIMIT)
        self._listener.close()

    def _run(self, server):
        client = self._listener.accept()[0]
        with client, socket.create_connection(server, LIMIT) as owner:
            pairs = {client: (owner, self.said), owner: (client, self.heard)}
            while pairs:
                for s in select.select(list(pairs), [], [], LIMIT)[0]:
                    to, kept = pairs[s]
                    try:
                        data = s.recv(1 << 16)
                        to.sendall(data)
                    except OSError:
                        data = b""
                    kept += data
                    if not data:
                        del pairs[s]
                        hang_up(to)


if __name__ == "__main__":
    main()
